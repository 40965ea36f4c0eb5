// Mailbox: the point-to-point calls of one sender, one receiver and one group that have no partner
// yet.
//
// A message goes to the first posted receive that takes its tag, and a receive takes the first
// message sent with its tag (MPI 4.0, 3.5: messages do not overtake). With one sender and one
// receiver both orders are fixed, so the pairs do not depend on the schedule.
//
// Cost: O(log n) per call.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "trace/run.h"

namespace lockstep::verify {

class Mailbox {
 public:
  static constexpr std::int32_t kAnyTag = -1;  // tag of a receive that takes every tag

  struct Posted {
    std::uint32_t rank = 0, call = 0;
    std::int32_t tag = 0;
  };

  // Returns the receive that takes the message and removes it; nothing where the message now waits.
  std::optional<Posted> post_send(const Posted& send);
  // Returns the message that the receive takes and removes it; nothing where the receive now waits.
  std::optional<Posted> post_receive(const Posted& receive);

  // Whether a message waits that a receive with this tag would take.
  bool holds(std::int32_t tag) const;

  // The calls without a partner: sends first, each side in the order of posting.
  std::vector<Posted> unmet() const;

 private:
  struct Queued {
    std::uint64_t order;
    Posted posted;
  };
  using ByTag = std::map<std::int32_t, std::deque<Queued>>;

  static void remove_first(ByTag& queues, ByTag::iterator queue);

  ByTag sends_, receives_;                      // invariant: no queue is empty
  std::map<std::uint64_t, std::int32_t> sent_;  // tags of all waiting sends, by order
  std::uint64_t next_ = 0;
};

// Finds messages whose other side a bounded recorder dropped. By rank index and call: true for the
// calls whose partner was dropped. Empty where no recorder dropped messages.
//
// The rings of a sender and a receiver begin at different messages, and no recorded number shows
// which ones pair (Flight Recorder counts a rank's messages to all peers in one sequence). The ends
// of the rings do: what one side saw completed, the other side saw completed or has still open. So
// a channel is aligned at its ends:
//
//   sender    … s7 s8 s9         s9 open
//   receiver    … r4 r5 r6 r7    r7 open        s9 pairs with r7, s8 with r6, …
//
// Where one side has more open calls, the surplus pairs with the other side's last completed ones,
// if those completed after the surplus was issued (the other rank was read a little later);
// otherwise the surplus stays open. Where the sizes of the pairs then differ, nearby alignments are
// tried. A call that falls outside the other side's ring was matched by a dropped call.
//
// `hung`: nothing moved any more when the rings were read, so that the surplus always stays open.
// Where the job may still have been moving (short_waits), any number of messages may have passed
// between two readings. Then nothing aligns a channel, and all its messages count as matched.
//
// O(events) where a trace with messages lost its beginning; otherwise O(ranks).
std::vector<std::vector<bool>> find_lost_messages(const trace::Run& run, bool hung);

}  // namespace lockstep::verify
