// The constants of NCCL's tuning model, by which NCCL itself estimates a collective's time to
// choose an algorithm and a protocol. All are published in its source; none is fitted here.
//
//   file                what is taken from it                      version
//   src/graph/tuning.cc ncclTunerConstantsDefaults, nvlsEfficiency,
//                       treeCorrectionFactor, getNetOverhead       2.30.7 (NVIDIA/nccl 5067397)
//
// Latencies are in microseconds, bandwidths in GB/s (10^9), as there. Rows of bandwidths are GPUs
// (GpuGeneration); columns are one node, two nodes, and more.

#include "sim/collectives/nccl_tuning.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include <fmt/format.h>

#include "base/check.h"
#include "base/numbers.h"
#include "base/text.h"
#include "sim/collectives/collective.h"

namespace lockstep::sim::nccl_constants {

template <std::size_t Columns>
using ByGpu = std::array<std::array<double, Columns>, 4>;
using ByProtocol = std::array<double, 3>;  // LL, LL128, Simple

// baseLatencies: the start of a collective; {tree, ring}. NVLS has none.
inline constexpr std::array<ByProtocol, 2> kBase = {{{6.8, 14.0, 8.4}, {6.6, 14.0, 8.4}}};

// hwLatencies: a hop over NVLink, PCI and the network; {tree, ring}, and for NVLS under Simple.
inline constexpr std::array<ByProtocol, 2> kNvlink = {{{0.6, 1.25, 4.0}, {0.6, 1.9, 3.4}}};
inline constexpr std::array<ByProtocol, 2> kPci = {{{1.0, 1.9, 4.0}, {1.0, 2.5, 5.7}}};
inline constexpr std::array<ByProtocol, 2> kNetwork = {{{5.0, 8.5, 14.0}, {2.7, 4.0, 14.0}}};
inline constexpr double kNvlsInside = 25.0;
inline constexpr double kNvlsTreeBetween = 20.9, kNvlsBetween = 18.0;
// CollNet under Simple: a step inside a node, over NVLink or PCI alike, and the way through the
// network. kTreeNetwork stands for the latter where a node has one rank of the group.
inline constexpr double kDirectInside = 3.7, kChainInside = 2.8;
inline constexpr double kDirectNetwork = 31.0, kChainNetwork = 30.0, kTreeNetwork = 14.0;
inline constexpr double kDirectArity = 0.4;    // for each further rank of the node
inline constexpr double kDirectHopper = 0.85;  // from compute capability 9.0 on

// getNetOverhead: the host processor posts a step to the network; {Intel, AMD}.
inline constexpr std::array<double, 2> kPost = {1.0, 2.0};

// llMaxBws: the highest bandwidth of LL. For one node the row is the GPU; for several nodes the row
// is the processor, {Intel, AMD} in the first two rows. NCCL indexes one table in both ways.
inline constexpr ByGpu<3> kLlMost = {
    {{39.0, 39.0, 20.4}, {87.7, 22.5, 19.0}, {141.0, 45.0, 35.0}, {282.0, 90.0, 70.0}}};
// perChMax…: the highest bandwidth of a channel.
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

// treeCorrectionFactor: factors of a tree's bandwidth, by protocol, for 64 B, 128 B, 256 B, …; the
// last one is not used.
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

namespace lockstep::sim {
namespace {

using namespace nccl_constants;  // NOLINT(google-build-using-namespace): the table of this file

constexpr double kMicro = 1e-6;
constexpr double kGiga = 1e9;

constexpr std::size_t at(NcclAlgorithm a) { return static_cast<std::size_t>(a); }
constexpr std::size_t at(NcclProtocol p) { return static_cast<std::size_t>(p); }
constexpr std::size_t at(GpuGeneration g) { return static_cast<std::size_t>(g); }

std::int64_t floor_log2(std::int64_t n) {
  return static_cast<std::int64_t>(std::bit_width(static_cast<std::uint64_t>(n))) - 1;
}

// NCCL's estimates for one operation over one group.
class Model {
 public:
  Model(trace::Op op, const NcclGroup& group, Bytes bytes, const NcclTuning& tuning, double speed)
      : op_(op == trace::Op::barrier || op == trace::Op::finalize ? trace::Op::all_reduce
                                                                  : plain_op(op)),
        bytes_(static_cast<double>(
            (op == trace::Op::barrier || op == trace::Op::finalize ? kNcclBarrier : bytes).value)),
        group_(group),
        tuning_(tuning),
        level_(group.nodes > 1 ? *tuning.between : tuning.inside),
        speed_(level_.speed * speed),
        per_node_(group.ranks / group.nodes),
        fewest_(group.fewest > 0 ? group.fewest : per_node_),
        most_(group.most > 0 ? group.most : per_node_),
        // Columns of the tables: 1, 2, and 3 or more nodes.
        nodes_column_(static_cast<std::size_t>(std::min<std::int64_t>(group.nodes, 3) - 1)) {}

