#include "verify/finding_labels.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"

namespace lockstep::verify {

namespace {

class GroupLabels {
 public:
  explicit GroupLabels(const Context& context) : context_(context) {
    for (const GroupStreams& group : context.groups) {
      by_name_.emplace(printable(group.name), &group);
      if (!group.streams.empty()) ++groups_called_[description_of(group)];
    }
  }

  // The label of the group with this name. Empty: no rank called in the group.
  std::string of(const std::string& name) const {
    const auto found = by_name_.find(name);
    if (found == by_name_.end() || found->second->streams.empty()) return "";
    const GroupStreams& group = *found->second;
    std::string description = description_of(group);
    if (groups_called_.at(description) == 1) return description;
    // Several groups have this description: "data parallel (ranks 0, 4)".
    std::vector<trace::Rank> members = group.members;
    std::sort(members.begin(), members.end());
    return fmt::format("{} ({})", description, describe_ranks(members));
  }

 private:
  std::string description_of(const GroupStreams& group) const {
    return context_.describe_group(group.streams[0].rank_index, group.group);
  }

  const Context& context_;
  std::unordered_map<std::string, const GroupStreams*> by_name_;
  std::unordered_map<std::string, std::size_t> groups_called_;  // by description
};

// "all_reduce(loss), step 3" and "all_reduce(loss), step 4", where both would be
// "all_reduce(loss)".
void tell_steps_apart(std::vector<Evidence>& evidence) {
  std::map<std::pair<std::string, std::string>, std::set<std::int32_t>> steps;
  for (const Evidence& one : evidence)
    if (one.step) steps[{one.at, one.text}].insert(*one.step);
  for (Evidence& one : evidence) {
    const auto same = steps.find({one.at, one.text});
    if (one.step && same->second.size() > 1) one.text += fmt::format(", step {}", *one.step);
  }
}

void label(const Context& context, const GroupLabels& labels, std::vector<Finding>& findings) {
  for (Finding& f : findings) {
    tell_steps_apart(f.evidence);
    if (!f.group.empty()) f.group_label = labels.of(f.group);
    if (f.seq && !context.run.ranks.empty()) f.number = *f.seq + context.run.ranks[0].first_number;
    for (Elsewhere& other : f.also) other.group_label = labels.of(other.group);
    label(context, labels, f.consequences);
  }
}

}  // namespace

void label_findings(const Context& context, std::vector<Finding>& findings) {
  if (!findings.empty()) label(context, GroupLabels(context), findings);
}

}  // namespace lockstep::verify
