// price(): what one call costs on a machine. Every command that prices calls asks this function:
// `simulate collective`, scenarios, traces with a machine, plans and sweeps.
//
// It has three sources. The last one in this list that the machine has and that knows the call
// counts:
//
//   formula   the closed form of Gloo's algorithm (closed_form.h), or rings over nodes; if the
//             network can reduce, all-reduces between nodes go through its switches
//   tuning    what NCCL would choose, by NCCL's own estimates (nccl_tuning.h)
//   measured  a few points of size and time, and the interpolation between them
//
// Measured are all-reduces. All-gathers, reduce-scatters, broadcasts and reductions are priced by
// the other two sources; their bytes move as fast as those of the largest measured all-reduces if
// both go by the same algorithm. A barrier of NCCL's is an all-reduce of 4 bytes. Smaller than what
// was measured inside a node, an all-reduce takes no longer than one of two whole nodes.
//
// Interpolation: two points give a latency and a bandwidth, down to a quarter of the smaller one's
// size; below that the other two sources say how much less a call takes. With three points or more,
// time is linear in the logarithms between two neighbours, because NCCL changes algorithm and
// protocol with the size; after the last one it grows in proportion to the bytes. Between two
// measured numbers of ranks on one level of links, times are interpolated linearly in the ranks, at
// the sizes that put equally many bytes on each link.
//
// Measurements are of the machine as its file describes it. If it was changed since (a what-if:
// links twice as fast), they are scaled by the change that one of the other two sources predicts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/quantities.h"
#include "base/result.h"
#include "sim/collectives/collective.h"
#include "sim/collectives/nccl_tuning.h"
#include "sim/network/topology.h"
#include "trace/signature.h"

namespace lockstep::sim {

// Where the members of a group are, as far as the cost of its calls depends on it.
struct GroupLayout {
  std::int64_t ranks = 1;
  std::int64_t nodes = 1;
  // Ranks on each of its nodes; where these differ, the fewest: a ring leaves that node over the
  // links of these alone.
  std::int64_t per_node = 1;
  // Links between switches that a message passes; 0 if they add no latency (Topology::hop).
  double ring_hops = 0;  // from one of its nodes to the next: the mean
  double pair_hops = 0;  // from any of its nodes to any other: the mean
  double most_hops = 0;  // from its first node to another: the most
  // Ranks on its fullest node; 0: as on each of the others.
  std::int64_t fullest = 0;
  std::int64_t on_fullest() const { return std::max(per_node, fullest); }

  friend auto operator<=>(const GroupLayout&, const GroupLayout&) = default;
};

// Ranks 0 … ranks - 1, on as few nodes as hold them.
GroupLayout packed(std::int64_t ranks, std::int64_t ranks_per_node);

// All-reduces of one group size as measured, for example by nccl-tests.
struct MeasuredCalls {
  std::string from;        // the table's name for the machine: "h100_32_ib"
  std::int64_t ranks = 2;  // on as few nodes as hold them
  struct Point {
    Bytes bytes;
    Picos time;
  };
  std::vector<Point> points;  // ascending in bytes, at least two
};

// The links between the ranks of a machine, and what carries calls on them.
struct Interconnect {
  std::int64_t ranks_per_node = 1;
  Links links;  // one level, or two: inside a node, between nodes
  // If NCCL carries the calls: what it found on those links. Empty: calls go as in Gloo's code.
  std::optional<NcclTuning> nccl;
  // The network between the nodes, whose links all calls share (sim/network/traffic.h). Empty: no
  // calls share a link.
  std::optional<Topology> network;
  std::vector<MeasuredCalls> measured;
  // The machine that was measured, without `measured`: set_measured() remembers it.
  std::shared_ptr<const Interconnect> as_measured;
};

struct Call {
  trace::Op op = trace::Op::all_reduce;
  Bytes bytes;  // as in Collective
};

enum class PriceSource : std::uint8_t { formula, tuning, measured };
std::string_view source_name(PriceSource source);  // "NCCL's tuning"

struct Price {
  Picos time;  // exact where the source is a formula
  PriceSource source = PriceSource::formula;
  std::optional<NcclCost> chosen;  // if NCCL carries the call: what it takes
};

// True if a call that NCCL does not carry is priced as rings over several nodes.
bool goes_in_rings(trace::Op op, const GroupLayout& layout);

// The time of a call from its last member's arrival to its end, when nothing else uses its links.
// `speed`: bytes move this many times as fast as the machine says; latencies stay. One rank alone
// takes no time.
//
// The formula for all-reduce, all-gather and reduce-scatter of n ranks on N nodes with k ranks
// each, in rings over the nodes:
//
//   r(k-1)·a' + r⌈log2 N⌉·a + r(n-1)/n·B/min(beta', k·beta) + reducing
//
// with r = 2 for all-reduce, else 1; primes mark the links inside a node. Where nodes have
// different numbers of ranks, the fullest one's k counts for the latency, and the smallest one's
// for the bandwidth. These rings leave a node over the links of all its ranks, as NCCL's channels
// do, but with the latency of a tree, which NCCL uses where latency matters. All-to-alls, gathers
// and scatters are a message to (or from) each other rank, over the links that lead there:
//
//   (k-1)(a' + B/n·b') + (n-k)(a + B/n·b)
//
// All other calls cost what closed_form.h says, with the links between nodes if the group leaves
// its node. Carried by NCCL, messages and what consists of them take its start of a call in
// addition. Where the
// network reduces (Topology::sharp), an all-reduce goes up to the switches and down once:
//
//   2(k-1)·a' + 2·a + B/min(beta', k·beta)
//
// Links between switches add Topology::hop for each step of the algorithm over the network and each
// link on its way: in rings between neighbours, in trees (also that of the formula above) and
// direct messages between any two nodes, by switches that reduce the longest way up and down once.
// The price does not include delays by other calls or by full links: the engine
// simulates those (sim/engine/shared_links.h).
//
// Errors: an operation that is not modelled, a time beyond the range of the clock (106 days).
Result<Price> price(const Call& call, const GroupLayout& layout, const Interconnect& machine,
                    double speed = 1);

// How NCCL carries the call. Empty where the machine has no NCCL or NCCL's model does not apply:
// operations that it does not tune, one rank alone, nodes with different numbers of ranks, several
// nodes on a machine with one level of links.
std::optional<NcclCost> nccl_call(const Call& call, const GroupLayout& layout,
                                  const Interconnect& machine, double speed = 1);

// Adds measurements of the machine as it is now. They are assumed to come from a network that
// limits nothing and does not reduce, whatever the machine's network is.
void set_measured(Interconnect& machine, std::vector<MeasuredCalls> measured);

// Says of a machine whose file was changed after it was read that `original` was measured, so that
// its measurements are scaled by the change.
void measured_on(Interconnect& machine, const Interconnect& original);

}  // namespace lockstep::sim
