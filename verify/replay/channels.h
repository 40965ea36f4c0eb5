// Mailbox: the point-to-point calls of one sender, one receiver and one group that have not met.
//
// A message goes to the first receive posted that takes its tag, and a receive takes the first
// message sent that has its tag (MPI 4.0, 3.5: messages do not overtake). With one sender and one
// receiver both orders are fixed, so that who meets whom does not depend on the schedule.
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
  static constexpr std::int32_t kAnyTag = -1;  // of a receive

  struct Posted {
    std::uint32_t rank = 0, call = 0;
    std::int32_t tag = 0;
  };

  // The receive that takes the message; nothing where it now waits for one.
  std::optional<Posted> post_send(const Posted& send);
  // The message that the receive takes; nothing where it now waits for one.
  std::optional<Posted> post_receive(const Posted& receive);

  // Whether a message waits that a receive with this tag would take.
  bool holds(std::int32_t tag) const;

  // Those that have not met, sends first, each in the order of posting.
  std::vector<Posted> unmet() const;

 private:
  struct Queued {
    std::uint64_t order;
    Posted posted;
  };
  using ByTag = std::map<std::int32_t, std::deque<Queued>>;

  static void remove_first(ByTag& queues, ByTag::iterator queue);

  ByTag sends_, receives_;                      // no queue is empty
  std::map<std::uint64_t, std::int32_t> sent_;  // order to tag, of all waiting sends
  std::uint64_t next_ = 0;
};

// Messages whose other side a bounded recorder lost.
//
// The rings of a sender and of a receiver begin at different messages, and no number that both
// record tells which pair (Flight Recorder counts each rank's messages to all peers in one). The
// ends do: what one side saw completed, the other side saw completed or has still open. A channel
// is lined up so that its open calls pair; where one side has more of them, so that the surplus
// pairs with the other side's last completed ones, if these completed after the surplus was issued
// (the other side was looked at a little later); else so that it stays open. Where sizes do not
// agree so, nearby places are tried. What then has no place in the other side's window met a call
// that was lost.
//
// O(events) where a trace with messages lost its beginning; else O(ranks).

// By rank index and call: true for those that met a lost call. Empty where nothing was lost.
std::vector<std::vector<bool>> find_lost_messages(const trace::Run& run);

}  // namespace lockstep::verify
