#include "sim/collectives/price.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "base/rational.h"
#include "sim/collectives/closed_form.h"

namespace lockstep::sim {
namespace {

Error too_long() { return {"a call takes longer than 106 days", {}, "check the machine's links"}; }

// A ring over all ranks of a group. Every hop between nodes uses the links of all ranks of a node,
// of the node with the fewest; the latency is that of a ring inside the fullest node and of a tree
// between nodes.
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
      {0, Rational(rounds) * Rational(layout.on_fullest() - 1), Rational(0), Rational(0)},
      {1, Rational(rounds) * Rational(log2_ceil(layout.nodes)), sent, reduced}};
  const auto time = exact_time(path, {links.front(), across}).rounded();
  if (!time) return too_long();
  return Picos{*time};
}

// Each node's ranks reduce to a part each, which goes to the switches and comes back reduced.
Result<Picos> time_in_network(const GroupLayout& layout, Bytes bytes, const Links& links) {
  const std::int64_t most = std::numeric_limits<std::int64_t>::max() / layout.per_node;
  LinkCost across = links.back();
  across.beta.bits_per_second = std::min(across.beta.bits_per_second, most) * layout.per_node;
  if (layout.on_fullest() > 1)
    across.beta.bits_per_second =
        std::min(across.beta.bits_per_second, links.front().beta.bits_per_second);
  const Path path = {{0, Rational(2) * Rational(layout.on_fullest() - 1), Rational(0), Rational(0)},
                     {1, Rational(2), Rational(bytes.value), Rational(0)}};
  const auto time = exact_time(path, {links.front(), across}).rounded();
  if (!time) return too_long();
  return Picos{*time};
}

Result<Picos> formula_time(const Call& call, const GroupLayout& layout, const Links& links,
                           bool sharp) {
  if (layout.nodes <= 1) return default_time(call.op, layout.ranks, call.bytes, links.front());
  if (sharp && goes_in_rings(call.op, layout) && plain_op(call.op) == trace::Op::all_reduce)
    return time_in_network(layout, call.bytes, links);
  if (links.size() == 2 && goes_in_rings(call.op, layout))
    return time_over_nodes(plain_op(call.op), layout, call.bytes, links);
  return default_time(call.op, layout.ranks, call.bytes, links.back());
}

Links at_speed(Links links, double speed) {
  for (LinkCost& link : links) {
    // At least 1 bit/s, and representable.
    const double bits = static_cast<double>(link.beta.bits_per_second) * speed;
    link.beta.bits_per_second = static_cast<std::int64_t>(std::clamp(bits, 1.0, 9e18));
  }
  return links;
}

// Seconds by one group's measurements: see the three cases in the header.
double on_curve(const MeasuredCalls& calls, double bytes) {
  struct Point {
    double bytes, seconds;
  };
  const auto at = [&](std::size_t i) {
    return Point{static_cast<double>(calls.points[i].bytes.value), calls.points[i].time.seconds()};
  };
  const std::size_t count = calls.points.size();
  // The segment that holds `bytes`, or the nearest one.
  std::size_t next = 1;
  while (next + 1 < count && at(next).bytes < bytes) ++next;
  const Point a = at(next - 1);
  const Point b = at(next);
  // At small sizes the line may fall to 0 or below; a tenth of the first point is the floor.
  if (count == 2)
    return std::max(a.seconds / 10,
                    a.seconds + (b.seconds - a.seconds) * (bytes - a.bytes) / (b.bytes - a.bytes));
  // Before the first point latency dominates: the time stays. After the last one bandwidth does: it
  // grows in proportion.
  if (bytes <= at(0).bytes) return at(0).seconds;
  if (bytes >= b.bytes) return b.seconds * bytes / b.bytes;
  // A straight line in the logarithms of size and time.
  const double share = std::log(bytes / a.bytes) / std::log(b.bytes / a.bytes);
  return a.seconds * std::pow(b.seconds / a.seconds, share);
}

// What measurements say of an all-reduce.
struct MeasuredSeconds {
  double seconds = 0;  // of a call of this size …
  Bytes bytes;         // … the call's, or the smallest that the measurements say something of
};