  std::vector<NcclCost> costs() const {
    std::vector<NcclCost> out;
    for (const auto a :
         {NcclAlgorithm::tree, NcclAlgorithm::ring, NcclAlgorithm::collnet_direct,
          NcclAlgorithm::collnet_chain, NcclAlgorithm::nvls, NcclAlgorithm::nvls_tree})
      for (const auto p : {NcclProtocol::ll, NcclProtocol::ll128, NcclProtocol::simple})
        if (possible(a, p)) out.push_back(cost(a, p));
    return out;
  }

 private:
  bool possible(NcclAlgorithm a, NcclProtocol p) const {
    // LL128 needs stores of 128 bytes that arrive in one piece, as over NVLink.
    if (p == NcclProtocol::ll128 && !tuning_.nvlink) return false;
    if (a == NcclAlgorithm::ring) return true;
    if (a == NcclAlgorithm::tree) return op_ == trace::Op::all_reduce;
    if (is_collnet(a))  // direct: all to all over NVSwitch, which the GPUs with NVLS have
      return p == NcclProtocol::simple && reduces_between() &&
             (a == NcclAlgorithm::collnet_chain || (tuning_.nvlink && tuning_.inside.nvls));
    // Both NVLS algorithms use Simple only, two channels at least, and a GPU that has NVLS.
    if (p != NcclProtocol::simple || !tuning_.inside.nvls || nvls_channels() < 2 ||
        nccl_constants::kNvlsEfficiency[at(tuning_.gpu)] == 0)
      return false;
    // NVLS works inside one node; a tree over the nodes extends it, for all-reduce only.
    if (a == NcclAlgorithm::nvls_tree) return group_.nodes > 1 && op_ == trace::Op::all_reduce;
    if (group_.nodes > 1) return reduces_between();
    return op_ == trace::Op::all_reduce || op_ == trace::Op::all_gather ||
           op_ == trace::Op::reduce_scatter;
  }

  static bool is_collnet(NcclAlgorithm a) {
    return a == NcclAlgorithm::collnet_direct || a == NcclAlgorithm::collnet_chain;
  }
  bool reduces_between() const {
    return group_.sharp && group_.nodes > 1 && op_ == trace::Op::all_reduce;
  }

  NcclCost cost(NcclAlgorithm a, NcclProtocol p) const {
    const double latency = latency_us(a, p) * kMicro;
    const double transfer = bytes_ / (algorithm_bandwidth(a, p) * kGiga);
    // The header's formula. The estimate stays NCCL's own, so that the choice does, too.
    const double l = level_.latency * latency;
    const double sent = a == NcclAlgorithm::nvls && group_.nodes > 1
                            ? bytes_ / (nvls_with_sharp() * kGiga)
                            : transfer;
    const double t = sent / speed_;
    const double fill = p == NcclProtocol::simple ? level_.fill * std::sqrt(l * t) : 0;
    return {a, p, latency + transfer, l + t + fill};
  }

  // The channels of rings and trees. Over several nodes a group that has only some of a node's
  // ranks uses only their share of the network cards.
  double channels(const NcclChannels& full) const {
    if (group_.nodes == 1) return static_cast<double>(full.count);
    const std::int64_t whole = std::max(group_.machine_ranks_per_node, fewest_);
    return static_cast<double>(std::max<std::int64_t>(1, full.count * fewest_ / whole));
  }
  std::int64_t nvls_channels() const { return std::min(tuning_.inside.nvls->count, fewest_); }

  static double gigabytes(const NcclChannels& c) { return c.each.bytes_per_second() / kGiga; }

