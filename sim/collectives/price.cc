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

bool is_direct(trace::Op op) { return default_algorithm(op) == Algorithm::direct; }

// The messages of a rank to each other one that its nodes separate, and to those of its own node,
// of the one with the fewest ranks: its messages are the ones that leave a node most often.
struct Messages {
  std::int64_t inside = 0, between = 0;
};
Messages direct_messages(trace::Op op, const GroupLayout& layout) {
  if (plain_op(op) == trace::Op::send) return {0, 1};
  return {layout.per_node - 1, layout.ranks - layout.per_node};
}

// One message to each other rank, of one part of the buffer: over the links that lead there.
Result<Picos> direct_over_nodes(const Call& call, const GroupLayout& layout, const Links& links) {
  const Messages messages = direct_messages(call.op, layout);
  const Rational inside(messages.inside), between(messages.between);
  const Rational part = Rational(call.bytes.value) * Rational(1, layout.ranks);
  const Path path = {{0, inside, inside * part, Rational(0)},
                     {1, between, between * part, Rational(0)}};
  const auto time = exact_time(path, links).rounded();
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
  if (links.size() == 2 && is_direct(call.op) && plain_op(call.op) != trace::Op::send)
    return direct_over_nodes(call, layout, links);
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

// Measurements of a number of ranks, or of the nearest ones below and above on the same level of
// links.
struct NearestMeasured {
  const MeasuredCalls* below = nullptr;
  const MeasuredCalls* above = nullptr;

  // A value for `ranks`, linear in the ranks between those of both.
  template <class Value>
  double between(std::int64_t ranks, const Value& value_of) const {
    if (below == above) return value_of(*below);
    const double share = static_cast<double>(ranks - below->ranks) /
                         static_cast<double>(above->ranks - below->ranks);
    return (1 - share) * value_of(*below) + share * value_of(*above);
  }
};

// Empty: nothing was measured of such a group.
std::optional<NearestMeasured> nearest_measured(const GroupLayout& layout,
                                                const Interconnect& machine) {
  const GroupLayout dense = packed(layout.ranks, machine.ranks_per_node);
  if (layout.nodes != dense.nodes || layout.per_node != dense.per_node ||
      layout.fullest != dense.fullest)
    return std::nullopt;
  // Nodes of another size (a plan's gpus_per_node) put the same ranks elsewhere.
  if (machine.as_measured == nullptr ||
      machine.as_measured->ranks_per_node != machine.ranks_per_node)
    return std::nullopt;
  NearestMeasured out;
  for (const MeasuredCalls& calls : machine.measured) {
    const bool same_level = (calls.ranks > machine.ranks_per_node) == (layout.nodes > 1);
    if (!same_level) continue;
    if (calls.ranks <= layout.ranks && (out.below == nullptr || calls.ranks > out.below->ranks))
      out.below = &calls;
    if (calls.ranks >= layout.ranks && (out.above == nullptr || calls.ranks < out.above->ranks))
      out.above = &calls;
  }
  if (out.below == nullptr || out.above == nullptr) return std::nullopt;
  return out;
}

// The buffer of `to` ranks of which an all-reduce moves as many bytes over each link as of one of
// `from` ranks: 2(n-1)/n of it.
double same_volume(double bytes, std::int64_t from, std::int64_t to) {
  const trace::Op op = trace::Op::all_reduce;
  return from == to ? bytes : bytes * bus_factor(op, from) / bus_factor(op, to);
}

// Of an all-reduce.
MeasuredSeconds measured_seconds(Bytes size, std::int64_t ranks, const NearestMeasured& measured) {
  for (const MeasuredCalls* calls : {measured.below, measured.above}) {
    const double least = same_volume(answers_from(*calls), calls->ranks, ranks);
    size.value = std::max(size.value, static_cast<std::int64_t>(least));
  }
  const auto bytes = static_cast<double>(size.value);
  return {measured.between(ranks,
                           [&](const MeasuredCalls& calls) {
                             return on_curve(calls, same_volume(bytes, ranks, calls.ranks));
                           }),
          size};
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
    return static_cast<double>(direct_messages(op, layout).between) * layout.pair_hops;
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
  Price out{*time + *between, nccl ? PriceSource::tuning : PriceSource::formula, nccl};
  if (machine.nccl && is_direct(call.op)) {
    const bool over_nodes = layout.nodes > 1 && machine.nccl->between;
    const Result<Picos> start =
        picos_of(nccl_start(over_nodes ? *machine.nccl->between : machine.nccl->inside));
    if (!start) return start.error();
    out.time = out.time + *start;
  }
  return out;
}

bool same_algorithm(const Price& a, const Price& b) {
  return a.chosen.has_value() == b.chosen.has_value() &&
         (!a.chosen || a.chosen->algorithm == b.chosen->algorithm);
}

// How many times as long as by the model the bytes of an all-reduce take, by the two largest sizes
// of one group. 1 where NCCL carries these all-reduces by another algorithm than `call`, or where
// they are so small that latency counts.
Result<double> bytes_off_model(const Price& call, const MeasuredCalls& calls,
                               const Interconnect& machine) {
  constexpr double kLarge = 4;  // times as long as a call without bytes
  const GroupLayout layout = packed(calls.ranks, machine.ranks_per_node);
  const auto model_of = [&](Bytes bytes) {
    return modelled({trace::Op::all_reduce, bytes}, layout, *machine.as_measured, 1);
  };
  const MeasuredCalls::Point& small = calls.points[calls.points.size() - 2];
  const MeasuredCalls::Point& large = calls.points.back();
  const Result<Price> of_small = model_of(small.bytes), of_large = model_of(large.bytes),
                      of_none = model_of(Bytes{});
  for (const Result<Price>* one : {&of_small, &of_large, &of_none})
    if (!*one) return one->error();
  const double measured = large.time.seconds() - small.time.seconds();
  const double model = of_large->time.seconds() - of_small->time.seconds();
  const bool tells = measured > 0 && model > 0 && same_algorithm(*of_large, call) &&
                     of_large->time.seconds() > kLarge * of_none->time.seconds();
  // The channels of the file are never too slow: wiring has no more than NCCL finds.
  return tells ? std::max(1.0, measured / model) : 1;
}

// Whether the operation may go over the channels of an all-reduce: half of it, or from or to one
// rank.
bool takes_its_channels(trace::Op op) {
  switch (plain_op(op)) {
    case trace::Op::all_gather:
    case trace::Op::reduce_scatter:
    case trace::Op::broadcast:
    case trace::Op::reduce:
      return true;
    default:
      return false;
  }
}

// What the price of a model depends on.
Interconnect unmeasured(const Interconnect& machine) {
  Interconnect out;
  out.ranks_per_node = machine.ranks_per_node;
  out.links = machine.links;
  out.nccl = machine.nccl;
  out.network = machine.network;
  return out;
}

void scale_channels(NcclLevel& level, double speed) {
  const auto scale = [&](NcclChannels& channels) {
    channels.each = at_speed({{Picos{}, channels.each, std::nullopt}}, speed)[0].beta;
  };
  scale(level.ring);
  if (level.tree) scale(*level.tree);
  if (level.nvls) scale(*level.nvls);
}

// A call that takes the same way as the measured all-reduces: its bytes move as fast as theirs.
Result<Price> as_fast(const Price& model, const Call& call, const GroupLayout& layout,
                      const Interconnect& machine, double speed, const NearestMeasured& measured) {
  std::optional<Error> error;
  const double factor = measured.between(layout.ranks, [&](const MeasuredCalls& calls) {
    const Result<double> off = bytes_off_model(model, calls, machine);
    if (!off) error = off.error();
    return off ? *off : 1;
  });
  if (error) return *error;
  if (factor == 1) return model;
  // NCCL sees the wiring: it chooses by the channels that it has found there.
  Interconnect wired = unmeasured(machine);
  const bool over_nodes = layout.nodes > 1;
  wired.links = at_speed(wired.links, 1 / factor);
  if (wired.nccl)
    scale_channels(over_nodes ? *wired.nccl->between : wired.nccl->inside, 1 / factor);
  return modelled(call, layout, wired, speed);
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
  const bool barrier = call.op == trace::Op::barrier || call.op == trace::Op::finalize;
  if (barrier && machine.nccl)
    return price({trace::Op::all_reduce, kNcclBarrier}, layout, machine, speed);
  const Result<Price> model = modelled(call, layout, machine, speed);
  if (!model) return model;
  const bool all_reduce = plain_op(call.op) == trace::Op::all_reduce;
  if (!all_reduce && !takes_its_channels(call.op)) return model;
  const std::optional<NearestMeasured> nearest = nearest_measured(layout, machine);
  if (!nearest) return model;
  if (!all_reduce) return as_fast(*model, call, layout, machine, speed, *nearest);
  const MeasuredSeconds measured = measured_seconds(call.bytes, layout.ranks, *nearest);
  // 1 for a call that was measured, on the machine that was.
  const Result<Price> then = modelled({call.op, measured.bytes}, layout, *machine.as_measured, 1);
  if (!then) return then;
  const double changed = then->time.value == 0 ? 1 : model->time.seconds() / then->time.seconds();
  const Result<Picos> time = picos_of(measured.seconds * changed);
  if (!time) return time.error();
  Price out{*time, PriceSource::measured, model->chosen};
  // Smaller than what was measured inside a node: no longer than all ranks of two nodes take.
  if (measured.bytes.value > call.bytes.value && layout.nodes == 1 && machine.links.size() > 1) {
    const std::int64_t node = machine.ranks_per_node;
    const Result<Price> most = price(call, packed(2 * node, node), machine, speed);
    if (most) out.time = std::min(out.time, most->time);
  }
  return out;
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
