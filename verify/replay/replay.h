// The exact replay: how far can every rank get?
//
// Collectives match by (group, index in the group's sequence), point-to-point calls by (source,
// destination, tag, group) in order. Without wildcard receives the matching is unique, and what can
// complete stays able to complete. So one replay that advances whatever can advance reaches the
// same end as every schedule (the argument of Vakkalanka et al., CAV 2008, for deterministic MPI
// programs). What is stuck at the end is stuck in all schedules.
//
// For receives from any source this does not hold. The message that each one takes is an input
// (WildcardChoices, found by verify/schedules/search.h), and the replay is exact for that choice.
//
// Over NCCL, a recorded host continued after every call that it issued, so the replay is about the
// devices. A rank waits at its oldest open call. Its later calls are queued after that one, so a
// call that all members issued need not have begun on all of them (WaitPoint::behind). A call that
// the trace shows as started is not queued.
//
// Traces are of a run or of a program (was_recorded). In a run, a rank passed every call that its
// trace shows it passed; only its last call is in question. A program is replayed by the semantics
// alone. So is a run when the question is what another legal schedule would do (ReplayOptions).
//
// Cost: each event is visited once; O(events log events) with messages.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "trace/run.h"
#include "verify/replay/semantics.h"
#include "verify/streams/agreement.h"
#include "verify/streams/streams.h"

namespace lockstep::verify {

inline constexpr std::uint32_t kNoCall = UINT32_MAX;

// A call of a run.
struct CallRef {
  std::uint32_t rank = 0;  // index into Run::ranks
  std::uint32_t call = kNoCall;
};

// Where one rank stands at the end.
struct Position {
  enum class State : std::uint8_t {
    finished,  // its program ended
    running,   // live traces: it may go on
    cut,       // its trace stops without an end mark: killed, crashed, or the file was cut off
    killed,
    raised,  // an exception ended it
    hung,    // a watchdog ended it
  } state = State::finished;
  std::uint32_t blocked = kNoCall;      // the call in which it is blocked, by the replay
  std::uint32_t interrupted = kNoCall;  // the unfinished call in which it raised an exception
  // Its oldest incomplete call, where it hung, died or raised although the replay does not block
  // it: the wait was not recorded, or all members issued the call and the transport hangs.
  std::uint32_t pending = kNoCall;
  std::uint32_t last_open = kNoCall;  // its last call, if that did not complete: it died in it
  std::int32_t step = trace::kNone;   // the last training step it was seen in

  // The call in which it waits or waited at the end; kNoCall: none.
  std::uint32_t waiting_in() const {
    return blocked != kNoCall ? blocked : interrupted != kNoCall ? interrupted : pending;
  }
};

// An instance of a collective, or a point-to-point call, in which at least one rank waits at the
// end.
struct WaitPoint {
  static constexpr std::size_t kPointToPoint = SIZE_MAX;
  std::size_t group = kPointToPoint;   // index into the groups given
  std::uint64_t instance = 0;          // the instance: index into each stream of the group
  std::vector<std::uint32_t> waiting;  // rank indices, ascending
  std::vector<std::uint32_t> missing;  // rank indices that never issued it, ascending
  // Over NCCL: rank indices that issued it after a call that is still open, so that their devices
  // have not begun it. Ascending.
  std::vector<std::uint32_t> behind;
  bool unknown_member = false;  // a member may have issued it unseen: no trace, or its file ends
  bool mismatched = false;      // the calls that were issued do not agree
  bool any_source = false;      // one of the missing ranks is enough; of a collective, too, where
                                // the dumps do not list its group's members
};

// The sender of the message that each receive from any source takes, by rank index and call.
struct WildcardChoices {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> sender;  // a rank index
  // What happens to receives without a choice. True: they never get a message. False: they got one
  // that was not recorded.
  bool others_wait = false;
};

struct ReplayOptions {
  bool live = false;  // a trace without end mark belongs to a rank that may go on
  CallSemantics semantics = CallSemantics::gloo;
  // A rank passed each call that its trace shows it passed. False: the semantics alone decide, and
  // a rank that did not end cleanly is a program that continues in an unknown way.
  bool follow_record = true;
  bool buffered_sends = false;               // standard sends return at once
  const WildcardChoices* choices = nullptr;  // nullptr: none are known; not owned
  // The job hung: ranks without an end mark hang where their traces end, and what one side of a
  // message saw completed, the other side saw completed, too.
  bool hung = false;
  // Which kernels a device runs one after the other: a rank waits in each of these calls before it
  // goes on to the next call, and neither in others nor where it waits for a call. Other than
  // `none` with `follow_record` false.
  enum class Serial : std::uint8_t { none, collectives, collectives_and_receives };
  Serial serial = Serial::none;
};

struct ReplayResult {
  std::vector<Position> positions;     // by rank index
  std::vector<WaitPoint> wait_points;  // by group and instance; point-to-point calls come last
  std::vector<std::size_t> point_of;   // by rank index; SIZE_MAX: waits nowhere
  // By rank index: proven that this rank never continues, whatever the ranks that can still move
  // do.
  std::vector<bool> stuck;

  struct PointToPointPair {
    std::uint32_t sender, send_call, receiver, recv_call;
  };
  std::vector<PointToPointPair> size_mismatches;  // pairs whose sizes or types differ
  bool has_wildcards =
      false;  // some receives from any source have no choice; they count as matched
  // Sends whose message no receive took, completed or not; by rank index and call.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> left_messages;
  // Point-to-point calls without a partner, by rank index and call.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> unmatched;
};

// Whether the traces were recorded from a run rather than written as a program: they have times,
// completions, or an end other than a clean one. O(events).
bool was_recorded(const trace::Run& run);

// Replays all ranks. `groups` are those of group_streams(run).
ReplayResult replay(const trace::Run& run, const std::vector<GroupStreams>& groups,
                    Agreement& agreement, const ReplayOptions& options);

}  // namespace lockstep::verify
