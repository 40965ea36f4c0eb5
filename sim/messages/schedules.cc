// Step schedules: every rank does the same steps. In each step it sends one message; the next step
// begins when this message and its partner's have arrived.

#include "sim/messages/schedules.h"

#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

#include "sim/collectives/collective.h"

namespace lockstep::sim {

// A lane for each rank, a message for each step.
class StepSchedule final : public Schedule {
 public:
  // The rank that rank r sends to; d is `distance`.
  enum class Partner : std::uint8_t {
    neighbour,  // r + d, modulo all ranks
    exchange,   // r xor d
    inside,     // the next of the d ranks of r's node, around the node
    across,     // the same index in the next node of d ranks, around the nodes
  };
  struct Step {
    Partner partner = Partner::neighbour;
    std::int64_t distance = 1;
    std::uint32_t size = 0;
    bool reduces = false;
  };
  using Steps = std::vector<Step>;

  StepSchedule(std::int64_t ranks, std::vector<Rational> sizes, Steps steps)
      : Schedule(std::move(sizes)), ranks_(ranks), steps_(std::move(steps)) {}

  std::uint32_t lanes() const override { return static_cast<std::uint32_t>(ranks_); }
  std::uint32_t messages(std::uint32_t) const override {
    return static_cast<std::uint32_t>(steps_.size());
  }
  Message message(std::uint32_t lane, std::uint32_t index) const override {
    const Step& step = steps_[index];
    Message message;
    message.from = lane;
    message.to = static_cast<std::uint32_t>(partner(step, lane, 1));
    message.size = step.size;
    message.reduces = step.reduces;
    // Its data came from the partner of the step before, in that partner's message index - 1.
    if (index > 0)
      message.needs[0] = {static_cast<std::uint32_t>(partner(steps_[index - 1], lane, -1)), index};
    return message;
  }

 private:
  // The rank that `rank` sends to (direction 1) or receives from (-1).
  std::int64_t partner(const Step& step, std::int64_t rank, std::int64_t direction) const {
    switch (step.partner) {
      case Partner::neighbour:
        return around(rank + direction * step.distance, ranks_);
      case Partner::exchange:
        return rank ^ step.distance;
      case Partner::inside: {
        const std::int64_t first = rank - rank % step.distance;
        return first + around(rank - first + direction, step.distance);
      }
      case Partner::across:
        return around(rank + direction * step.distance, ranks_);
    }
    return rank;
  }
  // For -n <= value < 2n.
  static std::int64_t around(std::int64_t value, std::int64_t n) {
    if (value < 0) return value + n;
    return value >= n ? value - n : value;
  }

  std::int64_t ranks_;
  Steps steps_;
};

// Gather, scatter and single sends: rank 0 and every other rank, one message after the other. A
// gather has a lane for each sender, a scatter one for the root.
class RootSchedule final : public Schedule {
 public:
  RootSchedule(std::int64_t ranks, const Rational& size, bool gathers)
      : Schedule({size}), ranks_(static_cast<std::uint32_t>(ranks)), gathers_(gathers) {}

  std::uint32_t lanes() const override { return gathers_ ? ranks_ : 1; }
  std::uint32_t messages(std::uint32_t lane) const override {
    if (!gathers_) return ranks_ - 1;
    return lane == 0 ? 0 : 1;
  }
  Message message(std::uint32_t lane, std::uint32_t index) const override {
    Message message;
    message.from = lane;
    message.to = gathers_ ? 0 : index + 1;
    // The root receives one at a time, in the order of ranks.
    if (gathers_ && lane > 1) message.needs[0] = {lane - 1, 1};
    return message;
  }

 private:
  std::uint32_t ranks_;
  bool gathers_;
};

// Schedules along trees and chains.

// NCCL's two trees. Each reduces its half of the buffer towards its root, segment by segment, and
// sends it down again. Lanes of a tree: lane r from rank r to its parent, lane n + r from r's
// parent down to r. The second tree's lanes begin at 2n.
class DoubleTreeSchedule final : public Schedule {
 public:
  DoubleTreeSchedule(std::int64_t ranks, std::int64_t segments, const Rational& segment);
  std::uint32_t lanes() const override { return 4 * ranks_; }
  std::uint32_t messages(std::uint32_t lane) const override;
  Message message(std::uint32_t lane, std::uint32_t index) const override;

 private:
  std::uint32_t ranks_, segments_;
};

// Rank 0 to all others. In each step every rank that has the data sends it on: rank 0 to 1, 2, 4,
// …; rank 1 to 3, 5, 9, …; rank 3 to 7, 11, ….
class BinomialBroadcast final : public Schedule {
 public:
  BinomialBroadcast(std::int64_t ranks, const Rational& size)
      : Schedule({size}), ranks_(static_cast<std::uint32_t>(ranks)) {}
  std::uint32_t lanes() const override { return ranks_; }
  std::uint32_t messages(std::uint32_t lane) const override;
  Message message(std::uint32_t lane, std::uint32_t index) const override;

