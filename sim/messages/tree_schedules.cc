#include "sim/messages/tree_schedules.h"

#include <array>
#include <bit>

#include "sim/collectives/trees.h"

namespace lockstep::sim {

DoubleTreeSchedule::DoubleTreeSchedule(std::int64_t ranks, std::int64_t segments,
                                       const Rational& segment)
    : Schedule({segment}),
      ranks_(static_cast<std::uint32_t>(ranks)),
      segments_(static_cast<std::uint32_t>(segments)) {}

std::uint32_t DoubleTreeSchedule::messages(std::uint32_t lane) const {
  const int tree = static_cast<int>(lane / (2 * ranks_));
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
  for (std::uint32_t reach = low / 2; reach > 0; reach /= 2) {
    if (lane + reach >= ranks_) continue;
    message.needs[0] = {lane + reach, 1};  // the last child; those before it came earlier
    break;
  }
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
