#include "verify/waits.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trace/evidence/failure_messages.h"
#include "verify/blocking/blocking.h"
#include "verify/blocking/endings.h"
#include "verify/blocking/passed_by.h"
#include "verify/blocking/program_divergence.h"
#include "verify/blocking/stalls.h"
#include "verify/blocking/unanswered.h"
#include "verify/blocking/wait_evidence.h"
#include "verify/blocking/wait_graph.h"
#include "verify/blocking/witnesses.h"
#include "verify/matching/matching.h"
#include "verify/replay/semantics.h"

namespace lockstep::verify {

namespace {

// Whether all ranks were killed together, apart from those that had finished: the job was preempted
// or interrupted, or somebody ended its hang. Then nothing shows whether a rank waited for a killed
// one for a millisecond or for an hour. (A rank without an end mark, where others have one,
// died by itself.)
bool ended_together(const Context& context, const WaitCause& wait) {
  const auto killed = [&](std::uint32_t r) {
    return context.where.positions[r].state == Position::State::killed;
  };
  const bool by_user = std::all_of(wait.roots.begin(), wait.roots.end(), [&](std::uint32_t r) {
    return context.run.ranks[r].end == trace::End::interrupted;
  });
  // The end of a rank that the user interrupted fails the calls of the others.
  const auto over = [&](std::uint32_t r) {
    const Position::State state = context.where.positions[r].state;
    const auto& marks = context.run.ranks[r].exceptions;
    return state == Position::State::killed || state == Position::State::cut ||
           state == Position::State::finished ||
           (by_user && state == Position::State::raised && !marks.empty() &&
            trace::mentions_a_peer(marks.back().what));
  };
  if (!std::all_of(wait.roots.begin(), wait.roots.end(), killed)) return false;
  for (std::uint32_t r = 0; r < context.run.ranks.size(); ++r)
    if (!over(r)) return false;
  return true;
}

// Whether a call that all members issued does not complete because a rank died in it.
bool lost_a_rank(const Context& context, const WaitCause& wait) {
  return std::any_of(wait.roots.begin(), wait.roots.end(), [&](std::uint32_t r) {
    const Position::State state = context.where.positions[r].state;
    return state == Position::State::killed || state == Position::State::cut;
  });
}

// Notes a wait that may have ended soon after the traces did. Dumps are taken of running processes,
// so a call that all members issued may be under way.
void note_unended_wait(const Context& context, const WaitCause& wait, bool snapshot,
                       OpenQuestions& questions) {
  std::string why = wait_consequence(context, wait).message;
  if (!snapshot) {
    if (wait.stalled != SIZE_MAX) return;
    why += ": all traces just end, and nothing shows whether it was late or would never have come";
  } else if (wait.stalled != SIZE_MAX) {
    const std::string running =
        may_be_running(context, context.where.wait_points[wait.stalled], wait.victims);
    if (!running.empty()) why = running;
  } else {
    const bool one = wait.roots.size() == 1;
    why += fmt::format(
        ": the dumps do not show whether {} {}, {} in a message (Gloo's dumps hold none), or will "
        "never come; take them again a minute later",
        one ? "it" : "they", one ? "computes" : "compute", one ? "waits" : "wait");
  }
  questions.undecided.push_back(std::move(why));
}

// Why the ranks that seem to have stopped may wait: in a message whose other side the source does
// not name (the watchdog's messages), so that the replay takes it for done. Empty: they do not.
std::string may_be_in_unknown_message(const Context& context, const WaitCause& wait) {
  for (const std::uint32_t r : wait.roots) {
    const trace::RankTrace& trace = context.run.ranks[r];
    for (std::uint32_t c = 0; c < trace.calls.size(); ++c) {
      const trace::Call& call = trace.calls[c];
      const bool waits = call.has(trace::kWaitBegan) && !call.has(trace::kWaitEnded) &&
                         !is_over(call, context.semantics);
      if (!waits || !context.run.tables.is_message(call) || call.peer.value != trace::kNone ||
          is_any_source(context.run.tables, call, context.semantics))
        continue;
      return fmt::format("{}, but {} waits in {}, whose other side is not recorded",
                         wait_consequence(context, wait).message, context.describe_ranks({r}),
                         context.describe_call({r, c}));
    }
  }
  return "";
}

// The call of a wait in which the ranks of the odd program wait, where it is the very one by which
// they diverge from most ranks of their kind, which made another call there. Null: there is none.
const WaitPoint* in_odd_call(const Context& context, const WaitCause& wait, const OddProgram& odd) {
  if (!odd.by_numbers || odd.kind == OddProgram::Kind::swapped) return nullptr;
  for (const std::size_t p : wait.points) {
    const WaitPoint& point = context.where.wait_points[p];
    if (point.group != WaitPoint::kPointToPoint && point.waiting == odd.deviants &&
        point.waiting.size() < point.missing.size() &&
        context.where.positions[point.waiting[0]].waiting_in() == odd.index) {
      return &point;
    }
  }
  return nullptr;
}

// Explains a wait for ranks of which nothing shows in which call they hang, where the calls still
// show what keeps them: some went past the call in which others wait, a rank waits in a call that
// most ranks of its kind did not make, or it left out a message that its peer posted.
std::optional<Cause> told_by_the_calls(const Context& context, const WaitCause& wait) {
  if (!passed_by_deviations(context, wait).empty()) return explain_wait(context, wait);
  const OddProgram* const odd = context.odd_program;
  if (odd == nullptr) return std::nullopt;
  std::optional<Cause> cause;
  if (const WaitPoint* const point = in_odd_call(context, wait, *odd)) {
    Deviation extra = missing_at(context, *point, point->missing);
    turn_around(extra);
    cause = explain_deviation(context, extra);
  } else if (is_missed_by_peers(context, *odd)) {
    cause = explain_odd_program(context, *odd);
  }
  if (cause) cause->finding.consequences.push_back(wait_consequence(context, wait));
  return cause;
}

// Whether the calls that were issued make up the cycle. A rank that lacks the call in which another
// one waits may still issue it: over NCCL its host goes on while its device waits.
bool is_cycle_of_issued(const Context& context, const WaitCause& wait) {
  const auto some_root = [&](const std::vector<std::uint32_t>& ranks) {
    return std::any_of(ranks.begin(), ranks.end(), [&](std::uint32_t rank) {
      return std::binary_search(wait.roots.begin(), wait.roots.end(), rank);
    });
  };
  return wait.cycle && std::none_of(wait.points.begin(), wait.points.end(), [&](std::size_t p) {
           const WaitPoint& point = context.where.wait_points[p];
           return some_root(point.waiting) && some_root(point.missing);
         });
}

// The waits for ranks whose traces just end come last where they are held up by a rank, too, that
// finished: it is known to make no further call, while the traces may have been cut off.
// O(points · log(points)).
void move_cut_ranks_last(const Context& context, std::vector<WaitCause>& waits) {
  const auto has_state = [&](const WaitCause& wait, Position::State state) {
    return !wait.cycle && wait.stalled == SIZE_MAX &&
           context.where.positions[wait.roots[0]].state == state;
  };
  std::set<std::size_t> of_finished;
  for (const WaitCause& wait : waits) {
    if (!has_state(wait, Position::State::finished)) continue;
    const std::vector<std::size_t> points = points_of_roots(context, wait);
    of_finished.insert(points.begin(), points.end());
  }
  if (of_finished.empty()) return;
  std::stable_partition(waits.begin(), waits.end(), [&](const WaitCause& wait) {
    if (!has_state(wait, Position::State::cut)) return true;
    const std::vector<std::size_t> points = points_of_roots(context, wait);
    return std::none_of(points.begin(), points.end(),
                        [&](std::size_t p) { return of_finished.contains(p); });
  });
}

}  // namespace

void add_wait_causes(const Context& context, const std::string& late, OpenQuestions& questions,
                     Causes& causes) {
  const bool snapshot = is_snapshot(context.run);
  std::vector<WaitCause> left;
  for (WaitCause& wait : wait_causes(context.where)) {
    // While the job runs, a wait that may still end is not a finding. Where all traces just end, it
    // is reported as undecided: whoever killed the job may know how long it stood.
    if (context.live && !wait.stuck) {
      if (questions.all_cut) note_unended_wait(context, wait, snapshot, questions);
      continue;
    }
    // All members issued the call and it does not complete: a stall, unless it had just begun.
    if (wait.stalled != SIZE_MAX) {
      if (lost_a_rank(context, wait)) continue;  // Causes::add_deaths reports it
      std::string why =
          may_be_running(context, context.where.wait_points[wait.stalled], wait.victims);
      if (why.empty() && !late.empty()) why = wait_consequence(context, wait).message + late;
      if (why.empty()) {
        left.push_back(std::move(wait));
      } else if (causes.empty()) {
        questions.undecided.push_back(std::move(why));
      }
      continue;
    }
    // A cycle stays a finding even if somebody killed the job: it is proven by the calls alone.
    if (!wait.cycle && causes.empty() && !context.hung && ended_together(context, wait)) {
      if (interruption(context)) continue;  // reported by itself; nothing more is known
      questions.undecided.push_back(
          fmt::format("{}: all ranks were ended, and nothing shows whether it was late or would "
                      "never have come",
                      wait_consequence(context, wait).message));
      continue;
    }
    if (std::string why = may_be_in_newest_call(context, wait);
        !why.empty() && !causes.explain(wait)) {
      if (!causes.empty()) continue;  // they hang in calls that follow from the cause
      if (std::optional<Cause> told = told_by_the_calls(context, wait)) {
        causes.add(std::move(*told));
      } else {
        questions.undecided.push_back(std::move(why));
      }
      continue;
    }
    if (std::string why = may_be_in_unknown_message(context, wait); !why.empty()) {
      if (causes.empty()) questions.undecided.push_back(std::move(why));
      continue;
    }
    if (causes.explain(wait)) {
      left.push_back(std::move(wait));
      continue;
    }
    if (std::optional<Cause> shift = find_shift_before(context, wait)) {
      causes.add(std::move(*shift));
    } else if (snapshot) {
      // A snapshot looks at the ranks one after the other, so a rank may seem to wait for one that
      // was only looked at earlier.
      std::string why = may_be_ahead(context, wait);
      // A cycle, and a call that was passed by, do not depend on when the ranks were looked at.
      if (why.empty() && !late.empty() && !is_cycle_of_issued(context, wait) &&
          passed_by_deviations(context, wait).empty()) {
        why = wait_consequence(context, wait).message + late;
      }
      if (!why.empty() && causes.empty()) {
        questions.undecided.push_back(std::move(why));
        continue;
      }
    }
    left.push_back(std::move(wait));
  }
  move_cut_ranks_last(context, left);
  for (const WaitCause& wait : left) causes.add_wait(wait);
  causes.merge_sister_groups();
}

}  // namespace lockstep::verify
