// What messages go through: the ports of ranks and nodes, each with a bandwidth that the messages
// share which use it at the same time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/rational.h"
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

// Who uses which link of a fabric at the moment.

inline constexpr std::uint32_t kNoLink = UINT32_MAX;

// The links that a message goes through: the sender's port outward and the receiver's inward.
struct Route {
  std::array<std::uint32_t, 2> links = {kNoLink, kNoLink};
  std::uint32_t level = 0;
};

class LinkTable {
 public:
  explicit LinkTable(const Fabric& fabric);

  Route route(std::int64_t from, std::int64_t to) const;
  std::size_t size() const { return capacities_.size(); }
  std::int64_t capacity(std::uint32_t link) const { return capacities_[link]; }
  const std::vector<std::uint32_t>& users(std::uint32_t link) const { return users_[link]; }

  // A lane uses a link once at a time.
  void enter(std::uint32_t link, std::uint32_t lane) { users_[link].push_back(lane); }
  void leave(std::uint32_t link, std::uint32_t lane);

 private:
  const Fabric& fabric_;
  std::vector<std::uint32_t> first_;  // of each level: outward ports, then inward ones
  std::vector<std::uint32_t> ports_;  // of each level
  std::vector<std::int64_t> capacities_;
  std::vector<std::vector<std::uint32_t>> users_;  // lanes
};

// Max-min fair shares: how flows divide links when none can get more without taking it from one
// that has no more than it (progressive filling; Bertsekas and Gallager, Data Networks,
// section 6.5.2).

// Rates are whole multiples of 1/720,720 bit/s: what up to 16 flows get of one link is exact.
inline constexpr std::int64_t kRateScale = 720'720;

struct SharedFlow {
  std::array<std::uint32_t, 2> links = {};  // into the capacities; twice the same counts once
  Int128 rate = 0;                          // the answer, in bit/s · kRateScale
};

// Fills in every flow's rate. `capacities`: of the links, in bit/s, above zero.
// O(links · (links + flows)).
void share_fairly(std::span<const std::int64_t> capacities, std::vector<SharedFlow>& flows);

}  // namespace lockstep::sim