 private:
  std::uint32_t ranks_;
};

// The tree towards rank 0: rank r sends to r minus its lowest set bit, 6 to 4, 4 to 0. A rank
// receives from its children one after the other, the nearest first.
class BinomialReduce final : public Schedule {
 public:
  BinomialReduce(std::int64_t ranks, const Rational& size)
      : Schedule({size}), ranks_(static_cast<std::uint32_t>(ranks)) {}
  std::uint32_t lanes() const override { return ranks_; }
  std::uint32_t messages(std::uint32_t lane) const override { return lane == 0 ? 0 : 1; }
  Message message(std::uint32_t lane, std::uint32_t index) const override;

 private:
  std::uint32_t ranks_;
};

// From rank 0 to rank n-1; each passes segments on as they arrive. `reduces`: it adds its own.
class ChainSchedule final : public Schedule {
 public:
  ChainSchedule(std::int64_t ranks, std::int64_t segments, const Rational& segment, bool reduces)
      : Schedule({segment}),
        ranks_(static_cast<std::uint32_t>(ranks)),
        segments_(static_cast<std::uint32_t>(segments)),
        reduces_(reduces) {}
  std::uint32_t lanes() const override { return ranks_ - 1; }
  std::uint32_t messages(std::uint32_t) const override { return segments_; }
  Message message(std::uint32_t lane, std::uint32_t index) const override;

