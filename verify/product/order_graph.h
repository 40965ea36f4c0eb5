// In which order the meetings of a step can take place, whatever the ranks choose.
//
// A meeting is one call of a channel: (channel, place within the step). Where all sequences agree
// on every channel, every assignment has the same meetings, and a rank is held up only by a meeting
// that some member has not come to yet. A rank that blocks on meeting m before it issues a call of
// n makes n wait for m: the edge m -> n. Without a circle the meetings take place in an order that
// every sequence respects, and nobody waits for ever; a circle whose edges come from ranks that may
// make these choices at once is a deadlock in every schedule of that assignment.
//
// Edges run over one vertex for each place where a sequence blocks, so that the graph is linear in
// the sequences. `device`: what one communicator enqueues also keeps back what comes after it on
// another (NCCL kernels that run one by one), so that a call holds up all later ones.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "verify/product/evaluation.h"
#include "verify/product/sequence_table.h"

namespace lockstep::verify {

struct ProductMeeting {
  std::uint32_t channel = 0;
  std::uint32_t place = 0;
  friend auto operator<=>(const ProductMeeting&, const ProductMeeting&) = default;
};

struct MeetingOrder {
  std::vector<ProductMeeting> order;  // of those that no circle holds up
  std::vector<ProductMeeting> held;   // on a circle, or behind one; ascending
};

// O(items of the sequences named). Channels of a single rank are left out.
MeetingOrder order_meetings(const SequenceTable& sequences, std::span<const std::uint32_t> which,
                            bool device);

// A circle in which each rank has one sequence: link i says that `rank`, doing `sequence`, blocks
// on `meeting` before it comes to the next link's.
struct Circle {
  struct Link {
    std::int32_t rank = 0;
    std::uint32_t sequence = 0;
    ProductMeeting meeting;
  };
  std::vector<Link> links;
};

struct CircleSearch {
  std::optional<Circle> circle;  // of the fewest ranks
  bool complete = true;          // false: given up at the bound
};

// Among `held`, of the choices that each rank has; ranks that choose as one take what goes
// together. A shortest circle passes each rank once: two links of one rank can be cut short.
// Exponential at worst (whether a circle exists that
// uses one sequence a rank is a path problem with forbidden pairs); bounded by 5 million steps and
// by `budget`, from which those taken are subtracted.
CircleSearch find_circle(const SequenceTable& sequences, const Evaluation& evaluation,
                         const std::vector<ProductMeeting>& held, bool device,
                         std::uint64_t& budget);

}  // namespace lockstep::verify
