// The constants of NCCL's tuning model: what NCCL itself estimates a collective's time with when it
// chooses an algorithm and a protocol. All are published in its source; none is fitted here.
//
//   file                what is taken from it                      version
//   src/graph/tuning.cc ncclTunerConstantsDefaults, nvlsEfficiency,
//                       treeCorrectionFactor, getNetOverhead       2.30.7 (NVIDIA/nccl 5067397)
//
// Latencies in microseconds, bandwidths in GB/s (10^9), as there. The rows of bandwidths are GPUs
// (GpuGeneration), their columns one node, two nodes, and more.
#pragma once

#include <array>

namespace lockstep::sim::nccl_constants {

template <std::size_t Columns>
using ByGpu = std::array<std::array<double, Columns>, 4>;
using ByProtocol = std::array<double, 3>;  // LL, LL128, Simple

// baseLatencies: of starting; {tree, ring}. NVLS has none.
inline constexpr std::array<ByProtocol, 2> kBase = {{{6.8, 14.0, 8.4}, {6.6, 14.0, 8.4}}};

// hwLatencies: of a hop over NVLink, PCI and the network; {tree, ring}, and of NVLS under Simple.
inline constexpr std::array<ByProtocol, 2> kNvlink = {{{0.6, 1.25, 4.0}, {0.6, 1.9, 3.4}}};
inline constexpr std::array<ByProtocol, 2> kPci = {{{1.0, 1.9, 4.0}, {1.0, 2.5, 5.7}}};
inline constexpr std::array<ByProtocol, 2> kNetwork = {{{5.0, 8.5, 14.0}, {2.7, 4.0, 14.0}}};
inline constexpr double kNvlsInside = 25.0;
inline constexpr double kNvlsTreeBetween = 20.9;

// getNetOverhead: of posting a step to the network, by the host's processor: {Intel, AMD}.
inline constexpr std::array<double, 2> kPost = {1.0, 2.0};

// llMaxBws: the most that LL reaches. In one node by GPU; over nodes by processor, of which the
// first two rows are {Intel, AMD}.
inline constexpr ByGpu<3> kLlMost = {
    {{39.0, 39.0, 20.4}, {87.7, 22.5, 19.0}, {141.0, 45.0, 35.0}, {282.0, 90.0, 70.0}}};
// perChMax…: the most that a channel reaches.
inline constexpr ByGpu<3> kRingLl128 = {
    {{20.0, 20.0, 20.0}, {20.0, 20.0, 20.0}, {36.7, 36.7, 36.7}, {40.0, 40.0, 40.0}}};
inline constexpr ByGpu<3> kTreeLl128 = {
    {{20.0, 20.0, 20.0}, {20.0, 20.0, 20.0}, {36.7, 36.7, 29.0}, {55.6, 31.67, 20.0}}};
inline constexpr ByGpu<3> kTree = {
    {{26.5, 18.5, 10.0}, {24.0, 23.6, 17.8}, {38.7, 41.4, 36.0}, {70.0, 42.8, 24.0}}};
inline constexpr ByGpu<3> kNvlsTree = {
    {{26.5, 18.5, 10.0}, {24.0, 23.6, 17.8}, {0.0, 57.7, 45.5}, {0.0, 96.0, 80.0}}};
// nvlsEfficiency: Volta and Ampere have no NVLS.
inline constexpr std::array<double, 4> kNvlsEfficiency = {0.0, 0.0, 0.85, 0.74};

// treeCorrectionFactor: of a tree's bandwidth, for 64 B, 128 B, …; the last is not used.
inline constexpr std::array<std::array<double, 24>, 3> kTreeCorrection = {
    {{1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1, 1},
     {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1, 1},
     {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5,
      .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9, .9}}};

// Factors within ncclTopoTuneModel and ncclTopoGetAlgoTime.
inline constexpr double kRingLl = 0.5, kRingLl128Share = 0.92;
inline constexpr double kTreeShare = 0.92, kTreeLl = 1 / 3.8;
inline constexpr double kTreeLl128Inside = 7.0 / 9, kTreeLl128Between = 120.0 / 128;
inline constexpr double kRingPlateau = 1.4, kRingPlateauVolta = 1.9;

}  // namespace lockstep::sim::nccl_constants
