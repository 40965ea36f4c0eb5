// Who uses which link of a fabric at the moment.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/messages/fabric.h"

namespace lockstep::sim {

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

}  // namespace lockstep::sim
