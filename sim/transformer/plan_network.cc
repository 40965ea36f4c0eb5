#include "sim/transformer/plan_network.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "sim/network/traffic.h"

namespace lockstep::sim {
namespace {

std::vector<std::int32_t> members_of(const Group& group, std::int64_t first) {
  std::vector<std::int32_t> out;
  out.reserve(static_cast<std::size_t>(group.ranks));
  for (int i = 0; i < group.ranks; ++i)
    out.push_back(static_cast<std::int32_t>(first + std::int64_t{i} * group.stride));
  return out;
}

// The traffic of all groups like this one among GPUs `first` … `last` - 1. Messages go from every
// stage to the next one.
std::vector<LinkLoad> of_all(const Network& network, const Group& group, std::int64_t first,
                             std::int64_t last, trace::Op op, Pattern pattern) {
  std::vector<std::vector<LinkLoad>> out;
  if (op == trace::Op::send) {
    for (std::int64_t from = first; from < last; ++from) {
      const bool of_last = from + group.stride >= last;
      if (of_last && !group.wraps) break;
      const std::int64_t to = of_last ? from + group.stride - (last - first) : from + group.stride;
      out.push_back(traffic(
          network, {static_cast<std::int32_t>(from), static_cast<std::int32_t>(to)}, op, pattern));
    }
    return sum_of(out);
  }
  const std::int64_t block = std::int64_t{group.ranks} * group.stride;
  for (std::int64_t begin = first; begin + block <= last; begin += block)
    for (int i = 0; i < group.stride; ++i)
      out.push_back(traffic(network, members_of(group, begin + i), op, pattern));
  return sum_of(out);
}

// Messages of GPUs begin … end - 1 of a range, each to the GPU at the same share of another range.
std::vector<LinkLoad> messages(const Network& network, const GpuRange& from, const GpuRange& to,
                               std::int64_t begin, std::int64_t end) {
  std::vector<std::vector<LinkLoad>> out;
  for (std::int64_t i = begin; i < end; ++i) {
    const auto source = static_cast<std::int32_t>(from.first + i);
    const auto target = static_cast<std::int32_t>(to.first + i * to.count / from.count);
    if (source != target)
      out.push_back(traffic(network, {source, target}, trace::Op::send, Pattern::message));
  }
  return sum_of(out);
}

Result<Network> network_of(const CostParameters& cost, std::int64_t ranks) {
  return Network::make(*cost.network, cost.links, cost.ranks_per_node, ranks);
}

// What calls of a step's program put on links, in bytes.
struct CallLoads {
  std::uint32_t group = 0, call = 0;
  std::vector<LinkLoad> loads;
};

// Links on which all calls put as much, and that carry as much, fill up together: one of them
// stands for all.
StepLinks folded(const Network& network, const std::vector<CallLoads>& calls) {
  StepLinks out;
  std::map<std::uint32_t, std::vector<std::pair<std::uint32_t, double>>> by_link;
  for (std::uint32_t kind = 0; kind < calls.size(); ++kind) {
    const PortLoad ports = port_load(network, calls[kind].loads);
    out.kinds.push_back({{}, ports.flow, ports.seconds});
    out.kind_of[{calls[kind].group, calls[kind].call}] = kind;
    for (const LinkLoad& load : calls[kind].loads)
      by_link[load.link].emplace_back(kind, load.bytes);
  }
  std::map<std::pair<double, std::vector<std::pair<std::uint32_t, double>>>, std::uint32_t> known;
  for (auto& [link, loads] : by_link)
    known.try_emplace({network.capacity(link), std::move(loads)}, 0);
  for (const auto& [key, unused] : known) {
    const auto number = static_cast<std::uint32_t>(out.capacities.size());
    out.capacities.push_back(key.first);
    for (const auto& [kind, bytes] : key.second) out.kinds[kind].uses.push_back({number, bytes});
  }
  return out;
}

}  // namespace

Status check_network(std::int64_t ranks, const CostParameters& cost) {
  if (!cost.network) return Status::ok();
  const Result<Network> network = network_of(cost, ranks);
  return network ? Status::ok() : Status(network.error());
}

double crowding(const CostParameters& cost, const Call& call, const Group& group,
                const GroupLayout& layout, const Price& price, double seconds) {
  if (!cost.network || layout.nodes < 2 || group.all < group.ranks) return 1;
  const Result<Network> network = network_of(cost, group.all);
  if (!network) return 1;
  const Pattern pattern = pattern_of(call.op, layout, price, cost.network->sharp);
  return narrowest(*network, of_all(*network, group, 0, group.all, call.op, pattern),
                   static_cast<double>(call.bytes.value), seconds)
      .factor;
}

void add_hops(const CostParameters& cost, const Group& group, GroupLayout& layout) {
  if (!cost.network || cost.network->hop.value == 0 || layout.nodes < 2) return;
  const Result<Network> network = network_of(cost, std::int64_t{group.ranks} * group.stride);
  if (network) add_hops(*network, members_of(group, 0), layout);
}

namespace {

double fullest(const Network& network, const std::vector<LinkLoad>& loads) {
  double out = 0;
  // Ports are priced by the call alone.
  for (const LinkLoad& load : loads)
    if (!network.is_port(load.link)) out = std::max(out, load.bytes / network.capacity(load.link));
  return out;
}

}  // namespace

double fullest_link(const CostParameters& cost, std::int64_t gpus, const GpuRange& from,
                    const GpuRange& to) {
  if (!cost.network) return 0;
  const Result<Network> network = network_of(cost, gpus);
  return network ? fullest(*network, messages(*network, from, to, 0, from.count)) : 0;
}

double fullest_link(const CostParameters& cost, std::int64_t gpus, const GpuRange& range,
                    trace::Op op, const Group& group) {
  if (!cost.network || group.ranks < 2) return 0;
  const Result<Network> network = network_of(cost, gpus);
  constexpr double kLarge = 1 << 26U;  // bytes: so many that latencies do not decide the algorithm
  const PricedGroup priced = price_group(cost, op, kLarge, group);
  if (!network || !priced.price || priced.layout.nodes < 2) return 0;
  return fullest(*network,
                 of_all(*network, group, range.first, range.first + range.count, op,
                        pattern_of(op, priced.layout, *priced.price, cost.network->sharp)));
}

StageOnNetwork stage_on_network(const GpuRange& gpus,
                                const std::vector<PlannedExchange>& exchanges) {
  StageOnNetwork out{gpus, {}};
  for (const PlannedExchange& exchange : exchanges) out.exchanges.push_back({exchange.calls, gpus});
  return out;
}

StepLinks step_links(const CostParameters& cost, std::int64_t gpus, const StepProgram& program,
                     const std::vector<StageOnNetwork>& stages, double message_bytes,
                     const std::vector<std::int32_t>& class_of) {
  const Network network = *network_of(cost, gpus);
  std::vector<CallLoads> calls;
  std::set<std::pair<std::uint32_t, std::uint32_t>> known;  // stages can have a call together
  for (std::size_t stage = 0; stage < stages.size(); ++stage)
    for (std::size_t x = 0; x < stages[stage].exchanges.size(); ++x) {
      const auto& [exchange, range] = stages[stage].exchanges[x];
      const ExchangeIndex& index = program.exchanges[stage][x];
      for (const auto& [call, number] :
           {std::pair(exchange.gather, index.gather), {exchange.reduce, index.reduce}}) {
        if (call.bytes == 0 || exchange.group.ranks < 2) continue;
        if (!known.emplace(index.group, number).second) continue;
        const PricedGroup priced = price_group(cost, call.op, call.bytes, exchange.group);
        if (!priced.price) continue;
        const Pattern pattern =
            pattern_of(call.op, priced.layout, *priced.price, cost.network->sharp);
        calls.push_back({index.group, number,
                         of_all(network, exchange.group, range.first, range.first + range.count,
                                call.op, pattern)});
        for (LinkLoad& load : calls.back().loads) load.bytes *= call.bytes;
      }
    }
  if (program.call_times[kMessageCall].value == 0) return folded(network, calls);
  // Messages of one direction between two stages of a replica.
  const auto replicas = static_cast<std::int64_t>(class_of.size());
  for (std::size_t g = program.first_channel; g < program.job.groups.size(); ++g) {
    const std::vector<std::int32_t>& ends = program.job.groups[g].members;
    if (ends[0] == ends[1]) continue;
    const auto stage_count = static_cast<std::int32_t>(stages.size());
    const GpuRange& from = stages[static_cast<std::size_t>(ends[0] % stage_count)].gpus;
    const GpuRange& to = stages[static_cast<std::size_t>(ends[1] % stage_count)].gpus;
    std::vector<std::vector<LinkLoad>> all;
    // Replicas that differ have messages of their own.
    for (std::int64_t replica = 0; replica < replicas; ++replica)
      if (class_of[static_cast<std::size_t>(replica)] == ends[0] / stage_count)
        all.push_back(messages(network, from, to, replica * from.count / replicas,
                               (replica + 1) * from.count / replicas));
    calls.push_back({static_cast<std::uint32_t>(g), kMessageCall, sum_of(all)});
    for (LinkLoad& load : calls.back().loads) load.bytes *= message_bytes;
  }
  return folded(network, calls);
}

}  // namespace lockstep::sim
