// NCCL's tuning model against sums written out from its source, and what it chooses.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/collectives/nccl_tuning.h"

namespace lockstep::sim {
namespace {

using ::testing::HasSubstr;
using A = NcclAlgorithm;
using P = NcclProtocol;

NcclTuning hopper() {
  NcclTuning out;
  out.gpu = GpuGeneration::hopper;
  out.inside.ring = *parse_nccl_channels("12x30GB/s");
  out.inside.nvls = *parse_nccl_channels("8x40GB/s");
  out.between.emplace();
  out.between->ring = *parse_nccl_channels("8x48GB/s");
  return out;
}

NcclTuning ampere() {
  NcclTuning out = hopper();
  out.gpu = GpuGeneration::ampere;
  out.amd = true;
  out.inside = {};
  out.inside.ring = *parse_nccl_channels("12x20GB/s");
  out.between->ring = *parse_nccl_channels("16x12GB/s");
  out.between->tree = *parse_nccl_channels("16x15GB/s");
  return out;
}

constexpr NcclGroup kNode{8, 1, 8}, kTwoNodes{16, 2, 8}, kFourNodes{32, 4, 8};

// In microseconds; nothing: NCCL would not take it.
std::optional<double> estimate(A a, P p, const NcclGroup& group, std::int64_t bytes,
                               const NcclTuning& tuning, trace::Op op = trace::Op::all_reduce) {
  for (const NcclCost& cost : nccl_costs(op, group, Bytes{bytes}, tuning))
    if (cost.algorithm == a && cost.protocol == p) return cost.estimate * 1e6;
  return std::nullopt;
}

// A GB/s is 1000 bytes a microsecond.
double transfer(double bytes, double gigabytes) { return bytes / (1000 * gigabytes); }

constexpr std::int64_t kOneMiB = 1 << 20;

TEST(NcclTuning, RingsInsideANode) {
  EXPECT_NEAR(*estimate(A::ring, P::ll, kNode, 8, hopper()),
              6.6 + 14 * 0.6 + transfer(8, 141 * 8 / 14.0), 1e-9);
  EXPECT_NEAR(*estimate(A::ring, P::ll128, kNode, kOneMiB, hopper()),
              14 + 14 * 1.9 + transfer(kOneMiB, 360 * 0.92 * 8 / 14.0), 1e-9);
  EXPECT_NEAR(*estimate(A::ring, P::simple, kNode, kOneMiB, hopper()),
              8.4 + 14 * 3.4 + transfer(kOneMiB, 360 * 8 / 14.0), 1e-9);
  EXPECT_NEAR(*estimate(A::ring, P::ll, kNode, 8, ampere()),
              6.6 + 14 * 0.6 + transfer(8, 87.7 * 8 / 14.0), 1e-9);
}

TEST(NcclTuning, RingsOverNodesPostToTheNetwork) {
  // 30 steps, 2 of them over the network; AMD posts in 2 us, three times that for Simple.
  EXPECT_NEAR(*estimate(A::ring, P::ll, kTwoNodes, 8, ampere()),
              6.6 + 28 * 2.0 + 2 * 2.7 + transfer(8, 22.5 * 16 / 30.0), 1e-9);
  EXPECT_NEAR(*estimate(A::ring, P::simple, kTwoNodes, kOneMiB, ampere()),
              1.4 * (8.4 + 28 * 6.0 + 2 * 14.0) + transfer(kOneMiB, 192 * 16 / 30.0), 1e-9);
  // Less than 64 bytes for a channel and rank: no plateau.
  EXPECT_NEAR(*estimate(A::ring, P::simple, kTwoNodes, 8, ampere()),
              8.4 + 28 * 6.0 + 2 * 14.0 + transfer(8, 192 * 16 / 30.0), 1e-9);
}

// 64 channels of 48 GB/s over the network would be 3072 GB/s over each rank's NVLink, which has
// 360.
TEST(NcclTuning, RingsOverNodesPassTheLinksInside) {
  NcclTuning many = hopper();
  many.between->ring = *parse_nccl_channels("64x48GB/s");
  constexpr std::int64_t kSize = std::int64_t{1} << 30U;
  for (const P p : {P::ll128, P::simple}) {
    const double more = *estimate(A::ring, p, kTwoNodes, 2 * kSize, many, trace::Op::all_gather) -
                        *estimate(A::ring, p, kTwoNodes, kSize, many, trace::Op::all_gather);
    const double share = p == P::simple ? 1 : 0.92;
    EXPECT_NEAR(more, transfer(kSize, share * 360 * 8 / 7.0 * 16 / 15), 1e-6 * more);
  }
}

TEST(NcclTuning, TreesAreCorrectedBySize) {
  // 64 KiB is 2^10 times 64 B.
  EXPECT_NEAR(
      *estimate(A::tree, P::ll, kFourNodes, 65536, hopper()),
      6.8 + 2 * (7 * 0.6 + 2 * 5.0) + transfer(65536, std::min(288 / 3.8, 20.4) * 0.5 * 0.6), 1e-9);
  EXPECT_NEAR(*estimate(A::tree, P::ll128, kFourNodes, kOneMiB, hopper()),
              14 + 2 * (7 * 1.25 + 2 * 8.5) +
                  transfer(kOneMiB, std::min(288 * 120 / 128.0, 8 * 29.0) * 0.5 * 0.6),
              1e-9);
  // Two nodes keep the channels that are faster inside; half a GiB is not corrected any more.
  EXPECT_NEAR(*estimate(A::tree, P::simple, kTwoNodes, 512 * kOneMiB, ampere()),
              8.4 + 2 * (7 * 4.0 + 14.0) + transfer(512.0 * kOneMiB, 240 * 0.92 * 0.5), 1e-6);
  EXPECT_NEAR(*estimate(A::tree, P::simple, kFourNodes, 512 * kOneMiB, ampere()),
              8.4 + 2 * (7 * 4.0 + 2 * 14.0) + transfer(512.0 * kOneMiB, 192 * 0.92 * 0.5), 1e-6);
}

TEST(NcclTuning, SwitchesThatReduce) {
  const double channel = 40 * 0.85 * 7 / 8;
  EXPECT_NEAR(*estimate(A::nvls, P::simple, kNode, kOneMiB, hopper()),
              25 + transfer(kOneMiB, 8 * channel * 2 * 8 / 14), 1e-9);
  EXPECT_NEAR(*estimate(A::nvls, P::simple, kNode, kOneMiB, hopper(), trace::Op::all_gather),
              25 + transfer(kOneMiB, 8 * channel * 7 / 8), 1e-9);
  EXPECT_NEAR(*estimate(A::nvls_tree, P::simple, kFourNodes, kOneMiB, hopper()),
              25 + 2 * 2 * 20.9 + transfer(kOneMiB, 8 * 45.5 * 32 / 62), 1e-9);
  EXPECT_FALSE(estimate(A::nvls, P::simple, kNode, kOneMiB, ampere()));
  EXPECT_FALSE(estimate(A::nvls, P::simple, kFourNodes, kOneMiB, hopper()));
  EXPECT_FALSE(estimate(A::nvls_tree, P::simple, kNode, kOneMiB, hopper()));
  NcclTuning volta = hopper();
  volta.gpu = GpuGeneration::volta;
  EXPECT_FALSE(estimate(A::nvls, P::simple, kNode, kOneMiB, volta));
}

TEST(NcclTuning, OtherOperationsTakeRings) {
  EXPECT_NEAR(*estimate(A::ring, P::simple, kNode, kOneMiB, hopper(), trace::Op::reduce_scatter),
              8.4 + 7 * 3.4 + transfer(kOneMiB, 360 * 8 / 7.0), 1e-9);
  EXPECT_NEAR(*estimate(A::ring, P::simple, kNode, kOneMiB, hopper(), trace::Op::broadcast),
              8.4 + 3.4 + transfer(kOneMiB, 360), 1e-9);
  EXPECT_FALSE(estimate(A::tree, P::simple, kNode, kOneMiB, hopper(), trace::Op::all_gather));
  EXPECT_FALSE(nccl_tunes(trace::Op::all_to_all));
  EXPECT_FALSE(nccl_tunes(trace::Op::send));
  // A barrier is an all-reduce of one element.
  EXPECT_EQ(*estimate(A::ring, P::ll, kNode, 0, hopper(), trace::Op::barrier),
            *estimate(A::ring, P::ll, kNode, 4, hopper()));
}

TEST(NcclTuning, WithoutNvlinkThereIsNoLl128) {
  NcclTuning pci = ampere();
  pci.nvlink = false;
  EXPECT_FALSE(estimate(A::ring, P::ll128, kNode, kOneMiB, pci));
  EXPECT_NEAR(*estimate(A::ring, P::simple, kNode, kOneMiB, pci),
              8.4 + 14 * 5.7 + transfer(kOneMiB, 240 * 8 / 14.0), 1e-9);
}

TEST(NcclTuning, OneRankANodeHasOneNodesShareOfTheCards) {
  EXPECT_NEAR(*estimate(A::ring, P::simple, {4, 4, 8}, 8, hopper()),
              8.4 + 6 * 14.0 + transfer(8, 48 * 4 / 6.0), 1e-9);
  // Latencies of the network are a tree's.
  EXPECT_NEAR(*estimate(A::ring, P::ll, {4, 4, 8}, 8, hopper()),
              6.6 + 6 * 5.0 + transfer(8, std::min(20.4, 24.0) * 4 / 6.0), 1e-9);
}

TEST(NcclTuning, TheCheapestIsChosenAndSizesChangeIt) {
  const auto chosen = [](std::int64_t bytes, const NcclGroup& group) {
    const NcclCost cost =
        nccl_choice(nccl_costs(trace::Op::all_reduce, group, Bytes{bytes}, hopper()));
    return std::string(algorithm_name(cost.algorithm)) + "/" +
           std::string(protocol_name(cost.protocol));
  };
  EXPECT_EQ(chosen(8, kNode), "ring/ll");
  EXPECT_EQ(chosen(16 * kOneMiB, kNode), "nvls/simple");
  EXPECT_EQ(chosen(65536, kFourNodes), "tree/ll");
  EXPECT_EQ(chosen(kOneMiB, kFourNodes), "tree/ll128");
  EXPECT_EQ(chosen(64 * kOneMiB, kFourNodes), "nvls_tree/simple");
  EXPECT_EQ(chosen(1024 * kOneMiB, kFourNodes), "ring/simple");
}

// What was fitted to a machine moves its times, and not what NCCL chooses.
TEST(NcclTuning, FitsChangeTimesAndNoChoice) {
  NcclTuning fitted = hopper();
  fitted.inside.latency = 1.5;
  fitted.inside.speed = 0.8;
  fitted.inside.fill = 0.5;
  const auto before = nccl_costs(trace::Op::all_reduce, kNode, Bytes{kOneMiB}, hopper());
  const auto after = nccl_costs(trace::Op::all_reduce, kNode, Bytes{kOneMiB}, fitted);
  ASSERT_EQ(before.size(), after.size());
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(before[i].estimate, after[i].estimate);
    EXPECT_EQ(before[i].estimate, before[i].seconds);
    EXPECT_GT(after[i].seconds, before[i].seconds);
  }
  const double l = 1.5 * 25e-6, t = transfer(kOneMiB, 476 * 8 / 14.0) * 1e-6 / 0.8;
  EXPECT_NEAR(after.back().seconds, l + t + 0.5 * std::sqrt(l * t), 1e-12);
}

TEST(NcclTuning, AnySizeAndGroupHasAPositiveTime) {
  for (const std::int64_t bytes : {std::int64_t{0}, std::int64_t{1}, std::int64_t{63},
                                   std::int64_t{1} << 40U, std::int64_t{1} << 62U})
    for (const NcclGroup group : {NcclGroup{2, 1, 8}, NcclGroup{2, 2, 8}, NcclGroup{6, 3, 8},
                                  NcclGroup{1 << 20, 1 << 17, 8}})
      for (const trace::Op op : {trace::Op::all_reduce, trace::Op::all_gather, trace::Op::reduce,
                                 trace::Op::broadcast, trace::Op::barrier})
        for (const NcclCost& cost : nccl_costs(op, group, Bytes{bytes}, hopper())) {
          EXPECT_GT(cost.seconds, 0);
          EXPECT_TRUE(std::isfinite(cost.estimate));
        }
}

TEST(NcclChannels, AreReadAsNcclPrintsThem) {
  const auto channels = parse_nccl_channels("12x30GB/s");
  ASSERT_TRUE(channels);
  EXPECT_EQ(channels->count, 12);
  EXPECT_EQ(channels->each.bits_per_second, 240'000'000'000);
  for (const char* wrong : {"", "x", "12", "x30GB/s", "0x30GB/s", "-1x30GB/s", "65x30GB/s",
                            "1 x30GB/s", "99999999999999999999x30GB/s", "12x30", "12x"})
    EXPECT_FALSE(parse_nccl_channels(wrong)) << wrong;
  EXPECT_THAT(parse_nccl_channels("12").error().str(), HasSubstr("12x30GB/s"));
}

// --- Switches that reduce between nodes: NCCL_COLLNET_ENABLE=1.

constexpr NcclGroup kSharp{128, 16, 8, true};

TEST(NcclTuning, CollNetGoesToTheNetworkOnce) {
  // A chain of 8 there and back, and the way through the network, whatever the number of nodes.
  EXPECT_NEAR(*estimate(A::collnet_chain, P::simple, kSharp, kOneMiB, ampere()),
              14 * 2.8 + 30 + transfer(kOneMiB, 0.5 * 240), 1e-9);
  EXPECT_NEAR(*estimate(A::collnet_chain, P::simple, {1024, 128, 8, true}, kOneMiB, ampere()),
              14 * 2.8 + 30 + transfer(kOneMiB, 0.5 * 240), 1e-9);
  // All to all in the node, 0.4 us for each further rank; 12 rings of 30 GB/s are less than twice
  // the network's 8 of 48.
  EXPECT_NEAR(*estimate(A::collnet_direct, P::simple, kSharp, kOneMiB, hopper()),
              2 * (3.7 + 7 * 0.4) + 31 + transfer(kOneMiB, 0.85 * 0.5 * 360), 1e-9);
  // NVLS in the node, at most what the network would carry of a ring.
  EXPECT_NEAR(*estimate(A::nvls, P::simple, kSharp, kOneMiB, hopper()),
              25 + 18 + transfer(kOneMiB, 8 * 48 * 128 / 254.0), 1e-9);
  // A node with one rank has nothing to do inside, and is as far from the network as a tree's.
  EXPECT_NEAR(*estimate(A::collnet_chain, P::simple, {16, 16, 8, true}, kOneMiB, ampere()),
              14 + transfer(kOneMiB, 2 * 12.0), 1e-9);
  for (const A a : {A::collnet_chain, A::collnet_direct, A::nvls}) {
    EXPECT_FALSE(estimate(a, P::simple, {128, 16, 8}, kOneMiB, hopper()));
    EXPECT_FALSE(estimate(a, P::simple, kSharp, kOneMiB, hopper(), trace::Op::all_gather));
    EXPECT_FALSE(estimate(a, P::ll, kSharp, kOneMiB, hopper()));
  }
  EXPECT_FALSE(estimate(A::collnet_direct, P::simple, kSharp, kOneMiB, ampere()));
  EXPECT_FALSE(estimate(A::collnet_chain, P::simple, {8, 1, 8, true}, kOneMiB, ampere()));
}

// NVIDIA/nccl issue 320, a developer's comment of January 2023, of DGX A100 with CollNet at about
// 20 GB/s a card: with 4 cards about 80 GB/s of the buffer; with 8 NVLink is the limit, since it
// carries twice the bytes, at about 110 GB/s, a bus bandwidth of about 220. Nothing is fitted to
// it.
TEST(NcclTuning, CollNetReachesWhatItsDevelopersSay) {
  const auto bandwidth = [](const char* cards, std::int64_t nodes) {
    NcclTuning dgx_a100 = ampere();
    dgx_a100.between->ring = *parse_nccl_channels(cards);
    dgx_a100.between->tree.reset();
    constexpr std::int64_t kBytes = std::int64_t{8} << 30;
    const NcclCost chosen = nccl_choice(
        nccl_costs(trace::Op::all_reduce, {8 * nodes, nodes, 8, true}, Bytes{kBytes}, dgx_a100));
    EXPECT_EQ(chosen.algorithm, A::collnet_chain);
    return static_cast<double>(kBytes) / chosen.seconds / 1e9;
  };
  for (const std::int64_t nodes : {4, 16, 256}) {
    EXPECT_NEAR(bandwidth("8x10GB/s", nodes), 80, 0.05 * 80);
    EXPECT_NEAR(bandwidth("16x10GB/s", nodes), 110, 0.1 * 110);
  }
}

// A ring puts each byte on the network twice, SHARP once; then NVLS inside the nodes is the limit,
// which one node has as well (480 GB/s of the bus).
TEST(NcclTuning, NvlsWithSharpIsAsFastAsOneNode) {
  constexpr std::int64_t kBytes = std::int64_t{8} << 30;
  const auto bus = [](const NcclGroup& group) {
    const NcclCost chosen =
        nccl_choice(nccl_costs(trace::Op::all_reduce, group, Bytes{kBytes}, hopper()));
    const auto n = static_cast<double>(group.ranks);
    return static_cast<double>(kBytes) / chosen.seconds / 1e9 * 2 * (n - 1) / n;
  };
  EXPECT_NEAR(bus(kSharp) / bus(kNode), 1, 0.01);
  EXPECT_LT(bus({128, 16, 8}), 0.85 * bus(kSharp));
  // Small calls, too: one way through the network instead of log2(16) of a tree's.
  const auto small = [](const NcclGroup& group) {
    return nccl_choice(nccl_costs(trace::Op::all_reduce, group, Bytes{64 << 10}, hopper())).seconds;
  };
  EXPECT_LT(small(kSharp), small({128, 16, 8}));
}

}  // namespace
}  // namespace lockstep::sim
