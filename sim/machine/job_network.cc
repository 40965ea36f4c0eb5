#include "sim/machine/job_network.h"

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <set>

#include "sim/machine/work_time.h"

namespace lockstep::sim {
namespace {

std::uint64_t key_of(std::uint32_t first, std::uint32_t second) {
  return (std::uint64_t{first} << 32U) | second;
}

std::uint32_t way_of(trace::Op op, Pattern pattern) {
  return (static_cast<std::uint32_t>(plain_op(op)) << 8U) | static_cast<std::uint32_t>(pattern);
}

// The calls of a program, each once with each slot.
std::vector<std::pair<std::uint16_t, std::uint32_t>> calls_of(const Program& program) {
  std::set<std::pair<std::uint16_t, std::uint32_t>> out;
  for (const ProgramStep& step : program.steps)
    if (step.kind == StepKind::call) out.emplace(step.slot, step.index);
  return {out.begin(), out.end()};
}

}  // namespace

Result<JobNetwork> JobNetwork::of(const Machine& machine, const ProgramJob& job,
                                  const std::vector<GroupLayout>& layouts) {
  Result<Network> network = Network::make(*machine.network, machine.links, machine.ranks_per_node,
                                          static_cast<std::int64_t>(job.ranks.size()));
  if (!network) return network.error();
  JobNetwork out(std::move(*network));
  if (const Status added = out.add(machine, job, layouts); !added) return added.error();
  return out;
}

Status JobNetwork::add(const Machine& machine, const ProgramJob& job,
                       const std::vector<GroupLayout>& layouts) {
  kinds_ = kinds_of(layouts);
  of_group_.resize(job.groups.size());
  std::vector<std::vector<std::pair<std::uint16_t, std::uint32_t>>> calls;
  for (const Program& program : job.programs) calls.push_back(calls_of(program));
  for (const ProgramJob::Member& member : job.ranks)
    for (const auto& [slot, index] : calls[member.program]) {
      const std::uint32_t group = member.groups[slot];
      const GroupLayout& layout = layouts[group];
      const auto [way, is_new] = ways_.try_emplace(key_of(kinds_[group], index));
      if (is_new) {
        const ProgramCall& call = job.calls[index];
        const Result<Price> priced = price({call.op, call.bytes}, layout, machine);
        if (!priced) return priced.error();
        way->second = way_of(call.op, pattern_of(call.op, layout, *priced, machine.network->sharp));
      }
      if (const Status added = add_traffic(job, group, way->second, layout.nodes); !added)
        return added;
    }
  // Number the links that are used.
  for (const std::vector<Traffic>& group : of_group_)
    for (const Traffic& traffic : group)
      for (const LinkLoad& load : traffic.loads) used_.push_back(load.link);
  std::sort(used_.begin(), used_.end());
  used_.erase(std::unique(used_.begin(), used_.end()), used_.end());
  for (std::vector<Traffic>& group : of_group_)
    for (Traffic& traffic : group)
      for (LinkLoad& load : traffic.loads)
        load.link = static_cast<std::uint32_t>(
            std::lower_bound(used_.begin(), used_.end(), load.link) - used_.begin());
  return Status::ok();
}

Status JobNetwork::add_traffic(const ProgramJob& job, std::uint32_t group, std::uint32_t way,
                               std::int64_t nodes) {
  const auto pattern = static_cast<Pattern>(way & 0xffU);
  const std::vector<std::int32_t>& members = job.groups[group].members;
  if (pattern == Pattern::none || members.size() < 2) return Status::ok();
  for (const Traffic& known : of_group_[group])
    if (known.way == way) return Status::ok();
  visits_ += visits(network_, nodes, pattern);
  if (const Status checked = check_visits(network_, visits_); !checked) return checked;
  std::vector<LinkLoad> loads =
      traffic(network_, members, static_cast<trace::Op>(way >> 8U), pattern);
  const PortLoad ports = port_load(network_, loads);
  of_group_[group].push_back({way, ports, std::move(loads)});
  return Status::ok();
}

Folding JobNetwork::fold(const ProgramJob& job) const {
  // A group puts the same load on two links if each of its ways puts the same bytes on both.
  std::map<std::vector<std::uint64_t>, std::uint32_t> labels;
  GroupLinks links;
  for (const std::vector<Traffic>& group : of_group_) {
    std::map<std::uint32_t, std::vector<std::uint64_t>> by_link;
    for (const Traffic& traffic : group)
      for (const LinkLoad& load : traffic.loads) {
        std::vector<std::uint64_t>& label = by_link[load.link];
        label.push_back(traffic.way);
        label.push_back(std::bit_cast<std::uint64_t>(load.bytes));
      }
    auto& of_group = links.of_group.emplace_back();
    for (auto& [link, label] : by_link) {
      const auto next = static_cast<std::uint32_t>(labels.size());
      of_group.push_back({link, labels.try_emplace(std::move(label), next).first->second});
    }
  }
  std::map<double, std::uint32_t> capacities;
  for (const std::uint32_t link : used_)
    links.kinds.push_back(
        capacities
            .try_emplace(network_.capacity(link), static_cast<std::uint32_t>(capacities.size()))
            .first->second);
  return sim::fold(job, kinds_, &links);
}

SharedLinks JobNetwork::links(const ProgramJob& job, const Folding& folding) const {
  SharedLinks out;
  // One link stands for those that are like it.
  std::vector<std::uint32_t> class_of = folding.link_class_of, first = folding.link_representatives;
  if (class_of.empty())
    for (std::uint32_t link = 0; link < used_.size(); ++link) {
      class_of.push_back(link);
      first.push_back(link);
    }
  for (const std::uint32_t link : first) out.capacities.push_back(network_.capacity(used_[link]));
  // By class of groups and way.
  std::unordered_map<std::uint64_t, std::uint32_t> kinds;
  std::vector<std::map<std::uint32_t, double>> uses;
  for (std::uint32_t group = 0; group < of_group_.size(); ++group) {
    const std::uint32_t group_class = folding.group_class_of[group];
    for (const Traffic& traffic : of_group_[group]) {
      const auto [found, is_new] = kinds.try_emplace(key_of(group_class, traffic.way),
                                                     static_cast<std::uint32_t>(out.kinds.size()));
      if (is_new) {
        // All groups of the class put as much on a port.
        out.kinds.push_back({{}, traffic.ports.flow, traffic.ports.seconds});
        uses.emplace_back();
      }
      for (const LinkLoad& load : traffic.loads)
        if (first[class_of[load.link]] == load.link)
          uses[found->second][class_of[load.link]] += load.bytes;
    }
  }
  for (std::size_t kind = 0; kind < out.kinds.size(); ++kind)
    for (const auto& [link, bytes] : uses[kind]) out.kinds[kind].uses.push_back({link, bytes});
  out.kind_of = [this, kinds = std::move(kinds), calls = job.calls.data(),
                 groups = folding.group_representatives](
                    std::uint32_t group_class,
                    const ProgramCall& call) -> std::optional<std::uint32_t> {
    const auto way =
        ways_.find(key_of(kinds_[groups[group_class]], static_cast<std::uint32_t>(&call - calls)));
    if (way == ways_.end()) return std::nullopt;
    const auto kind = kinds.find(key_of(group_class, way->second));
    if (kind == kinds.end()) return std::nullopt;
    return kind->second;
  };
  return out;
}

}  // namespace lockstep::sim