// The smallest size that a curve answers for. A line through two points is latency and bandwidth
// there, and too slow for calls so small that NCCL takes another protocol.
double answers_from(const MeasuredCalls& calls) {
  constexpr double kExtended = 4;
  return calls.points.size() == 2
             ? static_cast<double>(calls.points.front().bytes.value) / kExtended
             : 0;
}

// By measurements of this number of ranks, or of the nearest ones below and above on the same level
// of links. Empty: nothing was measured.
std::optional<MeasuredSeconds> measured_seconds(const Call& call, const GroupLayout& layout,
                                                const Interconnect& machine) {
  const GroupLayout dense = packed(layout.ranks, machine.ranks_per_node);
  if (plain_op(call.op) != trace::Op::all_reduce || layout.nodes != dense.nodes ||
      layout.per_node != dense.per_node || layout.fullest != dense.fullest)
    return std::nullopt;
  // Nodes of another size (a plan's gpus_per_node) put the same ranks elsewhere.
  if (machine.as_measured == nullptr ||
      machine.as_measured->ranks_per_node != machine.ranks_per_node)
    return std::nullopt;
  const MeasuredCalls* below = nullptr;
  const MeasuredCalls* above = nullptr;
  for (const MeasuredCalls& calls : machine.measured) {
    const bool same_level = (calls.ranks > machine.ranks_per_node) == (layout.nodes > 1);
    if (!same_level) continue;
    if (calls.ranks <= layout.ranks && (below == nullptr || calls.ranks > below->ranks))
      below = &calls;
    if (calls.ranks >= layout.ranks && (above == nullptr || calls.ranks < above->ranks))
      above = &calls;
  }
  if (below == nullptr || above == nullptr) return std::nullopt;
  // An all-reduce of n ranks moves 2(n-1)/n of its buffer over each link.
  const auto same_volume = [&](double bytes, std::int64_t from, std::int64_t to) {
    return from == to ? bytes : bytes * bus_factor(call.op, from) / bus_factor(call.op, to);
  };
  Bytes size = call.bytes;
  for (const MeasuredCalls* calls : {below, above}) {
    const double least = same_volume(answers_from(*calls), calls->ranks, layout.ranks);
    size.value = std::max(size.value, static_cast<std::int64_t>(least));
  }
  const auto bytes = static_cast<double>(size.value);
  if (below == above) return MeasuredSeconds{on_curve(*below, bytes), size};
  const double share = static_cast<double>(layout.ranks - below->ranks) /
                       static_cast<double>(above->ranks - below->ranks);
  const auto at_volume = [&](const MeasuredCalls& calls) {
    return on_curve(calls, same_volume(bytes, layout.ranks, calls.ranks));
  };
  return MeasuredSeconds{(1 - share) * at_volume(*below) + share * at_volume(*above), size};
}

Result<Picos> picos_of(double seconds) {
  const double picos = seconds * 1e12;
  if (!(picos < static_cast<double>(Picos::forever().value))) return too_long();
  return Picos{std::llround(picos)};
}

// Links between switches that the call's steps pass one after the other, by the algorithm that
// carries it.
double links_passed(trace::Op op, const GroupLayout& layout, const Interconnect& machine,
                    const std::optional<NcclCost>& nccl) {
  const double rounds = plain_op(op) == trace::Op::all_reduce ? 2 : 1;
  const auto nodes = static_cast<double>(layout.nodes);
  if (nccl) {
    if (nccl->algorithm == NcclAlgorithm::ring) return rounds * (nodes - 1) * layout.ring_hops;
    const bool tree =
        nccl->algorithm == NcclAlgorithm::tree || nccl->algorithm == NcclAlgorithm::nvls_tree;
    return tree ? 2 * std::floor(std::log2(nodes)) * layout.pair_hops : layout.most_hops;
  }
  if (goes_in_rings(op, layout)) {
    if (machine.network->sharp && rounds == 2) return layout.most_hops;
    if (machine.links.size() == 2)
      return rounds * static_cast<double>(log2_ceil(layout.nodes)) * layout.pair_hops;
  }
  const std::optional<Algorithm> algorithm = default_algorithm(op);
  const auto others = static_cast<double>(layout.ranks - 1);
  if (algorithm == Algorithm::ring) return rounds * others * layout.ring_hops;
  if (algorithm == Algorithm::direct)
    return (plain_op(op) == trace::Op::send ? 1 : others) * layout.pair_hops;
  return static_cast<double>(log2_ceil(layout.ranks)) * layout.pair_hops;
}

