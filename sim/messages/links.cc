#include "sim/messages/links.h"

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
  // The order of users does not matter.
  *found = users.back();
  users.pop_back();
}

namespace {

struct Link {
  Int128 left = 0;             // capacity not yet given to a flow
  std::int64_t unsettled = 0;  // its flows that have no rate yet
};

std::size_t used(const SharedFlow& flow) { return flow.links[0] == flow.links[1] ? 1 : 2; }

}  // namespace

void share_fairly(std::span<const std::int64_t> capacities, std::vector<SharedFlow>& flows) {
  std::vector<Link> links;
  links.reserve(capacities.size());
  for (const std::int64_t capacity : capacities)
    links.push_back({static_cast<Int128>(capacity) * kRateScale, 0});
  for (const SharedFlow& flow : flows)
    for (std::size_t i = 0; i < used(flow); ++i) ++links[flow.links[i]].unsettled;

  std::vector<char> settled(flows.size(), 0);
  for (std::size_t left = flows.size(); left > 0;) {
    // Progressive filling: the link with the smallest share per flow is the bottleneck of its
    // flows. Their rates are final; their capacity is taken off their other links. On a tie, the
    // first link.
    const Link* tightest = nullptr;
    for (const Link& link : links) {
      if (link.unsettled == 0) continue;
      if (tightest == nullptr || link.left / link.unsettled < tightest->left / tightest->unsettled)
        tightest = &link;
    }
    LOCKSTEP_CHECK(tightest != nullptr, "a flow that no link carries");
    const auto bottleneck = static_cast<std::uint32_t>(tightest - links.data());
    // At least one unit, so that even more flows than a link has units all make progress.
    const Int128 share = std::max<Int128>(tightest->left / tightest->unsettled, 1);
    for (std::size_t f = 0; f < flows.size(); ++f) {
      SharedFlow& flow = flows[f];
      if (settled[f] != 0 || (flow.links[0] != bottleneck && flow.links[1] != bottleneck)) continue;
      flow.rate = share;
      settled[f] = 1, --left;
      for (std::size_t i = 0; i < used(flow); ++i) {
        const std::uint32_t link = flow.links[i];
        links[link].left = std::max<Int128>(links[link].left - share, 0);
        --links[link].unsettled;
      }
    }
  }
}

}  // namespace lockstep::sim
