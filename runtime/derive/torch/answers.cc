#include "runtime/derive/torch/answers.h"

#include <algorithm>
#include <set>
#include <string_view>

namespace lockstep::runtime {

Answers::Answers(int world, const std::map<int, Given>& before) : world_(world), before_(before) {
  for (const auto& [rank, given] : before) turns_.push_back(&given);
}

const std::string* Answers::of(int rank, const Key& key) const {
  if (turns_.empty()) return nullptr;
  const auto ran = before_.find(rank);
  const Given& given =
      ran != before_.end() ? ran->second : *turns_[static_cast<std::size_t>(rank) % turns_.size()];
  const auto found = given.find(key);
  return found == given.end() ? nullptr : &found->second;
}

std::vector<const std::string*> Answers::all(const Key& key) const {
  std::set<std::string_view> seen;
  std::vector<const std::string*> out;
  for (const Given* given : turns_) {
    const auto found = given->find(key);
    if (found != given->end() && seen.insert(found->second).second) out.push_back(&found->second);
  }
  return out;
}

bool gave_alike(const std::map<int, Answers::Given>& given) {
  return std::all_of(given.begin(), given.end(),
                     [&](const auto& of_rank) { return of_rank.second == given.begin()->second; });
}

}  // namespace lockstep::runtime
