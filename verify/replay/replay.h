// The exact replay: how far can every rank get?
//
// Collectives meet by (group, place in the group's sequence), point-to-point calls by (source,
// destination, tag, group) in order. Without wildcards the matching is unique, and whatever can
// complete stays able to complete, so that one replay that always advances whatever can advance
// reaches the same end as every schedule (the argument of Vakkalanka et al., CAV 2008, for
// deterministic MPI programs). What is stuck at the end is stuck in all of them.
//
// Receives from any source do not fit that: which message each takes is given (WildcardChoices,
// found by verify/schedules/search.h), and the replay is exact for this choice.
//
// Over NCCL a recorded host went on after every call that it issued; it is the devices that are
// replayed. A rank waits at its oldest open call: what it issued later stands in a queue behind
// that one, so that a call which all members issued need not have begun on all of them
// (WaitPoint::behind). Where the trace shows that a call began, it is not behind another.
//
// Traces of a run show that they are of one (was_recorded): where the rank demonstrably went on, it
// went on, and only its last call is in question. A program is replayed from the semantics alone;
// so is a recorded run where the question is what another legal schedule would do (ReplayOptions).
//
// Cost: every event is visited once, O(events log events) with messages.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
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
  std::uint32_t interrupted = kNoCall;  // the unfinished call in which an exception met it
  // Its oldest call without completion, where it hung, died or raised and the replay does not
  // block it: the wait was not recorded, or everybody came and the transport hangs.
  std::uint32_t pending = kNoCall;
  std::uint32_t last_open = kNoCall;  // its last call, where that did not complete: it died in it
  std::int32_t step = trace::kNone;   // the last training step it was seen in

  // The call in which it waits or waited at the end; kNoCall: none.
  std::uint32_t waiting_in() const {
    return blocked != kNoCall ? blocked : interrupted != kNoCall ? interrupted : pending;
  }
};

// A meeting of a group's members, or a pair of point-to-point calls, in which at least one rank
// waits at the end.
struct WaitPoint {
  static constexpr std::size_t kPointToPoint = SIZE_MAX;
  std::size_t group = kPointToPoint;   // index into the groups given
  std::uint64_t meeting = 0;           // index into the group's streams
  std::vector<std::uint32_t> waiting;  // rank indices, ascending
  std::vector<std::uint32_t> missing;  // rank indices that never issued it, ascending
  // Over NCCL: rank indices that issued it after a call that is still open. Their devices have not
  // come to it. Ascending.
  std::vector<std::uint32_t> behind;
  bool unknown_member = false;  // a member without trace: it may have arrived
  bool mismatched = false;      // those who arrived do not agree
  bool any_source = false;      // one of the missing is enough
};

// From whom each receive from any source takes its message, by rank index and call.
struct WildcardChoices {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> sender;  // a rank index
  // What holds for the others: they stay without a message, or they are taken to have one, which
  // then is no message that another receive could take.
  bool others_wait = false;
};

struct ReplayOptions {
  bool live = false;  // a trace without end mark belongs to a rank that may go on
  CallSemantics semantics = CallSemantics::gloo;
  // What a rank's trace shows it passed, it passed. False: the semantics alone decide, and a trace
  // that does not end well is a program whose further way is not known.
  bool follow_record = true;
  bool buffered_sends = false;               // standard sends return at once
  const WildcardChoices* choices = nullptr;  // nullptr: none are known. Not owned
};

struct ReplayResult {
  std::vector<Position> positions;     // by rank index
  std::vector<WaitPoint> wait_points;  // ordered by group and meeting
  std::vector<std::size_t> point_of;   // by rank index; SIZE_MAX: waits nowhere
  // By rank index: no continuation of the ranks that may still move lets this one go on.
  std::vector<bool> stuck;

  struct PointToPointPair {
    std::uint32_t sender, send_call, receiver, recv_call;
  };
  std::vector<PointToPointPair> size_mismatches;  // pairs whose sizes or types differ
  bool has_wildcards = false;  // receives from any source without a choice: taken to be met
  // Sends whose message no receive took, whether or not they completed; by rank index and call.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> left_messages;
  // Point-to-point calls that never met their other side, by rank index and call.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> unmatched;
};

// Whether the traces are of something that ran, and not of a program: times, completions, or an end
// other than a clean one.
bool was_recorded(const trace::Run& run);

ReplayResult replay(const trace::Run& run, const std::vector<GroupStreams>& groups,
                    Agreement& agreement, const ReplayOptions& options);

}  // namespace lockstep::verify
