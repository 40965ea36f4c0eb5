#include "sim/machine/work_time.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "sim/collectives/collective.h"
#include "sim/network/topology.h"
#include "sim/network/traffic.h"

namespace lockstep::sim {

const Machine::Compute& compute_for(const Machine& machine, const std::string& dtype) {
  LOCKSTEP_CHECK(!machine.compute.empty(), "a machine that computes nothing");
  // The wanted type, then wider ones; if none is listed (or the type is not in this table), the
  // widest that the machine lists, then any.
  static constexpr std::array<std::string_view, 4> kNarrowFirst = {"float16", "bfloat16", "float32",
                                                                   "float64"};
  const auto* wanted = std::find(kNarrowFirst.begin(), kNarrowFirst.end(), dtype);
  for (const auto* type = wanted; type != kNarrowFirst.end(); ++type) {
    if (const auto found = machine.compute.find(std::string(*type)); found != machine.compute.end())
      return found->second;
  }
  for (auto type = kNarrowFirst.rbegin(); type != kNarrowFirst.rend(); ++type) {
    if (const auto found = machine.compute.find(std::string(*type)); found != machine.compute.end())
      return found->second;
  }
  return machine.compute.begin()->second;
}

namespace {

double rated_seconds(const trace::WorkCost& work, const Machine& machine) {
  const double bytes_per_second =
      machine.memory_bandwidth.bytes_per_second() * machine.memory_efficiency;
  double products = 0;
  for (const trace::WorkCost::Flops& flops : work.flops) {
    const Machine::Compute& compute = compute_for(machine, flops.dtype);
    const auto peak = static_cast<double>(compute.peak.per_second);
    products +=
        flops.matmul / (peak * compute.matmul) + flops.convolution / (peak * compute.convolution);
  }
  // Products overlap their own memory traffic; everything else is limited by memory.
  const double device = std::max(products, work.product_bytes / bytes_per_second) +
                        work.memory_bytes / bytes_per_second;
  // The host's part: its launches and dispatches.
  const double host = static_cast<double>(work.kernels) * machine.launch.seconds() +
                      static_cast<double>(work.operations) * machine.dispatch.seconds();
  return machine.launches_hidden ? std::max(device, host) : device + host;
}

}  // namespace

double work_seconds(const trace::WorkCost& work, const Machine& machine) {
  return work.correction * rated_seconds(work, machine);
}

void correct_by_times(trace::RankCosts& costs, const Machine& machine) {
  for (trace::WorkCost& work : costs.work) {
    const double rated = rated_seconds(work, machine);
    // Nothing to scale in segments without a measured time or a rated one.
    if (work.nanos > 0 && rated > 0)
      work.correction = static_cast<double>(work.nanos) * 1e-9 / rated;
  }
}

GroupLayout layout_of(const std::vector<std::int32_t>& members, std::int64_t ranks_per_node) {
  std::map<std::int64_t, std::int64_t> on_node;
  for (const std::int32_t member : members) ++on_node[member / ranks_per_node];
  GroupLayout out;
  out.ranks = static_cast<std::int64_t>(members.size());
  out.nodes = static_cast<std::int64_t>(on_node.size());
  if (on_node.empty()) return out;
  const auto [fewest, most] =
      std::minmax_element(on_node.begin(), on_node.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; });
  out.per_node = fewest->second;
  if (most->second > out.per_node) out.fullest = most->second;
  return out;
}

std::vector<GroupLayout> layouts_of(const ProgramJob& job, std::int64_t ranks_per_node) {
  std::vector<GroupLayout> out;
  for (const ProgramGroup& group : job.groups)
    out.push_back(layout_of(group.members, ranks_per_node));
  return out;
}

std::vector<GroupLayout> layouts_of(const ProgramJob& job, const Machine& machine) {
  std::vector<GroupLayout> out = layouts_of(job, machine.ranks_per_node);
  if (!machine.network || machine.network->hop.value == 0) return out;
  const Result<Network> network =
      Network::make(*machine.network, machine.links, machine.ranks_per_node,
                    static_cast<std::int64_t>(job.ranks.size()));
  if (!network) return out;
  for (std::size_t g = 0; g < out.size(); ++g) add_hops(*network, job.groups[g].members, out[g]);
  return out;
}