 private:
  std::uint32_t ranks_, segments_;
  bool reduces_;
};

namespace {

using std::make_unique;

Rational part(const Collective& c, std::int64_t parts) {
  return Rational(c.bytes.value) * Rational(1, parts);
}

// Steps around a ring of all ranks; the receivers of the first `reducing` steps reduce.
StepSchedule::Steps around(std::int64_t steps, std::int64_t reducing) {
  StepSchedule::Steps out;
  for (std::int64_t k = 0; k < steps; ++k)
    out.push_back({StepSchedule::Partner::neighbour, 1, 0, k < reducing});
  return out;
}

// Message k goes to the rank k + 1 further on, so that no two ranks send to the same one at once.
StepSchedule::Steps direct_exchange(const Collective& c, bool reduces) {
  StepSchedule::Steps out;
  for (std::int64_t k = 1; k < c.ranks; ++k)
    out.push_back({StepSchedule::Partner::neighbour, k, 0, reduces});
  return out;
}

std::unique_ptr<Schedule> recursive_doubling(const Collective& c) {
  StepSchedule::Steps steps;
  const std::int64_t count = log2_ceil(c.ranks);
  // Dissemination: in step k an empty message to the rank 2^k further on. Wraps around, so n need
  // not be a power of two.
  if (c.op == trace::Op::barrier) {
    for (std::int64_t k = 0; k < count; ++k)
      steps.push_back({StepSchedule::Partner::neighbour, std::int64_t{1} << k, 0, false});
    return make_unique<StepSchedule>(c.ranks, std::vector<Rational>{0}, std::move(steps));
  }
  const bool reduces = c.op == trace::Op::all_reduce;
  std::vector<Rational> sizes;
  for (std::int64_t k = 0; k < count; ++k) {
    // An all-reduce exchanges the whole buffer in each step; an all-gather what it has so far, B/n,
    // 2B/n, 4B/n, ….
    sizes.push_back(reduces ? Rational(c.bytes.value) : part(c, c.ranks >> k));
    steps.push_back({StepSchedule::Partner::exchange, std::int64_t{1} << k,
                     static_cast<std::uint32_t>(k), reduces});
  }
  return make_unique<StepSchedule>(c.ranks, std::move(sizes), std::move(steps));
}

std::unique_ptr<Schedule> halving_doubling(const Collective& c) {
  StepSchedule::Steps steps;
  std::vector<Rational> sizes;
  // Reduce-scatter: exchange half of the buffer with the rank n/2 away, then a quarter with the one
  // n/4 away, …
  for (std::int64_t distance = c.ranks / 2; distance > 0; distance /= 2) {
    const auto size = static_cast<std::uint32_t>(sizes.size());
    sizes.push_back(part(c, c.ranks / distance));
    steps.push_back({StepSchedule::Partner::exchange, distance, size, true});
  }
  if (c.op == trace::Op::all_reduce) {
    // … and for an all-reduce the same steps backwards, gathering instead of reducing.
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
  const bool gathers = c.op != trace::Op::reduce_scatter;
  const bool reduces = c.op != trace::Op::all_gather;
  StepSchedule::Steps steps;
  const auto ring = [&](StepSchedule::Partner partner, std::int64_t ranks, std::uint32_t size,
                        bool reducing) {
    for (std::int64_t k = 1; k < ranks; ++k) steps.push_back({partner, inside, size, reducing});
  };
  // Reduce inside the node, then between nodes; gather in the opposite order. Inside, a chunk is
  // B/k; between nodes each rank has only its k-th left, so a chunk is B/n.
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
  const bool reduces = c.op == trace::Op::all_reduce || trace::is_reduction(c.op);
  const std::int64_t steps = c.op == trace::Op::all_reduce ? 2 * once : once;
  return make_unique<StepSchedule>(c.ranks, std::vector<Rational>{part(c, c.ranks)},
                                   around(steps, reduces ? once : 0));
}

std::unique_ptr<Schedule> direct(const Collective& c) {
  if (c.op == trace::Op::gather || c.op == trace::Op::scatter || c.op == trace::Op::send)
    return make_unique<RootSchedule>(c.ranks,
                                     c.op == trace::Op::send ? part(c, 1) : part(c, c.ranks),
                                     c.op == trace::Op::gather);
  return make_unique<StepSchedule>(c.ranks, std::vector<Rational>{part(c, c.ranks)},
                                   direct_exchange(c, trace::is_reduction(c.op)));
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
      if (c.op == trace::Op::reduce) return make_unique<BinomialReduce>(c.ranks, part(c, 1));
      return make_unique<BinomialBroadcast>(c.ranks, part(c, 1));
    case Algorithm::chain:
      return make_unique<ChainSchedule>(c.ranks, c.segments, part(c, c.segments),
                                        c.op == trace::Op::reduce);
    case Algorithm::nvls:
      return nullptr;
  }
  return nullptr;
}

DoubleTreeSchedule::DoubleTreeSchedule(std::int64_t ranks, std::int64_t segments,
                                       const Rational& segment)
    : Schedule({segment}),
      ranks_(static_cast<std::uint32_t>(ranks)),
      segments_(static_cast<std::uint32_t>(segments)) {}

std::uint32_t DoubleTreeSchedule::messages(std::uint32_t lane) const {
  const int tree = static_cast<int>(lane / (2 * ranks_));
  // The root has no parent, and so nothing to send up and nobody that sends down to it.
  return double_tree_node(tree, lane % ranks_, ranks_).parent < 0 ? 0 : segments_;
}

Message DoubleTreeSchedule::message(std::uint32_t lane, std::uint32_t index) const {
  const std::uint32_t tree = lane / (2 * ranks_);
  const std::uint32_t base = tree * 2 * ranks_;
  const std::uint32_t rank = lane % ranks_;
  const bool upwards = lane - base < ranks_;
  const TreeNode node = double_tree_node(static_cast<int>(tree), rank, ranks_);
  const auto parent = static_cast<std::uint32_t>(node.parent);

  Message message;
  message.from = upwards ? rank : parent;
  message.to = upwards ? parent : rank;
  message.reduces = upwards;
  // What the children of `inner` sent up.
  const auto need_children = [&](const TreeNode& inner) {
    for (std::size_t i = 0; i < 2; ++i)
      if (inner.children[i] >= 0)
        message.needs[i] = {base + static_cast<std::uint32_t>(inner.children[i]), index + 1};
  };
  // Up: after both children sent this segment. Down from the root: after its children sent it up.
  // Down from any other rank: after its own parent sent it down.
  if (upwards) {
    need_children(node);
  } else if (const TreeNode above = double_tree_node(static_cast<int>(tree), parent, ranks_);
             above.parent < 0) {
    need_children(above);
  } else {
    message.needs[0] = {base + ranks_ + parent, index + 1};
  }
  return message;
}

std::uint32_t BinomialBroadcast::messages(std::uint32_t lane) const {
  std::uint32_t count = 0;
  // A rank joins in the step of its highest bit and sends in all later ones, as far as ranks exist.
  for (std::uint64_t reach = std::bit_ceil(std::uint64_t{lane} + 1); lane + reach < ranks_;
       reach *= 2)
    ++count;
  return count;
}

Message BinomialBroadcast::message(std::uint32_t lane, std::uint32_t index) const {
  const auto width = static_cast<std::uint32_t>(std::bit_width(lane));
  Message message;
  message.from = lane;
  message.to = lane + (1U << (width + index));
  if (lane > 0) {
    // The rank without its highest bit sent to this one, as its message number width - parent_width
    // - 1.
    const std::uint32_t parent = lane - std::bit_floor(lane);
    const auto parent_width = static_cast<std::uint32_t>(std::bit_width(parent));
    message.needs[0] = {parent, width - parent_width};
  }
  return message;
}

Message BinomialReduce::message(std::uint32_t lane, std::uint32_t) const {
  const std::uint32_t low = lane & -lane;
  Message message;
  message.from = lane;
  message.to = lane - low;
  message.reduces = true;
  // It sends when its last child has arrived; the children before that one came earlier.
  for (std::uint32_t reach = low / 2; reach > 0; reach /= 2) {
    if (lane + reach >= ranks_) continue;
    message.needs[0] = {lane + reach, 1};
    break;
  }
  // The parent receives one child at a time: this message waits for the sibling before it.
  if (low > 1) message.needs[1] = {message.to + low / 2, 1};
  return message;
}

Message ChainSchedule::message(std::uint32_t lane, std::uint32_t index) const {
  Message message;
  message.from = lane;
  message.to = lane + 1;
  message.reduces = reduces_;
  if (lane > 0) message.needs[0] = {lane - 1, index + 1};
  return message;
}

}  // namespace lockstep::sim
