// Which algorithm and protocol NCCL takes for a collective, and how long that lasts.
//
// NCCL estimates every pair of algorithm (tree, ring, NVLS, NVLS tree) and protocol (LL, LL128,
// Simple) as latency + bytes / bandwidth, with latencies from the hops and bandwidths from the
// channels that it found, and takes the cheapest (ncclTopoTuneModel, ncclTopoGetAlgoTime,
// topoGetAlgoInfo; nccl_tuning.cc names the version). nccl_costs() is that model, in our words. It
// is what NCCL goes by; what a machine then takes is
//
//   latency · L + T / speed + fill · sqrt(latency · L · T / speed)
//
// with L and T, NCCL's latency and transfer, of the pair that NCCL chose. The three numbers are a
// level's (inside a node, between nodes) and are fitted to measurements; 1, 1 and 0 leave NCCL's
// estimate as it is. The last term is that of a pipeline which cuts the buffer into the best
// number of pieces (Sanders, Speck and Träff, Parallel Computing 35(12), 2009: with fill = 2 all
// three are (sqrt(L) + sqrt(T))^2). Simple has it, whose pieces wait for each other; LL and LL128
// send flags with the data, and have none.
//
// Left out: collnet, PAT, and what the environment forbids (NCCL_ALGO, NCCL_PROTO).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/quantities.h"
#include "base/result.h"
#include "trace/signature.h"

namespace lockstep::sim {

enum class GpuGeneration : std::uint8_t { volta, ampere, hopper, blackwell };
enum class NcclAlgorithm : std::uint8_t { tree, ring, nvls, nvls_tree };
enum class NcclProtocol : std::uint8_t { ll, ll128, simple };

// "nvls_tree", "ll128".
std::string_view algorithm_name(NcclAlgorithm algorithm);
std::string_view protocol_name(NcclProtocol protocol);

// "12x30GB/s": what NCCL prints at NCCL_DEBUG_SUBSYS=GRAPH as nChannels 12, bw 30.0.
struct NcclChannels {
  std::int64_t count = 1;
  Bandwidth each;
};
// Errors: no such form, no channels or more than kMostNcclChannels, parse_bandwidth()'s.
inline constexpr std::int64_t kMostNcclChannels = 64;
Result<NcclChannels> parse_nccl_channels(std::string_view text);

// What NCCL found inside a node, or for groups over several nodes.
struct NcclLevel {
  NcclChannels ring;
  // Where a tree's channels are faster inside a node: NCCL does so for two nodes.
  std::optional<NcclChannels> tree;
  std::optional<NcclChannels> nvls;  // inside a node; nothing: switches that do not reduce
  double latency = 1, speed = 1, fill = 0;
};

struct NcclTuning {
  GpuGeneration gpu = GpuGeneration::hopper;
  bool amd = false;    // the hosts' processors; else Intel's
  bool nvlink = true;  // inside a node; else PCI
  NcclLevel inside;
  std::optional<NcclLevel> between;
  std::vector<std::string> fitted_to;  // rows of tables, as `calibrate check` labels them
};

// n ranks, as many on each of the nodes, of `machine_ranks_per_node` that a full node holds.
struct NcclGroup {
  std::int64_t ranks = 2, nodes = 1, machine_ranks_per_node = 1;
};

struct NcclCost {
  NcclAlgorithm algorithm = NcclAlgorithm::ring;
  NcclProtocol protocol = NcclProtocol::simple;
  double estimate = 0;  // what NCCL goes by, in seconds
  double seconds = 0;   // on this machine
};

// Whether NCCL tunes the operation: all_reduce, all_gather, reduce_scatter, broadcast, reduce in
// all their forms, and barrier, which PyTorch carries out as an all-reduce of one element.
bool nccl_tunes(trace::Op op);

// Every pair that NCCL could take, in its order. Needs nccl_tunes(op), ranks >= 2, ranks a multiple
// of nodes, and `between` where there is more than one node. `bytes` as sim/collectives counts.
std::vector<NcclCost> nccl_costs(trace::Op op, const NcclGroup& group, Bytes bytes,
                                 const NcclTuning& tuning);

// The one of least estimate; of equals the first, as in NCCL.
NcclCost nccl_choice(const std::vector<NcclCost>& costs);

}  // namespace lockstep::sim