  // The bandwidth of a channel. Beyond two nodes a tree is no faster than a ring: it leaves the
  // node over the same cards.
  double channel_bandwidth(NcclAlgorithm a) const {
    const NcclChannels& tree = level_.tree ? *level_.tree : level_.ring;
    if (a == NcclAlgorithm::ring) return gigabytes(level_.ring);
    if (a == NcclAlgorithm::tree)
      return group_.nodes <= 2 ? gigabytes(tree)
                               : std::min(gigabytes(tree), gigabytes(level_.ring));
    const auto heads = static_cast<double>(nvls_channels());
    // NCCL's estimate for an NVLS channel: its bandwidth, the efficiency, and (heads - 1)/heads.
    double inside = gigabytes(*tuning_.inside.nvls) *
                    nccl_constants::kNvlsEfficiency[at(tuning_.gpu)] * (heads - 1) / heads;
    const auto k = static_cast<double>(per_node_);
    inside *= op_ == trace::Op::all_reduce ? 2 : (k - 1) / k;
    if (a == NcclAlgorithm::nvls && group_.nodes == 1) return inside;
    // The network's bandwidth per NVLS channel; NCCL counts a tree's twice for two nodes.
    const bool twice = a == NcclAlgorithm::nvls_tree && group_.nodes == 2;
    const double between = gigabytes(level_.ring) * channels(level_.ring) / heads * (twice ? 2 : 1);
    if (a == NcclAlgorithm::nvls) return std::min(inside, between);
    return std::min({inside, between, nccl_constants::kNvlsTree[at(tuning_.gpu)][nodes_column_]});
  }

  // Bytes of the buffer per second, in GB/s: NVLS inside the nodes, and each byte once over the
  // network.
  double nvls_with_sharp() const {
    NcclGroup inside = group_;
    inside.ranks = per_node_;
    inside.nodes = 1;
    inside.fewest = inside.most = 0;
    const Model node(op_, inside, Bytes{static_cast<std::int64_t>(bytes_)}, tuning_, 1);
    const double bus = static_cast<double>(nvls_channels()) *
                       node.channel_bandwidth(NcclAlgorithm::nvls) *
                       static_cast<double>(group_.ranks) / static_cast<double>(steps());
    return std::min(bus, channels(level_.ring) * gigabytes(level_.ring));
  }

  // The channels of CollNet go as fast inside a node as they can, up to twice the network's
  // bandwidth, since each byte goes up and down there (search.cc, "increase bwIntra").
  double collnet_bus() const {
    const double between = channels(level_.ring) * gigabytes(level_.ring);
    const double share = static_cast<double>(fewest_) /
                         static_cast<double>(std::max(group_.machine_ranks_per_node, fewest_));
    const double inside =
        static_cast<double>(tuning_.inside.ring.count) * gigabytes(tuning_.inside.ring) * share;
    return per_node_ == 1 ? 2 * between : std::min(2 * between, inside);
  }

  // What the channels of a ring or a tree over several nodes can carry inside each: a channel
  // passes all ranks of a node over their links, and leaves the node at the last one. NCCL's search
  // gives channels no more than the links hold (src/graph/search.cc).
  double most_inside_nodes() const {
    const auto k = static_cast<double>(most_);
    return static_cast<double>(tuning_.inside.ring.count) * gigabytes(tuning_.inside.ring) * k /
           (k - 1);
  }

