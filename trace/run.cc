#include "trace/run.h"

#include <algorithm>
#include <utility>

namespace lockstep {

void RankTrace::add_damage(std::string message, int line) {
  ++damaged_count;
  if (damaged.size() < kDamagedKept) damaged.push_back({{source, line}, std::move(message)});
}

std::vector<std::string> Tables::names(NameListId id) const {
  std::vector<std::string> out;
  for (const StringId name : name_lists[id]) out.push_back(strings[name]);
  return out;
}

SignatureId Tables::make_signature(Signature s) {
  const std::vector<StringId>& types = name_lists[s.dtypes];
  if (types.size() > 1 &&
      std::adjacent_find(types.begin(), types.end(), std::not_equal_to<>()) == types.end()) {
    s.dtypes = name_lists.intern({types.front()});
  }
  s.in_elements = s.in == IntListId{} ? kNone : total_elements(int_lists[s.in]);
  s.out_elements = s.out == IntListId{} ? kNone : total_elements(int_lists[s.out]);
  return signatures.intern(s);
}

NameListId Tables::make_names(const std::vector<std::string>& names) {
  std::vector<StringId> ids;
  ids.reserve(names.size());
  for (const std::string& name : names) ids.push_back(strings.intern(name));
  return name_lists.intern(ids);
}

const RankTrace* Run::find(Rank rank) const {
  const auto found = std::lower_bound(ranks.begin(), ranks.end(), rank,
                                      [](const RankTrace& t, Rank r) { return t.rank < r; });
  return found != ranks.end() && found->rank == rank ? &*found : nullptr;
}

std::uint64_t Run::event_count() const {
  std::uint64_t count = 0;
  for (const RankTrace& trace : ranks) count += trace.events.size();
  return count;
}

}  // namespace lockstep
