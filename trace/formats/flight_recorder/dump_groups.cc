#include "trace/formats/flight_recorder/dump_groups.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"
#include "trace/formats/torch_names.h"

namespace lockstep::trace {

namespace {

using Value = DataTree::Value;

std::optional<std::vector<Rank>> parse_ranks(std::string_view text) {
  const std::optional<std::vector<std::int64_t>> numbers = integers_in(text);
  return numbers ? ranks_in(*numbers) : std::nullopt;
}

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// A number of pg_status; -1 where there is none. Pickles have integers, JSON has strings.
std::int64_t status_number(const DataTree& tree, const Value* v) {
  if (v == nullptr) return -1;
  if (v->is(DataTree::Kind::integer)) return v->integer(-1);
  const std::string_view text = tree.text(*v);
  std::int64_t value = -1;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

}  // namespace

void DumpGroups::read_config(const Value& config, TraceBuilder& builder) {
  const auto pairs = tree_.pairs(config);
  for (std::size_t i = 0; i + 1 < pairs.size(); i += 2) {
    const std::string_view name = tree_.text(pairs[i]);
    if (!visits_.spend(tree_.pairs(pairs[i + 1]).size() + 1)) return;
    const Value* const text = tree_.find(pairs[i + 1], "ranks");
    if (text == nullptr) continue;
    if (!visits_.spend(tree_.text(*text).size())) return;
    std::optional<std::vector<Rank>> members = parse_ranks(tree_.text(*text));
    if (name.empty()) {
      for (const Rank r : members.value_or(std::vector<Rank>()))
        least_world_ = std::max(least_world_, r.value + 1);
      continue;
    }
    if (!members) {
      trace_.add_damage(
          fmt::format("pg_config: the ranks of group {} are not a list", printable(name)));
      continue;
    }
    if (members->empty()) continue;
    const Value* const desc = tree_.find(pairs[i + 1], "desc");
    const GroupId group = tables_.groups.intern(std::string(name));
    groups_[group].members = *members;
    builder.add_group(group, *std::move(members),
                      desc == nullptr ? StringId{} : names_.string(*desc));
  }
}

GroupId DumpGroups::named(std::span<const Value> process_group) {
  if (process_group.empty() || !process_group[0].is(DataTree::Kind::string)) return {};
  std::optional<GroupId>& known = named_[process_group[0].number()];
  if (!known) {
    const std::string name(tree_.text(process_group[0]));
    std::string_view description;
    if (is_of_gloo() && process_group.size() > 1 && process_group[1].is(DataTree::Kind::string))
      description = tree_.text(process_group[1]);
    const bool says_more = is_number(name) && !description.empty() && description != "undefined" &&
                           description != kDescriptionOfAll;
    known = tables_.groups.intern(says_more ? fmt::format("{} ({})", description, name) : name);
  }
  return *known;
}

bool DumpGroups::link(std::int64_t pg_id, GroupId group) {
  const auto [known, is_new] = by_pg_id_.try_emplace(pg_id, group);
  return is_new || known->second == group || groups_.contains(group);
}

// Entries connect a pg_id with a group's name. For groups without entries, the remaining ids and
// names are matched in ascending order. That works because a
// process numbers its groups in the order of creation, and c10d's names are such numbers, too:
// ids 1 and 2 left, names "3" and "7" left, so 1 is "3" and 2 is "7".
void DumpGroups::link_the_rest(const std::vector<std::int64_t>& pg_ids) {
  std::set<GroupId> linked;
  for (const auto& [pg_id, group] : by_pg_id_) linked.insert(group);
  std::vector<std::int64_t> ids;
  for (const std::int64_t id : pg_ids) {
    if (!by_pg_id_.contains(id)) ids.push_back(id);
  }
  std::vector<std::pair<std::int64_t, GroupId>> groups;  // by the number that is their name
  for (const auto& membership : trace_.groups) {
    if (linked.contains(membership.group)) continue;
    const std::string& name = tables_.groups[membership.group];
    std::int64_t number = 0;
    const auto [end, problem] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (problem != std::errc() || end != name.data() + name.size()) return;
    groups.emplace_back(number, membership.group);
  }
  if (ids.size() != groups.size()) return;  // ambiguous: leave them unknown
  std::sort(ids.begin(), ids.end());
  std::sort(groups.begin(), groups.end());
  for (std::size_t i = 0; i < ids.size(); ++i) by_pg_id_[ids[i]] = groups[i].second;
}

void DumpGroups::read_status(const Value& status) {
  const auto pairs = tree_.pairs(status);
  std::vector<std::int64_t> pg_ids;
  for (std::size_t i = 0; i + 1 < pairs.size(); i += 2) {
    std::int64_t pg_id = -1;
    const std::string_view key = tree_.text(pairs[i]);
    std::from_chars(key.data(), key.data() + key.size(), pg_id);
    pg_ids.push_back(pg_id);
    if (!visits_.spend(tree_.pairs(pairs[i + 1]).size() + 1)) return;
  }
  link_the_rest(pg_ids);
  for (std::size_t i = 0; i < pg_ids.size(); ++i) {
    const auto known = by_pg_id_.find(pg_ids[i]);
    if (known == by_pg_id_.end() || groups_[known->second].point_to_point) continue;
    const auto number = [&](std::string_view name) -> std::optional<std::uint64_t> {
      const std::int64_t n = status_number(tree_, tree_.find(pairs[2 * i + 1], name));
      return n < 0 ? std::nullopt : std::optional(static_cast<std::uint64_t>(n));
    };
    RankTrace::Progress progress;
    progress.group = known->second;
    progress.enqueued = number("last_enqueued_collective");
    progress.started = number("last_started_collective");
    progress.completed = number("last_completed_collective");
    trace_.progress.push_back(progress);
  }
}

std::optional<std::uint64_t> DumpGroups::enqueued(const Value& status,
                                                  const DumpGroup& group) const {
  for (const auto& [pg_id, id] : by_pg_id_) {
    const auto known = groups_.find(id);
    if (known == groups_.end() || &known->second != &group) continue;
    const Value* const counts = tree_.find(status, std::to_string(pg_id));
    if (counts == nullptr) return std::nullopt;
    const std::int64_t n = status_number(tree_, tree_.find(*counts, "last_enqueued_collective"));
    if (n >= 0) return static_cast<std::uint64_t>(n);
  }
  return std::nullopt;
}

}  // namespace lockstep::trace
