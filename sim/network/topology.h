// The network between the nodes of a machine, by a few keys of its file, and the links that a
// message passes on its way:
//
//   fat_tree    tiers of switches; each has uplinks to the next tier, fewer than its links down
//               where they are oversubscribed (Leiserson, IEEE Trans. Comput. C-34(10), 1985;
//               Al-Fares et al., SIGCOMM 2008)
//   rails       the same, but the ranks with one index on their nodes have leaf switches of their
//               own, a rail, so that a leaf serves more nodes (NVIDIA DGX SuperPOD reference
//               architecture; Wang et al., arXiv 2307.12169)
//   torus       nodes linked to two neighbours in each dimension; routes go through the dimensions
//               in order, the shorter way around (Dally and Towles, Principles and Practices of
//               Interconnection Networks, 2004, chapters 5 and 8)
//   dragonfly   groups of routers that are all linked to each other; each pair of groups has
//               links, too. Minimal routes: at most one link within a group, one to the other
//               group, one within it (Kim et al., ISCA 2008)
//
// A node is what `ranks_per_node` says: a server, or a rack whose GPUs are on one NVLink domain
// (GB200 NVL72: 72 ranks a node). Equally short routes share the traffic equally, as with adaptive
// routing or hashing over many flows. Every rank also has ports: in and out, inside the node and to
// the network, with the bandwidth of the machine's links.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/quantities.h"
#include "base/result.h"
#include "sim/collectives/collective.h"

namespace lockstep::sim {

struct Topology {
  enum class Kind : std::uint8_t { fat_tree, rails, torus, dragonfly };
  Kind kind = Kind::fat_tree;

  // For trees and rails, from the leaves up: nodes below a switch, and the bandwidth of its links
  // down over that of its links up. The last tier's uplinks go to switches that never limit.
  struct Tier {
    std::int64_t nodes = 1;
    double oversubscription = 1;  // from 1
    friend bool operator==(const Tier&, const Tier&) = default;
  };
  std::vector<Tier> tiers;
  std::int64_t rails = 0;  // 0: as many as a node has ranks. Rank i of a node is on rail i % rails

  std::vector<std::int64_t> sides;  // torus: nodes along each dimension

  // Dragonfly: nodes on a router, routers of a group, links of a router to other groups, groups (0:
  // as many as those links reach, with one between each pair).
  std::int64_t nodes_per_router = 1, routers_per_group = 1, global_links = 1, groups = 0;

  // Torus and dragonfly: of a link between two of them. Empty: of all ranks of a node.
  std::optional<Bandwidth> link;
  Picos hop;           // what each link between switches adds to a message's latency
  bool sharp = false;  // trees and rails: the switches reduce (SHARP, in-network reduction)

  friend bool operator==(const Topology&, const Topology&) = default;
};

// The names of machine files: "fat-tree".
std::string topology_name(Topology::Kind kind);

// What is wrong with it, and the key to change; empty: nothing. Checked before a Network is made.
struct TopologyProblem {
  std::string key;  // below `network`, as a JSON pointer: "/tiers/1/nodes"
  std::string message, fix;
};
std::optional<TopologyProblem> topology_problem(const Topology& topology,
                                                std::int64_t ranks_per_node);

// The most nodes that it links. nullopt: any number.
std::optional<std::int64_t> most_nodes(const Topology& topology);

// The links of a network, numbered from 0: first four ports of each rank, then those between
// switches. Every link is one direction.
class Network {
 public:
  // For ranks 0 … ranks - 1, rank r on node r / ranks_per_node. `links`: of the machine, inside a
  // node and between nodes. Errors: more nodes than the topology has, more links than 2^28.
  static Result<Network> make(const Topology& topology, const Links& links,
                              std::int64_t ranks_per_node, std::int64_t ranks);

  enum class Port : std::uint8_t { node_out, node_in, net_out, net_in };
  std::uint32_t port(std::int64_t rank, Port port) const {
    return static_cast<std::uint32_t>(4 * rank + static_cast<std::int64_t>(port));
  }
  bool is_port(std::uint32_t link) const { return link < 4 * static_cast<std::uint64_t>(ranks_); }

  bool is_inside(std::uint32_t link) const { return is_port(link) && link % 4 < 2; }

  // Visits the links between switches on the way between two different nodes, and the share of the
  // traffic on each. `rail`: whose leaf switches it takes; counts for Kind::rails only. O(links).
  using Visit = std::function<void(std::uint32_t link, double share)>;
  void route(std::int64_t from, std::int64_t to, std::int64_t rail, const Visit& visit) const;
  // How many links between switches a message passes, on average over equally short routes.
  double hops(std::int64_t from, std::int64_t to) const;
  // The most links that route() visits.
  std::int64_t longest_route() const;

  // The uplink and the downlink of the switch above a node on a tier; trees and rails only. `rail`
  // counts for the leaves of Kind::rails only.
  std::uint32_t up(std::size_t tier, std::int64_t node, std::int64_t rail) const;
  std::uint32_t down(std::size_t tier, std::int64_t node, std::int64_t rail) const {
    return up(tier, node, rail) + 1;
  }
  // Whether a message between two nodes uses the uplinks of this tier.
  bool separated(std::size_t tier, std::int64_t a, std::int64_t b) const {
    return a / topology_.tiers[tier].nodes != b / topology_.tiers[tier].nodes;
  }

  double capacity(std::uint32_t link) const;  // in bytes per second
  std::size_t size() const { return size_; }
  std::string name(std::uint32_t link) const;  // "uplink of leaf switch 3", for people

  const Topology& topology() const { return topology_; }
  std::int64_t ranks_per_node() const { return ranks_per_node_; }
  std::int64_t node_of(std::int64_t rank) const { return rank / ranks_per_node_; }
  std::int64_t rails() const { return rails_; }
  std::int64_t rail_of(std::int64_t rank) const { return rank % ranks_per_node_ % rails_; }
  bool has_tiers() const { return !topology_.tiers.empty(); }

 private:
  Network(Topology topology, std::int64_t ranks_per_node, std::int64_t ranks)
      : topology_(std::move(topology)), ranks_per_node_(ranks_per_node), ranks_(ranks) {}

  void route_on_torus(std::int64_t from, std::int64_t to, const Visit& visit) const;
  void route_on_dragonfly(std::int64_t from, std::int64_t to, const Visit& visit) const;
  std::int64_t routers() const { return groups_ * topology_.routers_per_group; }

  Topology topology_;
  std::int64_t ranks_per_node_ = 1, ranks_ = 0;
  std::int64_t rails_ = 1;
  std::int64_t groups_ = 0, links_per_pair_ = 0;  // of a dragonfly
  double inside_ = 0, between_ = 0;               // bytes per second of a rank's ports
  double link_ = 0;                               // … of a link of a torus or a dragonfly
  // By tier: its first link, and the bandwidth of an uplink.
  struct TierLinks {
    std::uint32_t first = 0;
    double capacity = 0;
  };
  std::vector<TierLinks> tiers_;
  std::uint32_t first_ = 0;  // the first link between switches
  std::size_t size_ = 0;
};

}  // namespace lockstep::sim
