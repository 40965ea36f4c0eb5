// The bytes that a call puts on each link of a network, by the pattern of its messages. Only the
// sums count, not who sends first: the engine divides links among calls as among flows of water
// (sim/engine/shared_links.h).
//
//   ring        around the nodes in the order of the members, over the ports of all members of a
//               node, as NCCL's channels do: r (n-1)/n B over each hop (closed_form.h)
//   tree        NCCL's two trees over the nodes, half of the buffer up and down each
//   chain       from node to node, B over each hop
//   binomial    a tree that doubles, B over each hop
//   pairs       every member to every other, B/n each
//   star        between the first member and every other, B/n each
//   message     from the first member to the second
//   in_network  every node sends B to its switch and takes B from it; a switch passes on one B in
//               each direction, whatever the number of nodes below it (Graham et al., COM-HPC 2016:
//               SHARP)
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "sim/collectives/price.h"
#include "sim/network/topology.h"
#include "trace/signature.h"

namespace lockstep::sim {

enum class Pattern : std::uint8_t {
  none,
  ring,
  tree,
  chain,
  binomial,
  pairs,
  star,
  message,
  in_network,
};

// The pattern of a call that price() has priced. `sharp`: the network's switches reduce.
Pattern pattern_of(trace::Op op, const GroupLayout& layout, const Price& price, bool sharp);

struct LinkLoad {
  std::uint32_t link = 0;
  double bytes = 0;  // for each byte of the call's buffer
  friend bool operator==(const LinkLoad&, const LinkLoad&) = default;
};

// Sorted by link, each once. `members`: ranks of the network, at least two. Cost: O(members ·
// tiers) on trees; on a torus or a dragonfly O(members · hops), for `pairs` O(nodes² · hops).
std::vector<LinkLoad> traffic(const Network& network, const std::vector<std::int32_t>& members,
                              trace::Op op, Pattern pattern);

// About how many links traffic() visits on the routes between all pairs of this many nodes; 0 for
// patterns and networks whose sums need no pairs.
double visits(const Network& network, std::int64_t nodes, Pattern pattern);
inline constexpr double kMaxVisits = 1 << 30;  // take up to a minute
// Errors: more than kMaxVisits.
Status check_visits(const Network& network, double visits);

// The sum of several loads, for groups that call at the same time.
std::vector<LinkLoad> sum_of(const std::vector<std::vector<LinkLoad>>& loads);

// The load of a call on the ports of ranks, for each byte of its buffer.
struct PortLoad {
  double flow = 0;     // bytes on the busiest port to the network; if none is used, inside nodes
  double seconds = 0;  // of the port that takes longest
};
// The link that slows a call down most while no other call uses the network.
struct Narrowest {
  double factor = 1;  // the call takes this many times as long; from 1
  std::uint32_t link = 0;
};
// `seconds`: the call's time if no link between switches limits it.
Narrowest narrowest(const Network& network, const std::vector<LinkLoad>& loads, double bytes,
                    double seconds);
PortLoad port_load(const Network& network, const std::vector<LinkLoad>& loads);

// Sets GroupLayout::ring_hops, pair_hops and most_hops. In large groups, pair_hops is the mean over
// pairs from about 64 of the nodes. O(nodes).
void add_hops(const Network& network, const std::vector<std::int32_t>& members,
              GroupLayout& layout);

}  // namespace lockstep::sim
