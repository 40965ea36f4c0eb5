#include "verify/input.h"

#include <algorithm>
#include <compare>
#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"
#include "trace/evidence/failure_messages.h"
#include "verify/blocking/stopped.h"
#include "verify/blocking/wait_graph.h"
#include "verify/context.h"
#include "verify/replay/replay.h"
#include "verify/streams/streams.h"
#include "verify/unexplained.h"

namespace lockstep::verify {

namespace {

Finding note_missing(const std::vector<trace::Rank>& missing) {
  Finding f = make_finding(RuleId::missing_rank);
  f.message = fmt::format("no trace of {} was given; what {} did is unknown",
                          describe_ranks(missing), missing.size() == 1 ? "it" : "they");
  f.ranks = missing;
  set_fingerprint(f, "");
  return f;
}

// The last step that the rank is known to have been in; kNone if no record says.
std::int32_t last_step(const trace::RankTrace& trace) {
  std::int64_t out = trace.calls.empty() ? trace::kNone : trace.calls.back().step;
  if (!trace.steps.empty()) out = std::max(out, trace.steps.back().n);
  if (!trace.modalities.empty()) out = std::max(out, trace.modalities.back().n);
  return static_cast<std::int32_t>(out);
}

// "the traces of ranks 0, 1 have no end mark …, last seen in step 147".
std::string describe_cut(const trace::Run& run, const std::vector<trace::Rank>& cut) {
  const bool one = cut.size() == 1;
  std::int32_t step = trace::kNone;
  for (const trace::Rank r : cut) step = std::max(step, last_step(*run.find(r)));
  return fmt::format(
      "the {} of {} {} no end mark: killed, crashed, or still at work when {} copied{}",
      one ? "trace" : "traces", describe_ranks(cut), one ? "has" : "have",
      one ? "it was" : "they were",
      step == trace::kNone ? "" : fmt::format(", last seen in step {}", step));
}

Finding note_damaged(const trace::Run& run, const std::vector<trace::Rank>& damaged) {
  constexpr std::size_t kShown = 8;
  Finding f = make_finding(RuleId::damaged_trace);
  std::uint64_t records = 0;
  std::vector<trace::Rank> cut;
  for (const trace::Rank r : damaged) {
    const trace::RankTrace& trace = *run.find(r);
    records += trace.damaged_count;
    if (trace.end == trace::End::cut) cut.push_back(r);
    for (const trace::DamagedRecord& d : trace.damaged) {
      const Evidence record{r, std::nullopt, printable(d.location.str()), printable(d.message)};
      const auto is_shown = [&](const Evidence& shown) {
        return shown.rank == r && shown.at == record.at && shown.text == record.text;
      };
      if (f.evidence.size() < kShown &&
          std::none_of(f.evidence.begin(), f.evidence.end(), is_shown))
        f.evidence.push_back(record);
    }
  }
  if (records > 0) f.message = fmt::format("{} could not be used", plural(records, "record"));
  if (!cut.empty()) f.message += (f.message.empty() ? "" : "; ") + describe_cut(run, cut);
  f.message += "; everything else counts";
  f.ranks = damaged;
  set_fingerprint(f, "");
  return f;
}

Finding note_conflicts(const trace::Run& run) {
  Finding f = make_finding(RuleId::inconsistent_header);
  f.message = printable(join_and(run.header_conflicts, 4));
  set_fingerprint(f, "");
  return f;
}

constexpr std::size_t kMostShown = 8;  // those that most ranks wait for

// The wait points whose ranks wait for one rank without a trace.
struct AwaitedAt {
  std::vector<std::size_t> alone;  // for this rank only
  std::vector<std::size_t> among;  // also for others, with a trace or without
  auto operator<=>(const AwaitedAt&) const = default;
};

std::map<trace::Rank, AwaitedAt> awaited_ranks(const Context& context) {
  std::map<trace::Rank, AwaitedAt> out;
  const std::vector<WaitPoint>& points = context.where.wait_points;
  for (std::size_t p = 0; p < points.size(); ++p) {
    const WaitPoint& point = points[p];
    if (point.any_source) continue;
    const std::vector<trace::Rank> absent = absent_at(context, point);
    const bool others = !point.missing.empty() || !point.behind.empty() || absent.size() > 1;
    for (const trace::Rank rank : absent) {
      (others ? out[rank].among : out[rank].alone).push_back(p);
    }
  }
  return out;
}

// True if more ranks wait at `a` than at `b`: first by those that wait for one rank only, then by
// the others.
bool more_wait(const Context& context, const AwaitedAt& a, const AwaitedAt& b) {
  const auto waiting = [&](const std::vector<std::size_t>& points) {
    std::size_t ranks = 0;
    for (const std::size_t p : points) ranks += context.where.wait_points[p].waiting.size();
    return ranks;
  };
  return std::pair(waiting(a.alone), waiting(a.among)) >
         std::pair(waiting(b.alone), waiting(b.among));
}

// Whether the rank waited until its timeout was over, as Gloo's exceptions say, and ended then.
bool gave_up_waiting(const trace::RankTrace& trace) {
  return trace.end == trace::End::exception && !trace.exceptions.empty() &&
         trace::mentions_a_peer(trace.exceptions.back().what) &&
         trace::mentions_timeout(trace.exceptions.back().what);
}

// Sets the note's headline if ranks of a job that hangs, or hung until they gave up, wait only for
// ranks without a trace.
//
// If the job is only presumed to hang (Context::presumed), two more things must hold, because in a
// job that still runs some ranks always wait in the newest call:
// - other ranks wait for the waiting ranks, so that these are behind the job;
// - no rank with a trace is behind without waiting for another.
void tell_missing_stopped(const Context& context, Finding& note) {
  const std::vector<WaitPoint>& points = context.where.wait_points;
  std::vector<std::size_t> points_of_missing;  // whose ranks wait only for ranks without a trace
  for (std::size_t p = 0; p < points.size(); ++p) {
    const WaitPoint& point = points[p];
    if (point.any_source || !point.missing.empty() || !point.behind.empty()) continue;
    if (point.waiting.empty() || absent_at(context, point).empty()) continue;
    const trace::RankTrace& waits = context.run.ranks[point.waiting[0]];
    if (context.presumed || waits.snapshot || waits.end == trace::End::hung ||
        gave_up_waiting(waits))
      points_of_missing.push_back(p);
  }
  if (points_of_missing.empty()) return;
  if (context.presumed) {
    const std::vector<WaitCause> causes = wait_causes(context.where);
    const bool others_are_behind =
        std::any_of(causes.begin(), causes.end(),
                    [](const WaitCause& wait) { return !wait.cycle && wait.stalled == SIZE_MAX; });
    if (others_are_behind) return;
  }
  const std::size_t first = first_missed(context, points_of_missing);
  const std::vector<trace::Rank> ranks = absent_at(context, points[first]);
  std::erase_if(points_of_missing,
                [&](std::size_t p) { return absent_at(context, points[p]) != ranks; });
  std::vector<std::uint32_t> direct;
  for (const std::size_t p : points_of_missing) direct = united(direct, points[p].waiting);
  const std::vector<std::uint32_t> all = all_waiting(context, points_of_missing);
  if (context.presumed && all.size() == direct.size()) return;
  // The watchdog's messages of a few ranks, as in the output of one node, do not show that all the
  // others stopped. Where nothing tells how many ranks there are, neither do those of half.
  const bool most_wait =
      knows_world_size(context.run) ? all.size() >= ranks.size() : all.size() > ranks.size();
  const trace::RankTrace& waits = context.run.ranks[points[first].waiting[0]];
  const bool gave_up = gave_up_waiting(waits);
  if ((waits.end == trace::End::hung || gave_up) && !most_wait) return;
  tell_stopped(context,
               {.ranks = ranks,
                .verb = context.presumed ? "may have stopped"
                        : gave_up        ? "stopped or took another way"
                                         : "stopped",
                .alive = !gave_up,
                .point = first,
                .missed = missed_call(context, {}, points[first]),
                .waiting = all.size()},
               note);
  const trace::Call& call = context.call(waiting_call(context, points[first].waiting[0]));
  note.group = printable(context.run.tables.str(call.group));
  note.seq = seq_at(context, points[first]);
}

}  // namespace

InputState check_input(const trace::Run& run, bool ends_seen) {
  InputState state;
  // Ranks are sorted, so one pass over the world suffices.
  std::size_t next = 0;
  // Two kinds of traces have no end mark although nothing is wrong: snapshots of running processes,
  // and traces without times, which are programs (they end at their last call) or logs.
  const bool recorded = was_recorded(run);
  const auto ended_unseen = [&](const trace::RankTrace& trace) {
    return trace.end == trace::End::cut && !ends_seen && !trace.snapshot &&
           (recorded || trace.events.empty());
  };
  for (std::int32_t r = 0; r < run.world_size; ++r) {
    if (next < run.ranks.size() && run.ranks[next].rank.value == r) {
      const trace::RankTrace& trace = run.ranks[next++];
      if (trace.damaged_count > 0 || ended_unseen(trace)) {
        state.damaged.push_back(trace.rank);
      }
    } else {
      state.missing.push_back(trace::Rank(r));
    }
  }
  if (!state.missing.empty()) state.findings.push_back(note_missing(state.missing));
  if (!state.damaged.empty()) state.findings.push_back(note_damaged(run, state.damaged));
  if (!run.header_conflicts.empty()) state.findings.push_back(note_conflicts(run));
  return state;
}

void leave_out_killed_waiters(const Context& context, const std::vector<Finding>& findings,
                              InputState& state) {
  const auto is_explained = [&](trace::Rank rank) {
    return std::any_of(findings.begin(), findings.end(), [&](const Finding& f) {
      return f.severity == Severity::error &&
             std::find(f.ranks.begin(), f.ranks.end(), rank) != f.ranks.end();
    });
  };
  const auto left_out = std::erase_if(state.damaged, [&](trace::Rank rank) {
    const trace::RankTrace& trace = *context.run.find(rank);
    const auto index = static_cast<std::size_t>(&trace - context.run.ranks.data());
    return trace.damaged_count == 0 && context.where.positions[index].waiting_in() != kNoCall &&
           is_explained(rank);
  });
  if (left_out == 0) return;
  std::erase_if(state.findings, [](const Finding& f) { return f.rule == RuleId::damaged_trace; });
  if (!state.damaged.empty()) state.findings.push_back(note_damaged(context.run, state.damaged));
}

void note_who_waits_for_missing(const Context& context, const std::vector<trace::Rank>& missing,
                                Finding& note) {
  const std::map<trace::Rank, AwaitedAt> awaited = awaited_ranks(context);
  std::map<AwaitedAt, std::vector<trace::Rank>> alike;
  std::vector<trace::Rank> not_waited_for;
  for (const trace::Rank rank : missing) {
    const auto found = awaited.find(rank);
    (found == awaited.end() ? not_waited_for : alike[found->second]).push_back(rank);
  }
  std::vector<std::pair<AwaitedAt, std::vector<trace::Rank>>> waited_for(alike.begin(),
                                                                         alike.end());
  std::sort(waited_for.begin(), waited_for.end(), [&](const auto& a, const auto& b) {
    if (more_wait(context, a.first, b.first)) return true;
    return !more_wait(context, b.first, a.first) && a.second < b.second;
  });
  std::size_t reported = 0;
  for (const auto& [at, ranks] : waited_for) {
    if (reported++ == kMostShown) break;
    const bool alone = !at.alone.empty();
    const WaitPoint& point =
        context.where.wait_points[alone ? first_missed(context, at.alone) : at.among[0]];
    const std::string words = describe_wait(context, point);
    note.message += fmt::format(
        "; {}{}, and {} {} {} not come that far in the traces",
        context.presumed && reported == 1 ? "if the job stands where the traces end, " : "", words,
        alone ? "only" : "among others", describe_ranks(ranks), ranks.size() == 1 ? "has" : "have");
    note.evidence.push_back(wait_evidence(context, point, words));
  }
  tell_missing_stopped(context, note);
  // A rank without a trace may belong to a group of which nothing tells the members.
  // Without calls, nothing shows who waits.
  const bool unknown = context.presumed || has_silent_members(context) || context.run.ranks.empty();
  if (!not_waited_for.empty())
    note.message +=
        fmt::format("; {} for {}", unknown ? "nothing shows whether anybody waits" : "nobody waits",
                    describe_ranks(not_waited_for));
}

}  // namespace lockstep::verify