  // Bytes of the buffer per second, in GB/s. First the bandwidth of the bus: all channels, with the
  // protocol's share and limits; then divided by how often each byte crosses it.
  double algorithm_bandwidth(NcclAlgorithm a, NcclProtocol p) const {
    const bool ring = a == NcclAlgorithm::ring, tree = a == NcclAlgorithm::tree;
    const NcclChannels& found = tree && level_.tree ? *level_.tree : level_.ring;
    const double count = ring || tree ? channels(found) : static_cast<double>(nvls_channels());
    const std::size_t gpu = at(tuning_.gpu), column = nodes_column_;
    const double ll_most =
        nccl_constants::kLlMost[group_.nodes == 1 ? gpu : (tuning_.amd ? 1 : 0)][column];
    if (is_collnet(a)) {
      double bus = collnet_bus();
      if (a == NcclAlgorithm::collnet_chain) return 0.5 * bus;
      // "All GPUs must have a local NIC to work at full speed": half of what is missing counts.
      const auto k = static_cast<double>(per_node_);
      const double factor = k / channels(level_.ring);
      bus /= factor - (factor - 1) / 2;
      return 0.5 * bus * (tuning_.gpu >= GpuGeneration::hopper ? nccl_constants::kDirectHopper : 1);
    }
    double bus = count * channel_bandwidth(a);
    if ((ring || tree) && group_.nodes > 1 && most_ > 1) bus = std::min(bus, most_inside_nodes());
    // LL sends 4 bytes of flag with 4 of data, so half the bandwidth; LL128 8 of 128 bytes.
    if (ring && p == NcclProtocol::ll) bus = std::min(ll_most, bus * nccl_constants::kRingLl);
    if (ring && p == NcclProtocol::ll128)
      bus = std::min(bus * nccl_constants::kRingLl128Share,
                     count * nccl_constants::kRingLl128[gpu][column]);
    if (tree)
      bus = std::min(bus * nccl_constants::kTreeShare, count * nccl_constants::kTree[gpu][column]);
    if (tree && p == NcclProtocol::ll) bus = std::min(bus * nccl_constants::kTreeLl, ll_most);
    if (tree && p == NcclProtocol::ll128)
      bus = std::min(bus * (group_.nodes == 1 ? nccl_constants::kTreeLl128Inside
                                              : nccl_constants::kTreeLl128Between),
                     count * nccl_constants::kTreeLl128[gpu][column]);
    // A tree all-reduce sends each byte up and down.
    if (tree) return bus * 0.5 * tree_correction(p);
    if (!ring && op_ != trace::Op::all_reduce) return bus;  // as in NCCL: not divided by the steps
    return bus * static_cast<double>(group_.ranks) / static_cast<double>(steps());
  }

  double tree_correction(NcclProtocol p) const {
    // The table starts at 64 B = 2^6; NCCL ignores its last entry and sizes outside of it.
    const int power = bytes_ >= 1 ? std::ilogb(bytes_) - 6 : -1;
    return power >= 0 && power < 23
               ? nccl_constants::kTreeCorrection[at(p)][static_cast<std::size_t>(power)]
               : 1;
  }

  // Steps of a ring: an all-reduce goes around twice; broadcast and reduce pass all ranks.
  std::int64_t steps() const {
    if (op_ == trace::Op::all_reduce) return 2 * (group_.ranks - 1);
    if (op_ == trace::Op::all_gather || op_ == trace::Op::reduce_scatter) return group_.ranks - 1;
    return group_.ranks;
  }

  double latency_us(NcclAlgorithm a, NcclProtocol p) const {
    const std::int64_t nodes = group_.nodes;
    const auto k = static_cast<double>(per_node_);
    if (a == NcclAlgorithm::nvls)
      return nccl_constants::kNvlsInside + (nodes == 1 ? 0 : nccl_constants::kNvlsBetween);
    if (a == NcclAlgorithm::collnet_direct)
      return 2 * (std::min(1.0, k - 1) * nccl_constants::kDirectInside +
                  (k - 1) * nccl_constants::kDirectArity) +
             (k == 1 ? nccl_constants::kTreeNetwork : nccl_constants::kDirectNetwork);
    if (a == NcclAlgorithm::collnet_chain)
      return 2 * (k - 1) * nccl_constants::kChainInside +
             (k == 1 ? nccl_constants::kTreeNetwork : nccl_constants::kChainNetwork);
    if (a == NcclAlgorithm::nvls_tree)
      return nccl_constants::kNvlsInside +
             2 * static_cast<double>(floor_log2(nodes)) * nccl_constants::kNvlsTreeBetween;
    const auto& in = tuning_.nvlink ? nccl_constants::kNvlink : nccl_constants::kPci;
    const double inside = in[at(a)][at(p)];
    // With one rank per node, NCCL takes the tree's network latency for rings as well.
    const auto net = per_node_ == 1 ? NcclAlgorithm::tree : a;
    const double between = nccl_constants::kNetwork[at(net)][at(p)];
    if (a == NcclAlgorithm::tree)
      return nccl_constants::kBase[at(a)][at(p)] +
             2 * (static_cast<double>(per_node_ - 1) * inside +
                  static_cast<double>(floor_log2(nodes)) * between);
    if (op_ == trace::Op::broadcast || op_ == trace::Op::reduce)  // pipelined: one hop counts
      return nccl_constants::kBase[at(a)][at(p)] +
             (nodes == 1 ? inside : nccl_constants::kNetwork[at(a)][at(p)]);
    // Simple posts three times a step. A step lasts at least as long as posting it.
    const double post = nodes == 1 ? 0
                                   : nccl_constants::kPost[tuning_.amd ? 1 : 0] *
                                         (p == NcclProtocol::simple ? 3 : 1);
    const std::int64_t over_network =
        nodes == 1 ? 0 : (op_ == trace::Op::all_reduce ? 2 : 1) * (nodes - 1);
    double out = nccl_constants::kBase[at(a)][at(p)] +
                 static_cast<double>(steps() - over_network) * std::max(inside, post) +
                 static_cast<double>(over_network) * between;
    // NCCL's correction for the plateau of Simple rings over several nodes, from 64 bytes per rank
    // and channel.
    const double per_channel = bytes_ / (channels(level_.ring) * static_cast<double>(group_.ranks));
    if (p == NcclProtocol::simple && nodes > 1 && op_ == trace::Op::all_reduce && per_channel >= 64)
      out *= tuning_.gpu == GpuGeneration::volta ? nccl_constants::kRingPlateauVolta
                                                 : nccl_constants::kRingPlateau;
    return out;
  }

