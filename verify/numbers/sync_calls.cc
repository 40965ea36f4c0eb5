#include "verify/numbers/sync_calls.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "verify/numbers/rounding.h"

namespace lockstep {

namespace {

Average average_of(std::string_view tag) {
  constexpr std::string_view kWord = "average=";
  const std::size_t at = tag.find(kWord);
  if (at == std::string_view::npos) return Average::undeclared;
  const std::string_view said = tag.substr(at + kWord.size());
  const std::string_view word = said.substr(0, said.find(' '));
  if (word == "world") return Average::world;
  if (word == "contributors") return Average::contributors;
  if (word == "sum") return Average::sum;
  return Average::undeclared;
}

SyncCall describe_call(const Context& context, const GroupStreams& group, const Call& call) {
  SyncCall out;
  for (const Stream& stream : group.streams) out.ranks.push_back(stream.rank_index);
  std::sort(out.ranks.begin(), out.ranks.end());
  out.whole = group.absent.empty();
  const Tables& tables = context.run.tables;
  out.average = average_of(tables.str(call.tag));
  const std::vector<std::string> dtypes = tables.names(tables.signatures[call.signature].dtypes);
  if (!dtypes.empty()) out.roundoff = unit_roundoff(dtypes.front());
  return out;
}

}  // namespace

SyncCalls::SyncCalls(const Context& context) {
  const Tables& tables = context.run.tables;
  std::unordered_map<std::uint32_t, const GroupStreams*> groups;
  for (const GroupStreams& group : context.groups) groups[group.group.value] = &group;
  using Kind = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>;
  std::set<Kind> seen;
  Kind last{};
  bool unanimous = true;
  for (const RankTrace& trace : context.run.ranks) {
    for (const Call& call : trace.calls) {
      if (call.what.value == 0 || !is_reduction(tables.signatures[call.signature].op)) continue;
      const Kind kind(call.what.value, call.group.value, call.tag.value, call.signature.value);
      if (kind == last || !seen.insert(kind).second) continue;
      last = kind;
      const auto group = groups.find(call.group.value);
      if (group == groups.end()) continue;
      const SyncCall described = describe_call(context, *group->second, call);
      if (described.average != Average::undeclared) {
        unanimous =
            unanimous && (declared_ == Average::undeclared || declared_ == described.average);
        declared_ = described.average;
      }
      for (const StringId name : tables.name_lists[call.what]) {
        SyncCall& known = by_name_[name.value];
        if (known.ranks.size() < described.ranks.size()) known = described;
      }
    }
  }
  if (!unanimous) declared_ = Average::undeclared;
}

const SyncCall* SyncCalls::of(StringId name) const {
  const auto found = by_name_.find(name.value);
  return found == by_name_.end() ? nullptr : &found->second;
}

}  // namespace lockstep
