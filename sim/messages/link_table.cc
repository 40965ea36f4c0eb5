#include "sim/messages/link_table.h"

#include <algorithm>
#include <cstddef>

#include "base/check.h"

namespace lockstep::sim {

LinkTable::LinkTable(const Fabric& fabric) : fabric_(fabric) {
  if (fabric.dedicated) return;
  for (std::size_t level = 0; level < fabric.levels.size(); ++level) {
    const auto ports = static_cast<std::uint32_t>(fabric.port(level, fabric.ranks - 1) + 1);
    first_.push_back(static_cast<std::uint32_t>(capacities_.size()));
    ports_.push_back(ports);
    capacities_.insert(capacities_.end(), std::size_t{2} * ports,
                       fabric.levels[level].beta.bits_per_second);
  }
  users_.resize(capacities_.size());
}

Route LinkTable::route(std::int64_t from, std::int64_t to) const {
  const std::size_t level = fabric_.level(from, to);
  Route route;
  route.level = static_cast<std::uint32_t>(level);
  if (fabric_.dedicated) return route;
  route.links[0] = first_[level] + static_cast<std::uint32_t>(fabric_.port(level, from));
  route.links[1] =
      first_[level] + ports_[level] + static_cast<std::uint32_t>(fabric_.port(level, to));
  return route;
}

void LinkTable::leave(std::uint32_t link, std::uint32_t lane) {
  std::vector<std::uint32_t>& users = users_[link];
  const auto found = std::find(users.begin(), users.end(), lane);
  LOCKSTEP_CHECK(found != users.end(), "a message leaves a link that it does not use");
  *found = users.back();
  users.pop_back();
}

}  // namespace lockstep::sim