std::vector<std::uint32_t> kinds_of(const std::vector<GroupLayout>& layouts) {
  std::map<GroupLayout, std::uint32_t> known;
  std::vector<std::uint32_t> out;
  out.reserve(layouts.size());
  for (const GroupLayout& layout : layouts)
    out.push_back(known.emplace(layout, static_cast<std::uint32_t>(known.size())).first->second);
  return out;
}

namespace {

// c10d's ProcessGroupGloo carries out a reduce-scatter as an all-reduce of the whole buffer, from
// which each rank copies its part (reduce_scatter_tensor_coalesced, torch 2.11 and 2.15).
ProgramCall as_gloo_does(ProgramCall call) {
  if (plain_op(call.op) == trace::Op::reduce_scatter) call.op = trace::Op::all_reduce;
  return call;
}

}  // namespace

Result<Picos> call_time(const ProgramCall& asked, const GroupLayout& layout,
                        const Machine& machine) {
  // Cores are shared where Gloo carries the calls.
  const ProgramCall call = machine.cores ? as_gloo_does(asked) : asked;
  const Result<Price> priced = price({call.op, call.bytes}, layout, machine);
  if (!priced) return priced.error();
  return priced->time;
}

Result<CallCost> call_cost(const ProgramCall& call, const GroupLayout& layout,
                           const Machine& machine) {
  const Result<Picos> time = call_time(call, layout, machine);
  if (!time) return time.error();
  if (!machine.cores) return CallCost{*time};
  // Counts the hops: with no bytes and a latency of 1 ps per hop, the call's time in picoseconds is
  // the number of hops.
  Machine counting = machine;
  counting.measured.clear();
  for (LinkCost& link : counting.links) {
    link.alpha = Picos{1};
    link.gamma.reset();
  }
  ProgramCall empty = call;
  empty.bytes = Bytes{};
  const Result<Picos> hops = call_time(empty, layout, counting);
  if (!hops) return hops.error();
  return CallCost{*time, hops->value};
}

Result<PricedCalls> price_calls(trace::Op op, std::int64_t ranks, const std::vector<Bytes>& sizes,
                                const Machine& machine) {
  PricedCalls out;
  out.machine = machine;
  out.op = op;
  out.layout = packed(ranks, machine.ranks_per_node);
  std::optional<Network> network;
  std::vector<std::int32_t> members;
  if (machine.network) {
    Result<Network> made =
        Network::make(*machine.network, machine.links, machine.ranks_per_node, ranks);
    if (!made) return made.error();
    network = std::move(*made);
    for (std::int32_t r = 0; r < ranks; ++r) members.push_back(r);
    if (machine.network->hop.value > 0) add_hops(*network, members, out.layout);
  }
  std::map<Pattern, std::vector<LinkLoad>> known;
  for (const Bytes bytes : sizes) {
    const Result<Price> one = price({op, bytes}, out.layout, machine);
    if (!one) return one.error();
    const bool barrier = plain_op(op) == trace::Op::barrier;  // it has no buffer
    PricedCall priced{barrier ? Bytes{} : bytes, one->time, one->source, one->chosen, {}, 1, {}};
    const bool sharp = machine.network && machine.network->sharp;
    if (priced.chosen)
      priced.pairs =
          nccl_costs(op, {out.layout.ranks, out.layout.nodes, machine.ranks_per_node, sharp}, bytes,
                     *machine.nccl);
    if (network) {
      const Pattern pattern = pattern_of(op, out.layout, *one, sharp);
      const auto [loads, is_new] = known.try_emplace(pattern);
      if (is_new) {
        const Status checked = check_visits(*network, visits(*network, out.layout.nodes, pattern));
        if (!checked) return checked.error();
        loads->second = traffic(*network, members, op, pattern);
      }
      const Narrowest slowed = narrowest(
          *network, loads->second, static_cast<double>(priced.bytes.value), one->time.seconds());
      priced.slowed = slowed.factor;
      if (slowed.factor > 1) {
        const double picos = static_cast<double>(one->time.value) * slowed.factor;
        priced.time = picos < 9.2e18 ? Picos{std::llround(picos)} : Picos::forever();
        priced.narrowest = network->name(slowed.link);
      }
    }
    out.calls.push_back(std::move(priced));
  }
  return out;
}

}  // namespace lockstep::sim
