#include "sim/network/topology.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <string_view>

#include <fmt/format.h>

#include "base/check.h"

namespace lockstep::sim {
namespace {

constexpr std::int64_t kMaxLinks = std::int64_t{1} << 28;  // their numbers have 32 bits
// Nodes of a torus or a dragonfly.
constexpr std::int64_t kMaxNodes = std::int64_t{1} << 20;
// The most links between a dragonfly's routers, and between two of its groups, which routes visit.
constexpr std::int64_t kMaxRouterLinks = kMaxLinks / 2;
constexpr std::int64_t kMaxLinksPerPair = 4096;
// Nodes below a switch, as the schema says.
constexpr std::int64_t kMaxNodesBelow = std::int64_t{1} << 20;

bool has_switches(const Topology& topology) {
  return topology.kind == Topology::Kind::fat_tree || topology.kind == Topology::Kind::rails;
}

std::int64_t groups_of(const Topology& t) {
  return t.groups > 0 ? t.groups : t.routers_per_group * t.global_links + 1;
}

std::int64_t links_per_pair(const Topology& t) {
  const std::int64_t groups = groups_of(t);
  return groups > 1 ? t.routers_per_group * t.global_links / (groups - 1) : 0;
}

std::optional<TopologyProblem> tiers_problem(const Topology& t) {
  if (t.tiers.empty())
    return TopologyProblem{"/tiers", "the switches are missing: \"tiers\"",
                           "add tiers: [{nodes: 16, oversubscription: 2}]"};
  for (std::size_t i = 1; i < t.tiers.size(); ++i)
    if (t.tiers[i].nodes <= t.tiers[i - 1].nodes || t.tiers[i].nodes % t.tiers[i - 1].nodes != 0)
      return TopologyProblem{
          fmt::format("/tiers/{}/nodes", i),
          fmt::format("{} nodes below a switch are not whole switches of {} nodes",
                      t.tiers[i].nodes, t.tiers[i - 1].nodes),
          2 * t.tiers[i - 1].nodes <= kMaxNodesBelow
              ? fmt::format("nodes: {}", 2 * t.tiers[i - 1].nodes)
              : "leave the last tier out"};
  return std::nullopt;
}

std::optional<TopologyProblem> torus_problem(const Topology& t) {
  if (t.sides.empty())
    return TopologyProblem{"/sides", "the sides of the torus are missing", "sides: [8, 8, 4]"};
  // Stops at one too many, so that the product does not overflow.
  std::int64_t nodes = 1;
  for (const std::int64_t side : t.sides) nodes = std::min(nodes * side, kMaxNodes + 1);
  if (nodes > kMaxNodes)
    return TopologyProblem{"/sides", "the torus has more than 1,048,576 nodes",
                           "use smaller sides"};
  return std::nullopt;
}

std::optional<TopologyProblem> dragonfly_problem(const Topology& t) {
  const std::int64_t groups = groups_of(t);
  if (t.routers_per_group * t.global_links < groups - 1)
    return TopologyProblem{
        "/groups",
        fmt::format("{} routers with {} global links each cannot reach {} other groups",
                    t.routers_per_group, t.global_links, groups - 1),
        fmt::format("at most groups: {}", t.routers_per_group * t.global_links + 1)};
  if (groups * t.routers_per_group > kMaxNodes / t.nodes_per_router)
    return TopologyProblem{"/groups", "the dragonfly has more than 1,048,576 nodes",
                           "use fewer groups"};
  if (links_per_pair(t) > kMaxLinksPerPair)
    return TopologyProblem{"/global_links",
                           fmt::format("{} links between two groups are more than {}",
                                       links_per_pair(t), kMaxLinksPerPair),
                           "use fewer, or more groups"};
  if (groups * t.routers_per_group * (t.routers_per_group + t.global_links) > kMaxRouterLinks)
    return TopologyProblem{
        "/global_links",
        fmt::format("the dragonfly has more than {} links between its routers", kMaxRouterLinks),
        "use fewer, or fewer groups or routers"};
  return std::nullopt;
}

}  // namespace

std::string topology_name(Topology::Kind kind) {
  static constexpr std::array<std::string_view, 4> kNames = {"fat-tree", "rails", "torus",
                                                             "dragonfly"};
  return std::string(kNames[static_cast<std::size_t>(kind)]);
}

std::optional<TopologyProblem> topology_problem(const Topology& t, std::int64_t ranks_per_node) {
  if (has_switches(t)) {
    if (auto problem = tiers_problem(t)) return problem;
    if (t.rails > 0 && ranks_per_node % t.rails != 0)
      return TopologyProblem{
          "/rails",
          fmt::format("{} ranks of a node do not divide into {} rails", ranks_per_node, t.rails),
          fmt::format("rails: {}", ranks_per_node)};
    return std::nullopt;
  }
  if (t.sharp)
    return TopologyProblem{"/sharp",
                           fmt::format("a {} has no switches that reduce", topology_name(t.kind)),
                           "leave it out, or describe a fat tree or rails"};
  return t.kind == Topology::Kind::torus ? torus_problem(t) : dragonfly_problem(t);
}

std::optional<std::int64_t> most_nodes(const Topology& topology) {
  if (has_switches(topology)) return std::nullopt;
  if (topology.kind == Topology::Kind::dragonfly)
    return topology.nodes_per_router * topology.routers_per_group * groups_of(topology);
  std::int64_t nodes = 1;
  for (const std::int64_t side : topology.sides) nodes *= side;
  return nodes;
}

Result<Network> Network::make(const Topology& topology, const Links& links,
                              std::int64_t ranks_per_node, std::int64_t ranks) {
  LOCKSTEP_CHECK(!topology_problem(topology, ranks_per_node), "a topology that cannot be");
  const std::int64_t nodes = (ranks + ranks_per_node - 1) / ranks_per_node;
  if (const auto most = most_nodes(topology); most && nodes > *most)
    return Error{fmt::format("the job needs {} nodes, and the machine's {} has {}", nodes,
                             topology_name(topology.kind), *most),
                 {},
                 "use fewer ranks, or enlarge the machine's `network`"};
  Network out(topology, ranks_per_node, ranks);
  out.rails_ = topology.kind != Topology::Kind::rails ? 1
               : topology.rails > 0                   ? topology.rails
                                                      : ranks_per_node;
  out.inside_ = links.front().beta.bytes_per_second();
  out.between_ = links.back().beta.bytes_per_second();
  const double of_node = static_cast<double>(ranks_per_node) * out.between_;
  out.link_ = topology.link ? topology.link->bytes_per_second() : of_node;
  std::int64_t next = 4 * ranks;
  // The numbers of all but the tiers' links are below 4 kMaxRanks + 2 · 4 · kMaxNodes.
  out.first_ = static_cast<std::uint32_t>(next);
  double share = 1;  // of the bandwidth of all nodes below a switch that its uplinks have
  for (std::size_t t = 0; t < topology.tiers.size(); ++t) {
    const Topology::Tier& tier = topology.tiers[t];
    const std::int64_t rails = t == 0 ? out.rails_ : 1;
    share /= tier.oversubscription;
    out.tiers_.push_back(
        {static_cast<std::uint32_t>(next),
         static_cast<double>(tier.nodes) * of_node * share / static_cast<double>(rails)});
    next += 2 * rails * ((nodes + tier.nodes - 1) / tier.nodes);
    if (next > kMaxLinks) break;
  }
  if (topology.kind == Topology::Kind::torus)
    next += 2 * static_cast<std::int64_t>(topology.sides.size()) * *most_nodes(topology);
  if (topology.kind == Topology::Kind::dragonfly) {
    out.groups_ = groups_of(topology);
    out.links_per_pair_ = links_per_pair(topology);
    next += out.routers() * (topology.routers_per_group + topology.global_links);
  }
  if (next > kMaxLinks)
    return Error{"the network has more than 268,435,456 links", {}, "use fewer ranks"};
  out.size_ = static_cast<std::size_t>(next);
  return out;
}

std::uint32_t Network::up(std::size_t tier, std::int64_t node, std::int64_t rail) const {
  const std::int64_t rails = tier == 0 ? rails_ : 1;
  const std::int64_t number = node / topology_.tiers[tier].nodes * rails + (tier == 0 ? rail : 0);
  return tiers_[tier].first + 2 * static_cast<std::uint32_t>(number);
}

void Network::route(std::int64_t from, std::int64_t to, std::int64_t rail,
                    const Visit& visit) const {
  if (topology_.kind == Topology::Kind::torus) return route_on_torus(from, to, visit);
  if (topology_.kind == Topology::Kind::dragonfly) return route_on_dragonfly(from, to, visit);
  for (std::size_t tier = 0; tier < topology_.tiers.size() && separated(tier, from, to); ++tier) {
    visit(up(tier, from, rail), 1);
    visit(down(tier, to, rail), 1);
  }
}

// As route() does, without going along.
double Network::hops(std::int64_t from, std::int64_t to) const {
  std::int64_t sum = 0;
  if (topology_.kind == Topology::Kind::torus) {
    std::int64_t stride = 1;
    for (const std::int64_t side : topology_.sides) {
      const std::int64_t ahead = (to / stride % side - from / stride % side + side) % side;
      sum += std::min(ahead, side - ahead);
      stride *= side;
    }
    return static_cast<double>(sum);
  }
  if (topology_.kind != Topology::Kind::dragonfly) {
    for (std::size_t tier = 0; tier < topology_.tiers.size() && separated(tier, from, to); ++tier)
      sum += 2;
    return static_cast<double>(sum);
  }
  const std::int64_t routers = topology_.routers_per_group, global = topology_.global_links;
  const std::int64_t source = from / topology_.nodes_per_router;
  const std::int64_t target = to / topology_.nodes_per_router;
  const std::int64_t a = source / routers, b = target / routers;
  if (a == b) return source == target ? 0 : 1;
  // The share of the links from a router's group to the `distance`-th after it that is its own.
  const auto own = [&](std::int64_t router, std::int64_t distance) {
    const std::int64_t first = (distance - 1) * links_per_pair_, mine = router % routers * global;
    const std::int64_t both =
        std::min(first + links_per_pair_, mine + global) - std::max(first, mine);
    return static_cast<double>(std::max<std::int64_t>(0, both)) /
           static_cast<double>(links_per_pair_);
  };
  const std::int64_t ahead = (b - a + groups_) % groups_;
  return 3 - own(source, ahead) - own(target, groups_ - ahead);
}

std::int64_t Network::longest_route() const {
  if (topology_.kind == Topology::Kind::dragonfly)
    return std::max<std::int64_t>(1, 3 * links_per_pair_);
  if (topology_.kind != Topology::Kind::torus)
    return 2 * static_cast<std::int64_t>(topology_.tiers.size());
  // Halfway around, traffic goes both ways.
  return std::accumulate(topology_.sides.begin(), topology_.sides.end(), std::int64_t{0});
}

// Link 2 (D n + d) goes from node n forwards in dimension d, the next one backwards.
void Network::route_on_torus(std::int64_t from, std::int64_t to, const Visit& visit) const {
  const auto dimensions = static_cast<std::int64_t>(topology_.sides.size());
  std::int64_t stride = 1, at = from;
  for (std::int64_t d = 0; d < dimensions; ++d) {
    const std::int64_t side = topology_.sides[static_cast<std::size_t>(d)];
    const std::int64_t here = from / stride % side;
    const std::int64_t ahead = (to / stride % side - here + side) % side;
    // Halfway around, each way takes half of the traffic. Between two nodes there is one link.
    const double forwards = 2 * ahead == side && side > 2 ? 0.5 : 2 * ahead <= side ? 1 : 0;
    const auto go = [&](std::int64_t steps, int direction, double share) {
      for (std::int64_t i = 0; i < steps; ++i) {
        const std::int64_t place = ((here + direction * i) % side + side) % side;
        const std::int64_t node = at + (place - here) * stride;
        visit(first_ +
                  static_cast<std::uint32_t>(2 * (node * dimensions + d) + (direction > 0 ? 0 : 1)),
              share);
      }
    };
    if (ahead > 0 && forwards > 0) go(ahead, 1, forwards);
    if (ahead > 0 && forwards < 1) go(side - ahead, -1, 1 - forwards);
    at += ((here + ahead) % side - here) * stride;
    stride *= side;
  }
}

// Per router, links to the routers of its group and then to other groups. Group G numbers the
// others by their distance o = 1, 2, … after it; its links to the o-th are w(o-1) … wo - 1, of
// which the first global_links are its first router's, and so on.
void Network::route_on_dragonfly(std::int64_t from, std::int64_t to, const Visit& visit) const {
  const std::int64_t routers = topology_.routers_per_group, global = topology_.global_links;
  const std::int64_t source = from / topology_.nodes_per_router;
  const std::int64_t target = to / topology_.nodes_per_router;
  const std::int64_t a = source / routers, b = target / routers;
  const auto link = [&](std::int64_t router, std::int64_t number) {
    return first_ + static_cast<std::uint32_t>(router * (routers + global) + number);
  };
  const auto within = [&](std::int64_t one, std::int64_t other, double share) {
    if (one != other) visit(link(one, other % routers), share);
  };
  if (a == b) return within(source, target, 1);
  const std::int64_t ahead = (b - a + groups_) % groups_, back = groups_ - ahead;
  const double share = 1.0 / static_cast<double>(links_per_pair_);
  for (std::int64_t i = 0; i < links_per_pair_; ++i) {
    const std::int64_t out = (ahead - 1) * links_per_pair_ + i;
    const std::int64_t in = (back - 1) * links_per_pair_ + links_per_pair_ - 1 - i;
    const std::int64_t leaves = a * routers + out / global, enters = b * routers + in / global;
    within(source, leaves, share);
    visit(link(leaves, routers + out % global), share);
    within(enters, target, share);
  }
}

double Network::capacity(std::uint32_t link) const {
  if (is_port(link)) return link % 4 < 2 ? inside_ : between_;
  for (std::size_t tier = tiers_.size(); tier-- > 0;)
    if (link >= tiers_[tier].first) return tiers_[tier].capacity;
  return link_;
}

std::string Network::name(std::uint32_t link) const {
  if (is_port(link))
    return fmt::format("rank {}'s port {}", link / 4,
                       std::array{"out inside its node", "in inside its node", "to the network",
                                  "from the network"}[link % 4]);
  for (std::size_t tier = tiers_.size(); tier-- > 0;) {
    if (link < tiers_[tier].first) continue;
    const std::uint32_t number = (link - tiers_[tier].first) / 2;
    const char* which = (link - tiers_[tier].first) % 2 == 0 ? "uplink" : "downlink";
    if (tier > 0) return fmt::format("{} of switch {} on tier {}", which, number, tier + 1);
    const auto rails = static_cast<std::uint32_t>(rails_);
    if (rails == 1) return fmt::format("{} of leaf switch {}", which, number);
    return fmt::format("{} of leaf switch {} of rail {}", which, number / rails, number % rails);
  }
  const std::uint32_t number = link - first_;
  if (topology_.kind == Topology::Kind::torus) {
    const auto dimensions = static_cast<std::uint32_t>(topology_.sides.size());
    return fmt::format("link of node {} {} in dimension {}", number / 2 / dimensions,
                       number % 2 == 0 ? "forwards" : "backwards", number / 2 % dimensions);
  }
  const auto each =
      static_cast<std::uint32_t>(topology_.routers_per_group + topology_.global_links);
  const bool local = number % each < topology_.routers_per_group;
  return fmt::format("{} link of router {}", local ? "local" : "global", number / each);
}

}  // namespace lockstep::sim
