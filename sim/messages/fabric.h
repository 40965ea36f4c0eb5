// What messages go through: the ports of ranks and nodes, each with a bandwidth that the messages
// share which use it at the same time.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/collectives/collective.h"

namespace lockstep::sim {

struct Fabric {
  // One level: every pair of ranks is linked alike. Two: ranks of one node by the first, others by
  // the second.
  Links levels;
  std::int64_t ranks = 0;
  std::int64_t ranks_per_node = 1;
  // Ranks that share a port of a level, a run of neighbours each: eight GPUs behind one NIC. One
  // number per level; empty: a port of its own for each rank.
  std::vector<std::int64_t> ranks_per_port;
  // Every ordered pair has a link of its own, and nothing is ever shared.
  bool dedicated = false;

  std::size_t level(std::int64_t from, std::int64_t to) const {
    return levels.size() > 1 && from / ranks_per_node != to / ranks_per_node ? 1 : 0;
  }
  std::int64_t port(std::size_t level, std::int64_t rank) const {
    return ranks_per_port.empty() ? rank : rank / ranks_per_port[level];
  }
};

}  // namespace lockstep::sim
