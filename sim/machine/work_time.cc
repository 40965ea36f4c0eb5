#include "sim/machine/work_time.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "sim/collectives/closed_form.h"
#include "sim/collectives/collective.h"

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
  out.per_node = on_node.empty() ? 0 : on_node.begin()->second;
  // Unequal nodes: 0 says so.
  for (const auto& [node, ranks] : on_node)
    if (ranks != out.per_node) out.per_node = 0;
  return out;
}

std::vector<GroupLayout> layouts_of(const ProgramJob& job, std::int64_t ranks_per_node) {
  std::vector<GroupLayout> out;
  for (const ProgramGroup& group : job.groups)
    out.push_back(layout_of(group.members, ranks_per_node));
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

bool goes_in_rings(trace::Op op, const GroupLayout& layout) {
  const trace::Op plain = plain_op(op);
  return layout.nodes > 1 && layout.per_node > 0 &&
         (plain == trace::Op::all_reduce || plain == trace::Op::all_gather ||
          plain == trace::Op::reduce_scatter);
}

namespace {

Error too_long() { return {"a call takes longer than 106 days", {}, "check the machine's links"}; }

// A ring over all ranks of a group with the same number on each node. Every hop between nodes uses
// the links of all ranks of a node; the latency is that of a ring inside and of a tree between
// nodes.
Result<Picos> time_over_nodes(trace::Op op, const GroupLayout& layout, Bytes bytes,
                              const Links& links) {
  const std::int64_t rounds = op == trace::Op::all_reduce ? 2 : 1;
  // Clamped, so that the product with per_node does not overflow.
  const std::int64_t most = std::numeric_limits<std::int64_t>::max() / layout.per_node;
  LinkCost across = links.back();
  across.beta.bits_per_second =
      std::min(links.front().beta.bits_per_second,
               std::min(across.beta.bits_per_second, most) * layout.per_node);
  const Rational part = Rational(bytes.value) * Rational(layout.ranks - 1, layout.ranks);
  const Rational sent = part * Rational(rounds);
  const Rational reduced = op == trace::Op::all_gather ? Rational(0) : part;
  const Path path = {
      {0, Rational(rounds) * Rational(layout.per_node - 1), Rational(0), Rational(0)},
      {1, Rational(rounds) * Rational(log2_ceil(layout.nodes)), sent, reduced}};
  const auto time = exact_time(path, {links.front(), across}).rounded();
  if (!time) return too_long();
  return Picos{*time};
}

// c10d's ProcessGroupGloo carries out a reduce-scatter as an all-reduce of the whole buffer, from
// which each rank copies its part (reduce_scatter_tensor_coalesced, torch 2.11 and 2.15).
ProgramCall as_gloo_does(ProgramCall call) {
  if (plain_op(call.op) == trace::Op::reduce_scatter) call.op = trace::Op::all_reduce;
  return call;
}

}  // namespace

std::optional<NcclCost> nccl_call(const ProgramCall& call, const GroupLayout& layout,
                                  const Machine& machine) {
  const bool answers = machine.nccl && nccl_tunes(call.op) && layout.ranks >= 2 &&
                       layout.per_node > 0 && (layout.nodes == 1 || machine.nccl->between);
  if (!answers) return std::nullopt;
  const NcclGroup group{layout.ranks, layout.nodes, machine.ranks_per_node};
  return nccl_choice(nccl_costs(call.op, group, call.bytes, *machine.nccl));
}

Result<Picos> call_time(const ProgramCall& asked, const GroupLayout& layout,
                        const Machine& machine) {
  if (const auto nccl = nccl_call(asked, layout, machine)) {
    const double picos = nccl->seconds * 1e12;
    if (picos < static_cast<double>(Picos::forever().value)) return Picos{std::llround(picos)};
    return too_long();
  }
  // Cores are shared where Gloo carries the calls.
  const ProgramCall call = machine.cores ? as_gloo_does(asked) : asked;
  if (layout.nodes <= 1)
    return default_time(call.op, layout.ranks, call.bytes, machine.links.front());
  if (machine.links.size() == 2 && goes_in_rings(call.op, layout))
    return time_over_nodes(plain_op(call.op), layout, call.bytes, machine.links);
  return default_time(call.op, layout.ranks, call.bytes, machine.links.back());
}

Result<CallCost> call_cost(const ProgramCall& call, const GroupLayout& layout,
                           const Machine& machine) {
  const Result<Picos> time = call_time(call, layout, machine);
  if (!time) return time.error();
  if (!machine.cores) return CallCost{*time};
  // Counts the hops: with no bytes and a latency of 1 ps per hop, the call's time in picoseconds is
  // the number of hops.
  Machine counting = machine;
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
  std::vector<std::int32_t> members(static_cast<std::size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  out.layout = layout_of(members, machine.ranks_per_node);
  for (const Bytes bytes : sizes) {
    ProgramCall call;
    call.op = op;
    call.bytes = bytes;
    const Result<Picos> time = call_time(call, out.layout, machine);
    if (!time) return time.error();
    const bool barrier = plain_op(op) == trace::Op::barrier;  // it has no buffer
    PricedCall priced{barrier ? Bytes{} : bytes, *time, nccl_call(call, out.layout, machine), {}};
    if (priced.chosen)
      priced.pairs = nccl_costs(op, {out.layout.ranks, out.layout.nodes, machine.ranks_per_node},
                                bytes, *machine.nccl);
    out.calls.push_back(std::move(priced));
  }
  return out;
}

}  // namespace lockstep::sim
