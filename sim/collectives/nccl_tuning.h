// Which algorithm and protocol NCCL chooses for a collective, and how long that takes.
//
// NCCL estimates every pair of algorithm (tree, ring, CollNet direct and chain, NVLS, NVLS tree)
// and protocol (LL, LL128, Simple) as latency + bytes / bandwidth and takes the cheapest. Latencies
// come from the hops, bandwidths from the channels that it found (ncclTopoTuneModel,
// ncclTopoGetAlgoTime, topoGetAlgoInfo; nccl_tuning.cc names the version). nccl_costs() is that
// model, rewritten. It decides the choice; what the chosen pair then takes on a machine is
//
//   latency · L + T / speed + fill · sqrt(latency · L · T / speed)
//
// where L and T are NCCL's latency and transfer time of the chosen pair. The three numbers belong
// to a level (inside a node, between nodes) and are fitted to measurements; 1, 1 and 0 keep NCCL's
// estimate. The last term is that of a pipeline that cuts the buffer into the best number of pieces
// (Sanders, Speck and Träff, Parallel Computing 35(12), 2009: with fill = 2 all three are (sqrt(L)
// + sqrt(T))^2). It applies to Simple, whose pieces wait for each other; LL and LL128 send flags
// with the data and do not need it.
//
// Where the switches between nodes reduce (SHARP, NCCL_COLLNET_ENABLE=1), an all-reduce over nodes
// may go by CollNet: reduced inside the node, all to all (direct, over NVSwitch), along a chain, or
// by NVLS; then once to the network and back, whatever the number of nodes (NVIDIA/nccl issues 320
// and 919). NCCL's estimate of NVLS counts the network as a ring would use it, n/(2(n-1)) of its
// bandwidth; the time on a machine counts each byte once, as it is sent.
//
// Not modelled: all-gathers and reduce-scatters by CollNet, PAT, and what the environment forbids
// (NCCL_ALGO, NCCL_PROTO).
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
enum class NcclAlgorithm : std::uint8_t {
  tree,
  ring,
  collnet_direct,
  collnet_chain,
  nvls,
  nvls_tree
};
enum class NcclProtocol : std::uint8_t { ll, ll128, simple };

// "nvls_tree", "ll128".
std::string_view algorithm_name(NcclAlgorithm algorithm);
std::string_view protocol_name(NcclProtocol protocol);

// "12x30GB/s": NCCL prints this under NCCL_DEBUG_SUBSYS=GRAPH as nChannels 12, bw 30.0.
struct NcclChannels {
  std::int64_t count = 1;
  Bandwidth each;
};
// Parses "12x30GB/s". Errors: another form, no channels or more than kMaxNcclChannels,
// parse_bandwidth()'s.
inline constexpr std::int64_t kMaxNcclChannels = 64;
Result<NcclChannels> parse_nccl_channels(std::string_view text);

// The channels that NCCL found, inside a node or for groups over several nodes.
struct NcclLevel {
  NcclChannels ring;
  // Where a tree's channels are faster inside a node, which NCCL uses for up to two nodes.
  std::optional<NcclChannels> tree;
  std::optional<NcclChannels> nvls;         // inside a node; empty: the switches do not reduce
  double latency = 1, speed = 1, fill = 0;  // fitted factors, see above
};

struct NcclTuning {
  GpuGeneration gpu = GpuGeneration::hopper;
  bool amd = false;    // the hosts' processors are AMD's; else Intel's
  bool nvlink = true;  // inside a node; else PCI
  NcclLevel inside;
  std::optional<NcclLevel> between;
  std::vector<std::string> fitted_to;  // rows of tables, labelled as by `calibrate check`
};

// A group of `ranks` on `nodes`; a full node of the machine holds machine_ranks_per_node. `sharp`:
// the switches between nodes reduce. `fewest` and `most` of its ranks are on one node; 0: all nodes
// have equally many. As in NCCL, the node with the fewest decides how many channels all use
// (src/init.cc), and latencies are those of nodes of ranks / nodes (src/graph/tuning.cc).
struct NcclGroup {
  std::int64_t ranks = 2, nodes = 1, machine_ranks_per_node = 1;
  bool sharp = false;
  std::int64_t fewest = 0, most = 0;
};

struct NcclCost {
  NcclAlgorithm algorithm = NcclAlgorithm::ring;
  NcclProtocol protocol = NcclProtocol::simple;
  double estimate = 0;  // NCCL's own estimate, which decides the choice, in seconds
  double seconds = 0;   // on this machine, by the formula above
};

// Whether NCCL tunes the operation: all_reduce, all_gather, reduce_scatter, broadcast, reduce in
// all their forms, and barrier, which PyTorch carries out as an all-reduce of one element.
bool nccl_tunes(trace::Op op);

// What PyTorch's barrier all-reduces: an element of 4 bytes.
inline constexpr Bytes kNcclBarrier{4};

// Seconds from the start of a call until its first message, on a machine as it is: of messages and
// all-to-alls, too, which NCCL does not tune but starts in the same way.
double nccl_start(const NcclLevel& level);

// The costs of every pair that NCCL could take, in NCCL's order. Requires nccl_tunes(op), ranks >=
// 2, a rank on each node, and `between` for more than one node. `bytes` as in Collective.
// `speed` multiplies the level's; it does not change NCCL's choice.
std::vector<NcclCost> nccl_costs(trace::Op op, const NcclGroup& group, Bytes bytes,
                                 const NcclTuning& tuning, double speed = 1);

// The cost with the lowest estimate; of equal ones the first, as in NCCL.
NcclCost nccl_choice(const std::vector<NcclCost>& costs);

}  // namespace lockstep::sim
