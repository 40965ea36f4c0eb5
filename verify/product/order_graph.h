// The order in which the collectives and messages of a step can complete, whatever the ranks
// choose.
//
// An instance (ProductInstance) is one call of a channel: (channel, index within the step). Where
// all sequences agree on every channel, every assignment has the same instances, and a rank waits
// only for an instance that some member has not reached yet. A rank that blocks on instance m
// before it issues its call of n makes n wait for m: the edge m -> n. Without a cycle, the
// instances complete in an order that every sequence respects, and nobody waits forever. A cycle
// whose edges come from choices that ranks can make at the same time is a deadlock in every
// schedule of that assignment.
//
// Edges share one vertex for each position where a sequence blocks, so the graph is linear in the
// sequences. `device`: kernels of different communicators run one by one (NCCL), so a call holds up
// all later ones on every channel.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "verify/product/evaluation.h"
#include "verify/product/sequence_table.h"

namespace lockstep::verify {

struct ProductInstance {
  ChannelId channel;
  std::uint32_t index = 0;
  friend auto operator<=>(const ProductInstance&, const ProductInstance&) = default;
};

struct InstanceOrder {
  std::vector<ProductInstance> order;  // the instances that no cycle holds up
  std::vector<ProductInstance> held;   // those on a cycle or after one; ascending
};

// O(items of the sequences named). Channels of a single rank are left out.
InstanceOrder order_instances(const SequenceTable& sequences, std::span<const SequenceId> which,
                              bool device);

// A cycle in which each rank has one sequence: in link i, `rank` with `sequence` blocks on
// `instance` before it reaches the next link's.
struct Cycle {
  struct Link {
    std::int32_t rank = 0;
    SequenceId sequence;
    ProductInstance instance;
  };
  std::vector<Link> links;
};

struct CycleSearch {
  std::optional<Cycle> cycle;  // with the fewest ranks
  bool complete = true;        // false: the search reached its limit
};

// Searches a cycle among `held` with one choice per rank; ranks that choose together take choices
// that belong together. A shortest cycle visits each rank once, because two links of one rank can
// be joined. Exponential in the worst case (finding a cycle with one sequence per rank is a path
// problem with forbidden pairs); limited to 5 million steps and to `budget`, from which the steps
// are subtracted.
CycleSearch find_cycle(const SequenceTable& sequences, const Evaluation& evaluation,
                       const std::vector<ProductInstance>& held, bool device,
                       std::uint64_t& budget);

}  // namespace lockstep::verify
