// Searches the schedules that receives from any source allow: which end, and which get stuck?
//
// A state is each rank's position and the messages and receives without a partner. Everything that
// depends on no choice happens at once, since it commutes with everything else
// (verify/replay/replay.h says why), so only states at rest matter. There, a receive from any
// source may take the first message of each sender, unless a receive posted earlier takes that
// message. These are the only choices. The search tries all of them, with three reductions:
//
//   - If nobody can send any further message that a receive could take, its choices are
//     independent of everything else: they are tried first, and alone (a persistent set; Godefroid
//     1996).
//   - If a rank only receives from any source, always with the same tag (or only once), from
//     senders that do not wait, the order of messages makes no difference: one choice is enough.
//     The same holds if the rank does nothing but receive from any source until it has taken
//     everything that can come: every waiting sender continues, in any order.
//   - A state that was seen before is not entered again.
//
// This is the search of ISP (Vakkalanka, CAV 2008) on a recorded program instead of a running one.
// It is exponential in the worst case, so its work is limited; at the limit `complete` is false.
//
// What a program does after a receive may depend on the sender. A recorded run shows one case only.
// So a receive after which the rank addresses the sender of its message keeps that sender: with
// another sender, the program would have issued other calls than the recorded ones.
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

// The choices of a schedule, for a replay. Receives that get no message in it wait forever.
WildcardChoices choices_of(const Schedule& schedule);

struct ScheduleSearch {
  bool has_wildcards = false;
  bool whole = true;     // all ranks left traces, from the start of the program
  bool complete = true;  // whole, and all schedules were tried, or one that ends and one stuck
  // A schedule that agrees with the record, for recorded runs: each rank passes what its trace
  // shows it passed, and hangs where it hung.
  std::optional<Schedule> fitting;
  std::optional<Schedule> ending;       // every rank reaches the end of its trace
  std::optional<Schedule> stuck;        // some ranks can never continue
  std::optional<Schedule> differing;    // a message does not fit its receive, …
  std::optional<WildcardMatch> misfit;  // … namely this one
  std::vector<std::uint32_t> steered;   // ranks whose receives kept their sender, ascending
  // Receives of the fitting schedule that had more than one message to take.
  std::vector<WildcardMatch> contested;
};

struct SearchOptions {
  bool buffered_sends = false;  // standard sends return before their receive
  // A schedule that fits the record, if known from an earlier search; not owned.
  const Schedule* fitting = nullptr;
  std::uint64_t work = 20'000'000;  // elementary steps; ten million take about a tenth of a second
  std::size_t states = 50'000;      // states with more than one choice
};

// Searches for schedules of each kind. Without receives from any source, only has_wildcards is set.
ScheduleSearch search_schedules(const trace::Run& run, const std::vector<GroupStreams>& groups,
                                CallSemantics semantics, const SearchOptions& options);

}  // namespace lockstep::verify