// What the links between switches add to the latency, in seconds.
double seconds_between_switches(trace::Op op, const GroupLayout& layout,
                                const Interconnect& machine, const std::optional<NcclCost>& nccl) {
  if (!machine.network || machine.network->hop.value == 0 || layout.nodes < 2) return 0;
  return machine.network->hop.seconds() * links_passed(op, layout, machine, nccl);
}

// By NCCL's tuning where it applies, else by formula.
Result<Price> modelled(const Call& call, const GroupLayout& layout, const Interconnect& machine,
                       double speed) {
  const auto nccl = nccl_call(call, layout, machine, speed);
  const bool sharp = machine.network && machine.network->sharp;
  const Result<Picos> time =
      nccl         ? picos_of(nccl->seconds)
      : speed == 1 ? formula_time(call, layout, machine.links, sharp)
                   : formula_time(call, layout, at_speed(machine.links, speed), sharp);
  if (!time) return time.error();
  const Result<Picos> between = picos_of(seconds_between_switches(call.op, layout, machine, nccl));
  if (!between) return between.error();
  return Price{*time + *between, nccl ? PriceSource::tuning : PriceSource::formula, nccl};
}

}  // namespace

GroupLayout packed(std::int64_t ranks, std::int64_t ranks_per_node) {
  const std::int64_t nodes = (ranks + ranks_per_node - 1) / ranks_per_node;
  GroupLayout out{ranks, nodes, ranks - (nodes - 1) * ranks_per_node};  // on the last one
  if (nodes > 1 && out.per_node < ranks_per_node) out.fullest = ranks_per_node;
  return out;
}

std::string_view source_name(PriceSource source) {
  static constexpr std::array<std::string_view, 3> kNames = {"its algorithm's formula",
                                                             "NCCL's tuning", "measurements"};
  return kNames[static_cast<std::size_t>(source)];
}

bool goes_in_rings(trace::Op op, const GroupLayout& layout) {
  const trace::Op plain = plain_op(op);
  return layout.nodes > 1 && (plain == trace::Op::all_reduce || plain == trace::Op::all_gather ||
                              plain == trace::Op::reduce_scatter);
}

std::optional<NcclCost> nccl_call(const Call& call, const GroupLayout& layout,
                                  const Interconnect& machine, double speed) {
  const bool answers = machine.nccl && nccl_tunes(call.op) && layout.ranks >= 2 &&
                       (layout.nodes == 1 || machine.nccl->between);
  if (!answers) return std::nullopt;
  const NcclGroup group{layout.ranks,           layout.nodes,
                        machine.ranks_per_node, machine.network && machine.network->sharp,
                        layout.per_node,        layout.on_fullest()};
  return nccl_choice(nccl_costs(call.op, group, call.bytes, *machine.nccl, speed));
}

Result<Price> price(const Call& call, const GroupLayout& layout, const Interconnect& machine,
                    double speed) {
  if (layout.ranks <= 1) return Price{};
  const Result<Price> model = modelled(call, layout, machine, speed);
  if (!model) return model;
  const std::optional<MeasuredSeconds> measured = measured_seconds(call, layout, machine);
  if (!measured) return model;
  // 1 for a call that was measured, on the machine that was.
  const Result<Price> then = modelled({call.op, measured->bytes}, layout, *machine.as_measured, 1);
  if (!then) return then;
  const double changed = then->time.value == 0 ? 1 : model->time.seconds() / then->time.seconds();
  const Result<Picos> time = picos_of(measured->seconds * changed);
  if (!time) return time.error();
  return Price{*time, PriceSource::measured, model->chosen};
}

void set_measured(Interconnect& machine, std::vector<MeasuredCalls> measured) {
  machine.measured.clear();
  auto as_measured = std::make_shared<Interconnect>(machine);
  as_measured->network.reset();
  machine.as_measured = std::move(as_measured);
  machine.measured = std::move(measured);
}

void measured_on(Interconnect& machine, const Interconnect& original) {
  if (original.as_measured != nullptr) machine.as_measured = original.as_measured;
}

}  // namespace lockstep::sim
