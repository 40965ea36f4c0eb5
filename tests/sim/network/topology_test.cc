// Networks against what is published of them: hop counts, channel loads, bisections.
#include "sim/network/topology.h"

#include <algorithm>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/network/traffic.h"

namespace lockstep::sim {
namespace {

const Links kLinks = {{Picos{0}, Bandwidth{3'600'000'000'000}, std::nullopt},
                      {Picos{0}, Bandwidth{400'000'000'000}, std::nullopt}};
constexpr double kPort = 50e9;  // bytes per second

Topology tree(std::vector<Topology::Tier> tiers) {
  Topology out;
  out.tiers = std::move(tiers);
  return out;
}
Topology torus(std::vector<std::int64_t> sides) {
  Topology out;
  out.kind = Topology::Kind::torus;
  out.sides = std::move(sides);
  return out;
}
Topology dragonfly(std::int64_t p, std::int64_t a, std::int64_t h) {
  Topology out;
  out.kind = Topology::Kind::dragonfly;
  out.nodes_per_router = p;
  out.routers_per_group = a;
  out.global_links = h;
  return out;
}
Topology rails(std::int64_t nodes, double oversubscription) {
  Topology out = tree({{nodes, oversubscription}});
  out.kind = Topology::Kind::rails;
  return out;
}

Network network(const Topology& topology, std::int64_t ranks_per_node, std::int64_t ranks) {
  EXPECT_FALSE(topology_problem(topology, ranks_per_node));
  return *Network::make(topology, kLinks, ranks_per_node, ranks);
}

std::vector<std::int32_t> every(std::int32_t ranks, std::int32_t step = 1) {
  std::vector<std::int32_t> out;
  for (std::int32_t r = 0; r < ranks; r += step) out.push_back(r);
  return out;
}

// By link between switches.
std::map<std::uint32_t, double> between(const Network& net, const std::vector<LinkLoad>& loads) {
  std::map<std::uint32_t, double> out;
  for (const LinkLoad& load : loads)
    if (!net.is_port(load.link)) out[load.link] = load.bytes;
  return out;
}
double most(const std::map<std::uint32_t, double>& loads) {
  double out = 0;
  for (const auto& [link, bytes] : loads) out = std::max(out, bytes);
  return out;
}

TEST(Topology, ATreeGoesUpAsFarAsItMust) {
  const Network net = network(tree({{2, 1}, {8, 1}, {16, 1}}), 8, 8 * 32);
  EXPECT_EQ(net.hops(0, 1), 0);  // one leaf
  EXPECT_EQ(net.hops(0, 2), 2);  // up and down
  EXPECT_EQ(net.hops(0, 8), 4);  // another pod
  EXPECT_EQ(net.hops(0, 16), 6);
}

// arXiv 2407.21783, section 3.3.1: racks of two servers, pods of 3,072 GPUs with full bisection,
// and 1:7 between pods.
TEST(Topology, Llama3sClusterHasASeventhBetweenPods) {
  const Network net = network(tree({{2, 1}, {384, 7}}), 8, 24'576);
  EXPECT_DOUBLE_EQ(net.capacity(net.up(0, 0, 0)), 16 * kPort);
  EXPECT_DOUBLE_EQ(net.capacity(net.up(1, 400, 0)), 3072 * kPort / 7);
  EXPECT_EQ(net.name(net.up(1, 400, 0)), "uplink of switch 1 on tier 2");
  EXPECT_EQ(net.name(net.down(0, 3, 0)), "downlink of leaf switch 1");
}

// Dally and Towles 2004: a k-ary n-cube has nk/4 hops on average and nk/2 at most, for even k
// (section 5.2.2); under uniform traffic each channel carries k/8 of what a node sends.
TEST(Topology, ATorusHasThePublishedHopsAndChannelLoad) {
  for (const auto& sides : std::vector<std::vector<std::int64_t>>{{4, 4}, {8, 8}, {4, 4, 4}, {6}}) {
    const std::int64_t k = sides[0], n = static_cast<std::int64_t>(sides.size());
    const std::int64_t nodes = *most_nodes(torus(sides));
    const Network net = network(torus(sides), 1, nodes);
    double sum = 0, longest = 0;
    for (std::int64_t to = 0; to < nodes; ++to) {
      sum += net.hops(1, to);
      longest = std::max(longest, net.hops(1, to));
    }
    EXPECT_DOUBLE_EQ(sum / static_cast<double>(nodes), static_cast<double>(n * k) / 4);
    EXPECT_EQ(longest, static_cast<double>(n * k) / 2);
    const auto loads = between(net, traffic(net, every(static_cast<std::int32_t>(nodes)),
                                            trace::Op::all_to_all, Pattern::pairs));
    EXPECT_EQ(static_cast<std::int64_t>(loads.size()), 2 * n * nodes);
    for (const auto& [link, bytes] : loads)
      EXPECT_NEAR(bytes, static_cast<double>(k) / 8, 1e-12) << net.name(link);
  }
}

// Neighbours of a ring in the order of the nodes are neighbours on the torus but at the end of a
// row, and no two hops use one link: the ring runs at the speed of a link.
TEST(Topology, ARingOnATorusHasItsLinksForItself) {
  for (const auto& sides : std::vector<std::vector<std::int64_t>>{{4, 4}, {8, 4, 2}, {16}}) {
    const std::int64_t nodes = *most_nodes(torus(sides));
    const auto n = static_cast<double>(nodes);
    const Network net = network(torus(sides), 1, nodes);
    const auto loads = between(net, traffic(net, every(static_cast<std::int32_t>(nodes)),
                                            trace::Op::all_reduce, Pattern::ring));
    EXPECT_DOUBLE_EQ(most(loads), 2 * (n - 1) / n);
  }
}

// Kim et al., ISCA 2008: at most one global link; balanced with a = 2p = 2h, so that uniform
// traffic loads no link more than a node's own.
TEST(Topology, ABalancedDragonflyCarriesUniformTraffic) {
  const Network net = network(dragonfly(2, 4, 2), 1, 72);
  EXPECT_EQ(*most_nodes(dragonfly(2, 4, 2)), 72);
  for (std::int64_t a = 0; a < 72; ++a)
    for (std::int64_t b = 0; b < 72; ++b) {
      if (a == b) continue;
      int global = 0, local = 0;
      net.route(a, b, 0, [&](std::uint32_t link, double share) {
        EXPECT_EQ(share, 1);
        (net.name(link).starts_with("global") ? global : local) += 1;
      });
      EXPECT_EQ(global, a / 8 == b / 8 ? 0 : 1);
      EXPECT_LE(local, global == 1 ? 2 : 1);
    }
  const auto loads = between(net, traffic(net, every(72), trace::Op::all_to_all, Pattern::pairs));
  EXPECT_EQ(loads.size(), 9 * 4 * (3 + 2));
  EXPECT_LE(most(loads), 1);
  EXPECT_GT(most(loads), 0.8);
}

TEST(Topology, LinksBetweenTwoGroupsShareTheirTraffic) {
  Topology two = dragonfly(1, 4, 2);
  two.groups = 3;  // four links between each pair
  const Network net = network(two, 1, 12);
  double sum = 0;
  std::map<std::uint32_t, double> global;
  net.route(0, 5, 0, [&](std::uint32_t link, double share) {
    if (net.name(link).starts_with("global")) global[link] += share, sum += share;
  });
  EXPECT_EQ(global.size(), 4);
  EXPECT_DOUBLE_EQ(sum, 1);
  EXPECT_DOUBLE_EQ(most(global), 0.25);
  // What comes back leaves by the routers where it arrived.
  net.route(5, 0, 0, [&](std::uint32_t, double share) { EXPECT_LE(share, 1); });
}

// m members below a leaf send m (n - m) parts up: 2:1 doubles the time of an all-to-all whose
// members are all in different pods, and of no other.
TEST(Topology, AnAllToAllLoadsUplinksByWhoIsBelow) {
  const Network net = network(tree({{4, 2}}), 8, 8 * 16);
  const auto all = between(net, traffic(net, every(128), trace::Op::all_to_all, Pattern::pairs));
  EXPECT_EQ(all.size(), 8);  // four leaves, up and down
  for (const auto& [link, bytes] : all) EXPECT_DOUBLE_EQ(bytes, 32.0 * 96 / 128);
  const auto loads = traffic(net, every(128), trace::Op::all_to_all, Pattern::pairs);
  // 32 ports of 50 GB/s send 96 of 127 parts away, and half of their bandwidth goes up.
  EXPECT_NEAR(narrowest(net, loads, 127e9, 127e9 * 127 / 128 / kPort).factor, 2 * 96.0 / 127, 1e-9);
  EXPECT_EQ(narrowest(net, loads, 127e9, 1e6).factor, 1);  // slow enough for any link
}

TEST(Topology, ARailHasALeafOfItsOwn) {
  const Network flat = network(tree({{4, 2}}), 8, 8 * 8);
  const Network railed = network(rails(4, 2), 8, 8 * 8);
  EXPECT_DOUBLE_EQ(flat.capacity(flat.up(0, 0, 0)), 32 * kPort / 2);
  EXPECT_DOUBLE_EQ(railed.capacity(railed.up(0, 0, 3)), 4 * kPort / 2);
  EXPECT_EQ(railed.name(railed.up(0, 4, 3)), "uplink of leaf switch 1 of rail 3");
  // Rank 3 of each node: one rail's uplinks carry all of it.
  std::vector<std::int32_t> members;
  for (std::int32_t node = 0; node < 8; ++node) members.push_back(8 * node + 3);
  const auto loads =
      between(railed, traffic(railed, members, trace::Op::all_to_all, Pattern::pairs));
  EXPECT_EQ(loads.size(), 4);
  EXPECT_DOUBLE_EQ(loads.at(railed.up(0, 0, 3)), 4.0 * 4 / 8);
  // Everybody: each of eight rails carries an eighth.
  const auto all =
      between(railed, traffic(railed, every(64), trace::Op::all_to_all, Pattern::pairs));
  EXPECT_EQ(all.size(), 32);
  for (const auto& [link, bytes] : all) EXPECT_DOUBLE_EQ(bytes, 32.0 * 32 / 64 / 8);
}

// Four network cards a rail and tray (GB200 NVL72): 72 ranks, 4 rails.
TEST(Topology, ARackHasSeveralPortsOnARail) {
  Topology racks = rails(8, 1);
  racks.rails = 4;
  const Network net = network(racks, 72, 72 * 16);
  EXPECT_EQ(net.rail_of(70), 2);
  EXPECT_DOUBLE_EQ(net.capacity(net.up(0, 0, 2)), 8 * 18 * kPort);
  const auto ring =
      between(net, traffic(net, every(72 * 16), trace::Op::all_reduce, Pattern::ring));
  // One hop leaves each of two units, over four rails.
  EXPECT_EQ(ring.size(), 16);
  for (const auto& [link, bytes] : ring) EXPECT_NEAR(bytes, 2 * 1151.0 / 1152 / 4, 1e-12);
}

// SHARP sends a buffer up once, whatever is below; a ring's hops add up where they cross.
TEST(Topology, SwitchesThatReducePassOnOneBuffer) {
  Topology sharp = tree({{2, 1}, {4, 1}});
  sharp.sharp = true;
  const Network net = network(sharp, 8, 8 * 16);
  const auto loads =
      between(net, traffic(net, every(128), trace::Op::all_reduce, Pattern::in_network));
  EXPECT_EQ(loads.size(), 2 * (8 + 4));
  for (const auto& [link, bytes] : loads) EXPECT_DOUBLE_EQ(bytes, 1);
  for (const LinkLoad& load : traffic(net, every(128), trace::Op::all_reduce, Pattern::in_network))
    if (net.is_port(load.link) && !net.is_inside(load.link)) {
      EXPECT_DOUBLE_EQ(load.bytes, 1.0 / 8);
    }
  // On rails each rail takes the share of its members.
  Topology railed = sharp;
  railed.kind = Topology::Kind::rails;
  railed.rails = 4;
  const Network by_rail = network(railed, 8, 8 * 16);
  const auto shares =
      between(by_rail, traffic(by_rail, every(128), trace::Op::all_reduce, Pattern::in_network));
  EXPECT_DOUBLE_EQ(shares.at(by_rail.up(0, 0, 1)), 0.25);
  EXPECT_DOUBLE_EQ(shares.at(by_rail.up(1, 0, 0)), 1);
}

// A message changes rails before it leaves its node.
TEST(Topology, AMessageTakesItsReceiversRail) {
  const Network net = network(rails(1, 1), 8, 16);
  const auto loads = between(net, traffic(net, {0, 9}, trace::Op::send, Pattern::message));
  EXPECT_EQ(loads, (std::map<std::uint32_t, double>{{net.up(0, 0, 1), 1}, {net.down(0, 1, 1), 1}}));
  const auto ring = between(net, traffic(net, {0, 9}, trace::Op::all_reduce, Pattern::ring));
  EXPECT_TRUE(ring.contains(net.down(0, 1, 1)) && !ring.contains(net.down(0, 1, 0)));
}

TEST(Topology, HopsAreThoseOfTheRoutes) {
  Topology several = dragonfly(2, 4, 2);
  several.groups = 4;
  for (const Topology& one :
       {tree({{2, 1}, {4, 1}}), torus({4, 3, 2}), torus({2, 2, 6}), dragonfly(1, 4, 2), several}) {
    const Network net = network(one, 1, 24);
    for (std::int64_t from = 0; from < 24; ++from)
      for (std::int64_t to = 0; to < 24; ++to) {
        double sum = 0;
        if (from != to)
          net.route(from, to, 0, [&sum](std::uint32_t, double share) { sum += share; });
        EXPECT_NEAR(net.hops(from, to), sum, 1e-12) << from << " " << to;
      }
  }
}

// 12 ranks on nodes of 8: the four ranks of the second node put a quarter each on their ports,
// which is what their price counts.
TEST(Topology, SwitchesReduceWhatUnequalNodesSend) {
  for (const std::int32_t ranks : {12, 16})
    EXPECT_EQ(pattern_of(trace::Op::all_reduce, packed(ranks, 8), {}, true), Pattern::in_network);
  const Network net = network(tree({{2, 1}}), 8, 16);
  double most = 0;
  for (const LinkLoad& load : traffic(net, every(12), trace::Op::all_reduce, Pattern::in_network))
    if (!net.is_inside(load.link)) most = std::max(most, load.bytes);
  EXPECT_EQ(most, 1.0 / 4);
}

// NVLS within a node reduces in the switch of that node.
TEST(Topology, ANodeThatReducesAloneUsesNoNetwork) {
  const Network net = network(tree({{2, 1}}), 8, 16);
  const auto loads = traffic(net, every(8), trace::Op::all_reduce, Pattern::in_network);
  EXPECT_EQ(loads.size(), 16);
  for (const LinkLoad& load : loads) EXPECT_TRUE(net.is_inside(load.link));
}

TEST(Topology, WhatASenderSendsIsWhatReceiversReceive) {
  const std::vector<std::int32_t> members = {0, 1, 2, 9, 10, 17, 30, 31};
  for (const Topology& topology :
       {tree({{2, 1}, {4, 2}}), rails(2, 1), torus({2, 2}), dragonfly(1, 2, 1)}) {
    const Network net = network(topology, 8, 32);
    for (const auto& [op, pattern] : {std::pair(trace::Op::all_reduce, Pattern::ring),
                                      {trace::Op::all_reduce, Pattern::tree},
                                      {trace::Op::broadcast, Pattern::chain},
                                      {trace::Op::reduce, Pattern::binomial},
                                      {trace::Op::all_to_all, Pattern::pairs},
                                      {trace::Op::gather, Pattern::star},
                                      {trace::Op::scatter, Pattern::star},
                                      {trace::Op::send, Pattern::message}}) {
      double out = 0, in = 0, up = 0, down = 0;
      for (const LinkLoad& load : traffic(net, members, op, pattern)) {
        if (net.is_port(load.link)) {
          if (!net.is_inside(load.link)) (load.link % 2 == 0 ? out : in) += load.bytes;
        } else if (net.has_tiers()) {
          (net.name(load.link).starts_with("uplink") ? up : down) += load.bytes;
        }
      }
      EXPECT_NEAR(out, in, 1e-12) << static_cast<int>(pattern);
      EXPECT_NEAR(up, down, 1e-12) << static_cast<int>(pattern);
      if (pattern != Pattern::message) {
        EXPECT_GT(out, 0);
      }
    }
  }
}

TEST(Topology, WhatCannotBeIsSaid) {
  EXPECT_EQ(topology_problem(tree({}), 8)->key, "/tiers");
  EXPECT_EQ(topology_problem(tree({{4, 1}, {6, 1}}), 8)->key, "/tiers/1/nodes");
  EXPECT_EQ(topology_problem(tree({{4, 1}, {4, 1}}), 8)->key, "/tiers/1/nodes");
  Topology three = rails(4, 1);
  three.rails = 3;
  EXPECT_EQ(topology_problem(three, 8)->key, "/rails");
  EXPECT_EQ(topology_problem(torus({}), 8)->key, "/sides");
  EXPECT_EQ(topology_problem(torus({2048, 2048}), 8)->key, "/sides");
  Topology far = dragonfly(1, 2, 1);
  far.groups = 4;
  EXPECT_EQ(topology_problem(far, 8)->key, "/groups");
  // Routes over 2^20 links between two groups; more links than numbers.
  Topology two = dragonfly(1, 1024, 1024);
  two.groups = 2;
  EXPECT_EQ(topology_problem(two, 8)->key, "/global_links");
  two = dragonfly(1, 1024, 1024);
  two.groups = 1024;
  EXPECT_EQ(topology_problem(two, 8)->key, "/global_links");
  // 2^21 nodes are not offered: no file may say so.
  EXPECT_EQ(topology_problem(tree({{1 << 20, 1}, {1 << 20, 1}}), 8)->fix,
            "leave the last tier out");
  Topology reducing = torus({4});
  reducing.sharp = true;
  EXPECT_EQ(topology_problem(reducing, 8)->key, "/sharp");
  const auto small = Network::make(torus({2, 2}), kLinks, 8, 40);
  ASSERT_FALSE(small);
  EXPECT_THAT(small.error().message, testing::HasSubstr("5 nodes"));
}

}  // namespace
}  // namespace lockstep::sim