  trace::Op op_;
  double bytes_;
  const NcclGroup& group_;
  const NcclTuning& tuning_;
  const NcclLevel& level_;
  double speed_;
  std::int64_t per_node_;  // the mean, rounded down
  std::int64_t fewest_, most_;
  std::size_t nodes_column_;
};

}  // namespace

std::string_view algorithm_name(NcclAlgorithm algorithm) {
  static constexpr std::array<std::string_view, 6> kNames = {
      "tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree"};
  return kNames[at(algorithm)];
}

std::string_view protocol_name(NcclProtocol protocol) {
  static constexpr std::array<std::string_view, 3> kNames = {"ll", "ll128", "simple"};
  return kNames[at(protocol)];
}

Result<NcclChannels> parse_nccl_channels(std::string_view text) {
  const std::size_t times = std::min(text.find('x'), text.size());
  const auto count = parse_number<std::int64_t>(text.substr(0, times));
  if (times == text.size() || !count || *count < 1 || *count > kMaxNcclChannels) {
    return Error{
        fmt::format("\"{}\" is not a number of channels with a bandwidth", printable(text)),
        {},
        fmt::format("write from 1 to {} channels and the bandwidth of each: 12x30GB/s",
                    kMaxNcclChannels)};
  }
  const Result<Bandwidth> each = parse_bandwidth(text.substr(times + 1));
  if (!each) return each.error();
  return NcclChannels{*count, *each};
}

bool nccl_tunes(trace::Op op) {
  switch (plain_op(op)) {
    case trace::Op::all_reduce:
    case trace::Op::all_gather:
    case trace::Op::reduce_scatter:
    case trace::Op::broadcast:
    case trace::Op::reduce:
    case trace::Op::barrier:
    case trace::Op::finalize:
      return true;
    default:
      return false;
  }
}

double nccl_start(const NcclLevel& level) {
  return level.latency * kMicro *
         nccl_constants::kBase[at(NcclAlgorithm::ring)][at(NcclProtocol::ll)];
}

std::vector<NcclCost> nccl_costs(trace::Op op, const NcclGroup& group, Bytes bytes,
                                 const NcclTuning& tuning, double speed) {
  LOCKSTEP_CHECK(nccl_tunes(op) && group.ranks >= 2 && group.nodes >= 1 &&
                     group.ranks >= group.nodes && (group.nodes == 1 || tuning.between),
                 "a group that NCCL's model has no answer for");
  return Model(op, group, bytes, tuning, speed).costs();
}

NcclCost nccl_choice(const std::vector<NcclCost>& costs) {
  LOCKSTEP_CHECK(!costs.empty(), "no algorithm at all");
  return *std::min_element(costs.begin(), costs.end(), [](const NcclCost& a, const NcclCost& b) {
    return a.estimate < b.estimate;
  });
}

}  // namespace lockstep::sim
