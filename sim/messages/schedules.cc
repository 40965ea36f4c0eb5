#include "sim/messages/schedules.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "sim/collectives/trees.h"
#include "sim/messages/step_schedules.h"
#include "sim/messages/tree_schedules.h"

namespace lockstep::sim {
namespace {

using std::make_unique;

Rational part(const Collective& c, std::int64_t parts) {
  return Rational(c.bytes.value) * Rational(1, parts);
}

// Steps around a ring of all ranks: the first `reducing` of them reduce what arrives.
StepSchedule::Steps around(std::int64_t steps, std::int64_t reducing) {
  StepSchedule::Steps out;
  for (std::int64_t k = 0; k < steps; ++k)
    out.push_back({StepSchedule::Partner::neighbour, 1, 0, k < reducing});
  return out;
}

// Message k goes to the rank k+1 further on.
StepSchedule::Steps to_everybody(const Collective& c, bool reduces) {
  StepSchedule::Steps out;
  for (std::int64_t k = 1; k < c.ranks; ++k)
    out.push_back({StepSchedule::Partner::neighbour, k, 0, reduces});
  return out;
}

std::unique_ptr<Schedule> recursive_doubling(const Collective& c) {
  StepSchedule::Steps steps;
  const std::int64_t count = log2_ceil(c.ranks);
  if (c.op == Op::barrier) {
    for (std::int64_t k = 0; k < count; ++k)
      steps.push_back({StepSchedule::Partner::neighbour, std::int64_t{1} << k, 0, false});
    return make_unique<StepSchedule>(c.ranks, std::vector<Rational>{0}, std::move(steps));
  }
  const bool reduces = c.op == Op::all_reduce;
  std::vector<Rational> sizes;
  for (std::int64_t k = 0; k < count; ++k) {
    sizes.push_back(reduces ? Rational(c.bytes.value) : part(c, c.ranks >> k));
    steps.push_back({StepSchedule::Partner::exchange, std::int64_t{1} << k,
                     static_cast<std::uint32_t>(k), reduces});
  }
  return make_unique<StepSchedule>(c.ranks, std::move(sizes), std::move(steps));
}

std::unique_ptr<Schedule> halving_doubling(const Collective& c) {
  StepSchedule::Steps steps;
  std::vector<Rational> sizes;
  for (std::int64_t distance = c.ranks / 2; distance > 0; distance /= 2) {
    const auto size = static_cast<std::uint32_t>(sizes.size());
    sizes.push_back(part(c, c.ranks / distance));
    steps.push_back({StepSchedule::Partner::exchange, distance, size, true});
  }
  if (c.op == Op::all_reduce) {
    for (std::size_t k = steps.size(); k > 0; --k) {
      steps.push_back(steps[k - 1]);
      steps.back().reduces = false;
    }
  }
  return make_unique<StepSchedule>(c.ranks, std::move(sizes), std::move(steps));
}

std::unique_ptr<Schedule> hierarchical_schedule(const Collective& c) {
  const std::int64_t inside = c.ranks_per_node;
  const std::int64_t nodes = c.ranks / inside;
  const bool gathers = c.op != Op::reduce_scatter;
  const bool reduces = c.op != Op::all_gather;
  StepSchedule::Steps steps;
  const auto ring = [&](StepSchedule::Partner partner, std::int64_t ranks, std::uint32_t size,
                        bool reducing) {
    for (std::int64_t k = 1; k < ranks; ++k) steps.push_back({partner, inside, size, reducing});
  };
  if (reduces) {
    ring(StepSchedule::Partner::inside, inside, 0, true);
    ring(StepSchedule::Partner::across, nodes, 1, true);
  }
  if (gathers) {
    ring(StepSchedule::Partner::across, nodes, 1, false);
    ring(StepSchedule::Partner::inside, inside, 0, false);
  }
  return make_unique<StepSchedule>(
      c.ranks, std::vector<Rational>{part(c, inside), part(c, c.ranks)}, std::move(steps));
}

std::unique_ptr<Schedule> ring(const Collective& c) {
  const std::int64_t once = c.ranks - 1;
  const bool reduces = c.op == Op::all_reduce || is_reduction(c.op);
  const std::int64_t steps = c.op == Op::all_reduce ? 2 * once : once;
  return make_unique<StepSchedule>(c.ranks, std::vector<Rational>{part(c, c.ranks)},
                                   around(steps, reduces ? once : 0));
}

std::unique_ptr<Schedule> direct(const Collective& c) {
  if (c.op == Op::gather || c.op == Op::scatter || c.op == Op::send)
    return make_unique<RootSchedule>(c.ranks, c.op == Op::send ? part(c, 1) : part(c, c.ranks),
                                     c.op == Op::gather);
  return make_unique<StepSchedule>(c.ranks, std::vector<Rational>{part(c, c.ranks)},
                                   to_everybody(c, is_reduction(c.op)));
}

}  // namespace

std::unique_ptr<Schedule> make_schedule(const Collective& given) {
  Collective c = given;
  c.op = plain_op(given.op);
  switch (c.algorithm) {
    case Algorithm::ring:
      return ring(c);
    case Algorithm::double_binary_tree:
      return make_unique<DoubleTreeSchedule>(c.ranks, c.segments, part(c, 2 * c.segments));
    case Algorithm::recursive_doubling:
      return recursive_doubling(c);
    case Algorithm::halving_doubling:
      return halving_doubling(c);
    case Algorithm::hierarchical:
      return hierarchical_schedule(c);
    case Algorithm::direct:
      return direct(c);
    case Algorithm::binomial:
      if (c.op == Op::reduce) return make_unique<BinomialReduce>(c.ranks, part(c, 1));
      return make_unique<BinomialBroadcast>(c.ranks, part(c, 1));
    case Algorithm::chain:
      return make_unique<ChainSchedule>(c.ranks, c.segments, part(c, c.segments),
                                        c.op == Op::reduce);
    case Algorithm::nvls:
      return nullptr;
  }
  return nullptr;
}

}  // namespace lockstep::sim
