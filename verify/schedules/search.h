// The schedules that receives from any source leave open: which of them end, and which get stuck?
//
// A state is how far each rank is and which messages and receives have not met. Everything that
// does not depend on a choice happens at once: it commutes with all else (verify/replay/replay.h
// says why), so that only states at rest matter. There, each receive from any source may take the
// first message that each sender has for it, as long as no receive posted earlier would take that
// message. These are the only choices, and the search tries all of them, with three reductions:
//
//   - A receive to which nobody can send any more than is there already depends on nothing else:
//     its choices alone are tried before any other's (a persistent set; Godefroid 1996).
//   - Where a rank receives from anybody only, always with the same tag (or gets but one), from
//     senders that do not wait, all messages are as good as each other: one choice stands for all.
//     So it does where the rank does nothing but receive from anybody until it has all that can
//     come: whoever waits for a message to be taken is let go in that run, in whatever order.
//   - A state that was seen before is not entered again.
//
// This is the search of ISP (Vakkalanka, CAV 2008) on a recorded program instead of a running one.
// Exponential at worst, so that it has a bound on its work; at the bound `complete` is false.
//
// What a program does after a receive may depend on whose message it took. A recorded run shows one
// way only, and so a receive after which the rank turned to the sender of its message keeps it:
// other choices would be tried with calls that the program would not have made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "trace/run.h"
#include "verify/replay/replay.h"
#include "verify/schedules/machine.h"
#include "verify/schedules/program.h"
#include "verify/streams/streams.h"

namespace lockstep::verify {

struct Schedule {
  std::vector<WildcardMatch> matches;  // in the order in which they happen
};

// The choices of a schedule, for a replay; receives that it leaves without a message stay so.
WildcardChoices choices_of(const Schedule& schedule);

struct ScheduleSearch {
  bool has_wildcards = false;
  bool whole = true;     // all ranks left traces that start where the program does
  bool complete = true;  // they did, and all schedules were tried (or enough to know both ends)
  // One that fits what was recorded, if anything was: each rank passes what its trace shows it
  // passed, and hangs where it hung.
  std::optional<Schedule> fitting;
  bool fitting_differs = false;         // … in which some message does not fit its receive
  std::optional<Schedule> ending;       // one in which every rank reaches the end of its trace
  std::optional<Schedule> stuck;        // one in which ranks can never go on
  std::optional<Schedule> differing;    // one in which a message does not fit its receive, …
  std::optional<WildcardMatch> misfit;  // … and these two are they
  std::vector<std::uint32_t> steered;   // ranks whose receives kept their sender, ascending
  // Receives of the fitting schedule that had more than one message to take.
  std::vector<WildcardMatch> contested;
};

struct SearchOptions {
  bool buffered_sends = false;  // standard sends return before their receive
  // Where a schedule that fits the record is known from an earlier search. Not owned.
  const Schedule* fitting = nullptr;
  std::uint64_t work = 20'000'000;  // elementary steps; ten million take about a tenth of a second
  std::size_t states = 50'000;      // that have more than one way to go on
};

ScheduleSearch search_schedules(const trace::Run& run, const std::vector<GroupStreams>& groups,
                                CallSemantics semantics, const SearchOptions& options);

// The search: a depth-first walk over the states at rest of a ScheduleMachine, in which no state is
// entered twice.

// What a walk looks for.
class ScheduleVisitor {
 public:
  virtual ~ScheduleVisitor() = default;

  // Which matches may be chosen at all, and in which order the choices of a state are tried.
  virtual bool allows(const WildcardMatch& match) const = 0;
  virtual void order(std::vector<ScheduleChoice>& choices) const = 0;

  // A message did not fit its receive; a state is an end: nothing is left to choose. `path` leads
  // there.
  virtual void misfit(const WildcardMatch& match, const std::vector<ScheduleChoice>& path) = 0;
  virtual void end(ScheduleMachine& machine, const ScheduleState& state,
                   const std::vector<ScheduleChoice>& path) = 0;

  // Whether enough is known.
  virtual bool done() const = 0;
};

// From the start. False where a bound ended it: the machine's work, `state_limit` states with more
// than one way to go on, or 256 MiB of states kept at once.
bool walk_schedules(ScheduleMachine& machine, std::size_t state_limit, ScheduleVisitor& visitor);

}  // namespace lockstep::verify
