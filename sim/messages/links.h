// The fabric: ports of ranks and nodes, each with a bandwidth that is divided among the messages
// that use it at the same time.
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
  // How many neighbouring ranks share a port, per level: 8 for eight GPUs behind one NIC. Empty:
  // each rank has its own.
  std::vector<std::int64_t> ranks_per_port;
  // Every ordered pair has its own link, and nothing is ever shared.
  bool dedicated = false;

  std::size_t level(std::int64_t from, std::int64_t to) const {
    return levels.size() > 1 && from / ranks_per_node != to / ranks_per_node ? 1 : 0;
  }
  std::int64_t port(std::size_t level, std::int64_t rank) const {
    return ranks_per_port.empty() ? rank : rank / ranks_per_port[level];
  }
};

// LinkTable: which lanes use which link at the moment.

inline constexpr std::uint32_t kNoLink = UINT32_MAX;

// The links of a message: the sender's outward port and the receiver's inward port. kNoLink where
// the fabric is dedicated.
struct Route {
  std::array<std::uint32_t, 2> links = {kNoLink, kNoLink};
  std::uint32_t level = 0;
};

class LinkTable {
 public:
  explicit LinkTable(const Fabric& fabric);

  // The links are numbered: per level the outward ports, then the inward ones.
  Route route(std::int64_t from, std::int64_t to) const;
  std::size_t size() const { return capacities_.size(); }
  std::int64_t capacity(std::uint32_t link) const { return capacities_[link]; }
  const std::vector<std::uint32_t>& users(std::uint32_t link) const { return users_[link]; }

  // A lane enters a link at most once before it leaves. leave() is O(users of the link).
  void enter(std::uint32_t link, std::uint32_t lane) { users_[link].push_back(lane); }
  void leave(std::uint32_t link, std::uint32_t lane);

 private:
  const Fabric& fabric_;
  std::vector<std::uint32_t> first_;  // by level: its first outward port; inward ones follow
  std::vector<std::uint32_t> ports_;  // by level: the number of ports in one direction
  std::vector<std::int64_t> capacities_;
  std::vector<std::vector<std::uint32_t>> users_;  // by link: lanes
};

// Max-min fair shares: no flow can get more without taking it from a flow that has no more than it
// has (progressive filling; Bertsekas and Gallager, Data Networks, section 6.5.2).

// Rates are whole multiples of 1/720,720 bit/s. As 720,720 is divisible by 1 … 16, equal shares of
// one link among up to 16 flows are exact.
inline constexpr std::int64_t kRateScale = 720'720;

struct SharedFlow {
  std::array<std::uint32_t, 2> links = {};  // into the capacities; the same twice counts once
  Int128 rate = 0;                          // the result, in bit/s · kRateScale
};

// Sets every flow's rate. `capacities`: of the links, in bit/s, above zero. O(links · (links +
// flows)).
void share_fairly(std::span<const std::int64_t> capacities, std::vector<SharedFlow>& flows);

}  // namespace lockstep::sim
