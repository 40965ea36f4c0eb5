#include "verify/blocking/finished.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "verify/blocking/message_counts.h"
#include "verify/blocking/stopped.h"
#include "verify/blocking/unanswered.h"
#include "verify/blocking/wait_evidence.h"
#include "verify/blocking/witnesses.h"
#include "verify/matching/matching.h"
#include "verify/streams/past.h"
#include "verify/streams/programs.h"
#include "verify/streams/rounds.h"
#include "verify/streams/step_counts.h"

namespace lockstep::verify {

namespace {

using State = Position::State;

// Whether a rank that did the same up to this call finished there: it came to a step more.
bool ended_alike(const Context& context, CallRef call) {
  for (std::uint32_t r = 0; r < context.run.ranks.size(); ++r) {
    if (r != call.rank && context.where.positions[r].state == State::finished &&
        context.run.ranks[r].calls.size() == call.call &&
        common_start(context.run, context.agreement, r, call.rank) == call.call) {
      return true;
    }
  }
  return false;
}

// Whether ranks that finished, other than `early`, did so in the same step, so that those who wait
// went further; false: they finished in a later one, so that `early` ended too early. Nothing where
// as many did the one as the other, or steps are not known.
std::optional<bool> others_finished_alike(const Context& context,
                                          const std::vector<std::uint32_t>& early) {
  std::int32_t last = trace::kNone;
  for (const std::uint32_t r : early) last = std::max(last, context.where.positions[r].step);
  if (last == trace::kNone) return std::nullopt;
  std::size_t alike = 0;
  std::size_t later = 0;
  for (std::uint32_t r = 0; r < context.run.ranks.size(); ++r) {
    const Position& position = context.where.positions[r];
    if (position.state != State::finished || std::binary_search(early.begin(), early.end(), r))
      continue;
    alike += position.step == last ? 1U : 0U;
    later += position.step > last ? 1U : 0U;
  }
  return alike == later ? std::nullopt : std::optional(alike > later);
}

// Whether ranks lack the last calls of `rank`, and not the same ranks in all groups and messages.
bool lack_different_calls(const Context& context, std::uint32_t rank) {
  std::set<std::set<std::uint32_t>> lacking;
  for (const GroupStreams& group : context.groups) {
    const Stream* const own = stream_of(group, rank);
    if (own == nullptr) continue;
    std::set<std::uint32_t> lack;
    for (const Stream& stream : group.streams)
      if (stream.calls.size() < own->calls.size()) lack.insert(stream.rank_index);
    if (!lack.empty()) lacking.insert(std::move(lack));
  }
  const MessageCounts messages = count_messages(context.run);
  const auto add_peers = [&](const auto& posted, const auto& by_others, bool sends) {
    for (const auto& [pair, count] : posted) {
      const auto [own_side, peer] = sends ? pair : std::pair(pair.second, pair.first);
      const auto other = by_others.find(pair);
      if (own_side == rank && (other == by_others.end() || other->second < count))
        lacking.insert({peer});
    }
  };
  add_peers(messages.sent, messages.received, /*sends=*/true);
  add_peers(messages.received, messages.sent, /*sends=*/false);
  return lacking.size() > 1;
}

// Whether the call begins a round, and other ranks than those that lack it have made all the calls
// of this round that its rank has made, and finished. Had one of those left out the call, the
// others would wait for the rest of the round.
//
//   rank 0   recv(2) reduce(1) | recv(2) reduce(1) | recv(2) waits
//   rank 1   reduce(0)         | reduce(0)         |         finished
//   rank 2   send(0)           | send(0)           |         finished
bool begins_round_with_others(const Context& context, CallRef waiting,
                              const std::vector<std::uint32_t>& missing) {
  constexpr std::uint32_t kHistory = 4096;  // calls: a few steps of a large model
  const std::vector<trace::Call>& calls = context.run.ranks[waiting.rank].calls;
  const auto is_alike = [&](const trace::Call& a, const trace::Call& b) {
    return is_same_of_program(context.agreement, a, b);
  };
  // Whether such another rank takes part in the call, and all have made as many of this group.
  const auto others_keep_up = [&](const trace::Call& call) {
    const auto group = std::find_if(context.groups.begin(), context.groups.end(),
                                    [&](const GroupStreams& g) { return g.group == call.group; });
    if (group == context.groups.end()) return false;
    const std::vector<Stream>& streams = group->streams;
    return std::all_of(
               streams.begin(), streams.end(),
               [&](const Stream& s) { return s.calls.size() == streams[0].calls.size(); }) &&
           std::any_of(streams.begin(), streams.end(), [&](const Stream& s) {
             return s.rank_index != waiting.rank &&
                    !std::binary_search(missing.begin(), missing.end(), s.rank_index);
           });
  };
  for (std::uint32_t c = waiting.call; c-- > 0 && waiting.call - c <= kHistory;) {
    if (is_alike(calls[c], calls[waiting.call])) return false;
    if (context.run.tables.is_message(calls[c]) || !others_keep_up(calls[c])) continue;
    // What the rank issued after the waiting call is of the same round.
    const auto is_of_group = [&](const trace::Call& later) {
      return later.group == calls[c].group && !context.run.tables.is_message(later);
    };
    if (std::any_of(calls.begin() + waiting.call, calls.end(), is_of_group)) return false;
    // The first round shows which of the two comes first.
    const auto first_of = [&](const trace::Call& call) {
      return std::find_if(calls.begin(), calls.end(),
                          [&](const trace::Call& other) { return is_alike(call, other); });
    };
    return first_of(calls[waiting.call]) < first_of(calls[c]);
  }
  return false;
}

// Whether the rank is the only one that did not finish.
bool is_last_one(const Context& context, std::uint32_t rank) {
  for (std::uint32_t r = 0; r < context.run.ranks.size(); ++r) {
    const bool finished = context.where.positions[r].state == State::finished;
    if (finished == (r == rank) || !is_known_from_its_start(context.run.ranks[r])) return false;
  }
  return true;
}

// Whether the call lies within a round, as far as rounds are alike. The first call of the program
// begins one: rounds may be parts of a larger one, as steps of which every second one ends with a
// log line.
bool is_within(const Context& context, CallRef call) {
  const std::vector<trace::Call>& calls = context.run.ranks[call.rank].calls;
  const bool is_first = is_known_from_its_start(context.run.ranks[call.rank]) &&
                        is_same_of_program(context.agreement, calls[0], calls[call.call]);
  return !is_first && is_within_round(context.run, context.agreement, call) &&
         !do_rounds_vary(context.run, context.agreement, call);
}

// Whether, if the last rank is right to wait, several others left out calls and finished all the
// same. Not within a round: batches without images leave out calls of several groups.
bool went_on_alone(const Context& context, CallRef waiting) {
  return !is_within(context, waiting) && lack_different_calls(context, waiting.rank);
}

// Whether the ranks that lack the call broke with their past before it, where their programs
// diverged from that of a waiting rank: they left out a call of the group there, and what followed
// paired with calls of equal form.
bool left_out_before(const Context& context, const WaitPoint& point) {
  const std::uint32_t waiting = point.waiting[0];
  const auto most =
      most_broke_with_the_past(context.run, context.agreement, waiting, point.missing[0]);
  return most && most->usual == waiting &&
         calls_in(context.run, waiting, most->index, context.groups[point.group].group);
}

// Whether the waiting ranks are a minority, so that they deviate rather than those that finished.
// The call's group decides, where those count that issued the call, too, and wait before it. On a
// tie the programs of other groups' ranks do, or those of the two themselves, and where these show
// nothing, and for point-to-point calls, the steps in which other ranks finished, or without steps,
// for these, the number of all ranks that finished. Nothing on a tie there.
//
// `goes_on`: the call is of a later step than the last one of those that finished. `within_round`:
// see ended_within_round().
std::optional<bool> fewer_wait_than_finished(const Context& context, const WaitCause& wait,
                                             const WaitPoint& point, bool goes_on,
                                             bool within_round) {
  const auto finished = [&](std::uint32_t r) {
    return context.where.positions[r].state == State::finished;
  };
  const bool message = point.group == WaitPoint::kPointToPoint;
  if (!message) {
    const auto done = std::count_if(point.missing.begin(), point.missing.end(), finished);
    const std::vector<Stream>& streams = context.groups[point.group].streams;
    const auto issued = std::count_if(streams.begin(), streams.end(), [&](const Stream& stream) {
      return stream.calls.size() > point.instance;
    });
    // Programs end with a round, so that a majority that ends within one left out its rest.
    if (issued < done)
      return goes_on || (!within_round && !is_missing_by_most(context, point) &&
                         !left_out_before(context, point));
    if (issued != done) return false;
    // Ranks of other groups may have finished because they made the call in question.
    const auto go_on =
        others_go_on(context.run, context.agreement, point.waiting[0], point.missing[0]);
    if (go_on) return !*go_on;
    if (const auto divergence = find_program_divergence(context.run, context.agreement,
                                                        point.waiting[0], point.missing[0]))
      return divergence->deviant == point.waiting[0];
  }
  const auto alike = goes_on ? others_finished_alike(context, wait.roots) : std::optional<bool>();
  if (alike || !message) return alike;
  std::size_t done = 0;
  for (std::uint32_t r = 0; r < context.run.ranks.size(); ++r) done += finished(r) ? 1U : 0U;
  if (2 * done == context.run.ranks.size()) return std::nullopt;
  return 2 * done > context.run.ranks.size();
}

// Whether another rank waits for one of these in another call: an extra call at `point` would not
// explain that.
bool are_awaited_elsewhere(const Context& context, const WaitCause& wait, const WaitPoint& point) {
  return std::any_of(wait.points.begin(), wait.points.end(), [&](std::size_t p) {
    const WaitPoint& other = context.where.wait_points[p];
    const std::vector<std::uint32_t> lacked = lacked_by(other);
    return &other != &point && std::find_first_of(lacked.begin(), lacked.end(), wait.roots.begin(),
                                                  wait.roots.end()) != lacked.end();
  });
}

// Ranks that finished while others wait in a call for them.
struct FinishedEarly {
  std::int32_t last_step = trace::kNone;  // of those that finished
  bool steps_known = false;               // theirs, and that of the call
  bool further_step = false;              // the call is of a step that those that finished lack
  bool alone = false;                     // the waiting rank went on alone: went_on_alone()
  bool began_round = false;               // which nobody else began: begins_round_with_others()
  bool awaited = false;                   // on a tie: ranks wait for them in other calls, too
  std::optional<bool> fewer_wait;         // than finished; empty: a tie
  bool waiting_deviate = false;           // the waiting ranks deviate, not those that finished
  std::optional<bool> one_message_more;   // the call is a message more than other pairs have
  bool singled_out = true;                // programs and pasts single out a side
};

FinishedEarly judge_finished(const Context& context, const WaitCause& wait, const WaitPoint& point,
                             std::int32_t step) {
  FinishedEarly out;
  const bool message = point.group == WaitPoint::kPointToPoint;
  bool one_too_many = is_new_to_most(context, wait, point);
  // Where as many finished as wait, those who wait for them elsewhere decide, or programs and
  // pasts.
  if (!message && point.waiting.size() == point.missing.size() &&
      std::includes(wait.roots.begin(), wait.roots.end(), point.missing.begin(),
                    point.missing.end())) {
    out.awaited = are_awaited_elsewhere(context, wait, point);
    if (out.awaited) {
      one_too_many = false;
    } else {
      Deviation missing = missing_at(context, point, point.missing);
      decide_fault(context, missing);
      one_too_many = one_too_many || missing.kind == Deviation::Kind::extra;
      out.singled_out = missing.singled_out;
    }
  }
  for (const std::uint32_t r : wait.roots)
    out.last_step = std::max(out.last_step, context.where.positions[r].step);
  out.steps_known = step != trace::kNone && out.last_step != trace::kNone;
  const bool later_step = out.steps_known && step > out.last_step;
  const bool within_round = !later_step && !message && ended_within_round(context, point);
  out.fewer_wait = fewer_wait_than_finished(context, wait, point, later_step, within_round);
  const CallRef waiting = waiting_call(context, point.waiting[0]);
  if (point.waiting.size() == 1 && is_last_one(context, waiting.rank)) {
    out.alone = went_on_alone(context, waiting);
    out.began_round = begins_round_with_others(context, waiting, point.missing);
  }
  if (out.alone || out.awaited) {
    out.fewer_wait = out.alone;
  } else if (!out.fewer_wait && out.began_round) {
    out.fewer_wait = true;
  }
  out.waiting_deviate = one_too_many || out.fewer_wait.value_or(false);
  out.further_step = !one_too_many && (out.steps_known ? later_step : !within_round);
  out.one_message_more = message && !out.steps_known ? is_one_message_more(context, point) : false;
  return out;
}

Finding describe_finished(const Context& context, const WaitCause& wait, const WaitPoint& point,
                          const FinishedEarly& early) {
  const CallRef call = waiting_call(context, point.waiting[0]);
  const bool message = point.group == WaitPoint::kPointToPoint;
  const bool went_further = message && early.fewer_wait == true &&
                            (early.alone || early.began_round || early.one_message_more == true ||
                             ended_alike(context, call));
  const std::string waiting = context.describe_ranks(point.waiting);
  const std::string finished = context.describe_ranks(wait.roots);
  const std::string what = context.describe_call(call);
  const std::string location = context.describe_location(call, seq_at(context, point));
  Finding f;
  if (message && !(early.steps_known && early.further_step) && !went_further) {
    f = make_finding(RuleId::p2p_unmatched);
    f.message = fmt::format("{}, which finished without the other side of it",
                            describe_wait(context, point));
  } else if (early.further_step) {
    f = make_finding(RuleId::unequal_iterations);
    f.message = early.waiting_deviate
                    ? fmt::format("{} went on to {} ({}) after {} had finished", waiting, what,
                                  location, finished)
                    : fmt::format("{} finished{}; {}", finished,
                                  early.last_step == trace::kNone
                                      ? ""
                                      : fmt::format(" after step {}", early.last_step),
                                  describe_wait(context, point));
  } else if (early.waiting_deviate) {
    f = make_finding(RuleId::extra_collective);
    f.message = fmt::format("{} issued {} ({}), which {} finished without", waiting, what, location,
                            finished);
  } else {
    f = make_finding(RuleId::missing_collective);
    f.message =
        fmt::format("{} finished without {}; {}", finished, what, describe_wait(context, point));
  }
  return f;
}

// How many batches a rank took, by step.
std::map<std::int64_t, std::size_t> batches_by_step(const trace::RankTrace& trace) {
  std::map<std::int64_t, std::size_t> out;
  for (const trace::DataMark& mark : trace.data)
    if (mark.modality.value == 0) ++out[mark.n];
  return out;
}

std::size_t sum_of(const std::map<std::int64_t, std::size_t>& batches) {
  return std::accumulate(batches.begin(), batches.end(), std::size_t{0},
                         [](std::size_t sum, const auto& step) { return sum + step.second; });
}

// Where a rank that finished too early took as many batches as one that waits for it: it did not
// run out of them, but took one without making its step. O(batches).
void tell_batch_left_out(const Context& context, const WaitCause& wait, const WaitPoint& point,
                         Finding& finding) {
  const std::uint32_t waiting = point.waiting[0];
  const auto usual = batches_by_step(context.run.ranks[waiting]);
  if (usual.empty()) return;
  for (const std::uint32_t r : wait.roots) {
    const auto taken = batches_by_step(context.run.ranks[r]);
    if (sum_of(taken) < sum_of(usual)) continue;
    const auto odd = std::find_if(taken.begin(), taken.end(), [&](const auto& step) {
      const auto known = usual.find(step.first);
      return known != usual.end() && step.second > known->second;
    });
    if (odd == taken.end()) continue;
    const std::string who = context.describe_ranks({r});
    finding.why = fmt::format(
        "{} did not run out of batches: it took {}, and {} took {}. In step {} it took {} instead "
        "of {}: it went on to the next batch without a step, as after an exception that it caught.",
        who, sum_of(taken), context.describe_ranks({waiting}), sum_of(usual), odd->first,
        odd->second, usual.at(odd->first));
    finding.fix =
        "leave a batch out on all ranks or on none: all_reduce a flag before the backward";
    return;
  }
}

}  // namespace

Cause explain_finished(const Context& context, const WaitCause& wait) {
  const WaitPoint& point = first_point(context, wait);
  const std::int32_t step = context.call(waiting_call(context, point.waiting[0])).step;
  const FinishedEarly early = judge_finished(context, wait, point, step);
  Cause cause;
  cause.finding = describe_finished(context, wait, point, early);
  const bool blame_waiting = early.waiting_deviate && cause.finding.rule != RuleId::p2p_unmatched;
  cause.deviants = blame_waiting ? point.waiting : wait.roots;
  // Within a step, nothing shows whether the one ended too early or the other made an extra call.
  const bool tied = (early.one_message_more != false || !early.singled_out) && !early.fewer_wait &&
                    !(early.steps_known && early.further_step);
  if (tied) {
    cause.finding.why =
        "Equally many ranks finished and wait, in one step as far as is known: either the ones "
        "left the call out, or the others issued one too many.";
  } else {
    cause.finding.culprits = context.ranks(cause.deviants);
  }
  if (cause.finding.rule == RuleId::unequal_iterations && !early.waiting_deviate)
    tell_batch_left_out(context, wait, point, cause.finding);
  locate_cause(context, point, cause);
  return cause;
}

bool ended_within_round(const Context& context, const WaitPoint& point) {
  // Ranks that wait may have other programs than those that finished, as stages of a pipeline have,
  // and each of them the program of another one. So many are asked.
  constexpr std::size_t kWaitingAsked = 16;
  for (std::size_t i = 0; i < point.waiting.size() && i < kWaitingAsked; ++i) {
    const CallRef call = waiting_call(context, point.waiting[i]);
    const auto stopped_before = [&](std::uint32_t r) {
      return context.run.ranks[r].calls.size() == call.call &&
             common_start(context.run, context.agreement, r, call.rank) == call.call;
    };
    if (std::none_of(point.missing.begin(), point.missing.end(), stopped_before)) continue;
    const bool is_of_step =
        std::all_of(point.missing.begin(), point.missing.end(), [&](std::uint32_t r) {
          return do_counts_tell(context.run, context.agreement, call.rank, r, call);
        });
    return is_of_step || is_within(context, call);
  }
  return false;
}

bool is_new_to_most(const Context& context, const WaitCause& wait, const WaitPoint& point) {
  if (point.group == WaitPoint::kPointToPoint || point.mismatched || point.unknown_member ||
      point.waiting.size() + point.behind.size() >= point.missing.size()) {
    return false;
  }
  const GroupStreams& group = context.groups[point.group];
  const bool is_first =
      point.instance == 0 && group.first_seq == 0 &&
      std::all_of(group.streams.begin(), group.streams.end(),
                  [](const Stream& s) { return s.calls.size() + s.earlier.size() <= 1; });
  return is_first && !are_awaited_elsewhere(context, wait, point);
}

}  // namespace lockstep::verify
