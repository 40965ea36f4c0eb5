#include "verify/schedules/wildcards.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "base/text.h"
#include "verify/blocking/wait_graph.h"
#include "verify/context.h"

namespace lockstep::verify {

namespace {

constexpr std::size_t kMatchesShown = 6;  // of a witness, as evidence
constexpr std::size_t kWaitsShown = 4;

// What a replay of the record should follow.
const Schedule* observed(const ScheduleSearch& search, bool recorded) {
  if (search.fitting) return &*search.fitting;
  if (recorded) return nullptr;
  if (search.ending) return &*search.ending;
  return search.complete && search.stuck ? &*search.stuck : nullptr;
}

CallRef receive_of(const WildcardMatch& m) { return {m.receiver, m.receive}; }
CallRef send_of(const WildcardMatch& m) { return {m.sender, m.send}; }

// "rank 1's send of 4 int32 (prog.c:69)".
std::string describe_message(const Context& context, const WildcardMatch& m) {
  const trace::Call& send = context.call(send_of(m));
  std::string out = fmt::format("{}'s {}", context.describe_ranks({m.sender}),
                                trace::describe(context.run.tables, send.signature));
  if (send.at.value != 0) out += fmt::format(" ({})", printable(context.run.tables.str(send.at)));
  return out;
}

// The matches in which a schedule differs from another one, in their order; all where there is none
// to compare with, or where only their order differs.
std::vector<WildcardMatch> differing_matches(const Schedule& schedule, const Schedule* other) {
  std::vector<WildcardMatch> out;
  if (other != nullptr) {
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> theirs;
    for (const WildcardMatch& m : other->matches) theirs[{m.receiver, m.receive}] = m.send;
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> senders =
        choices_of(*other).sender;
    for (const WildcardMatch& m : schedule.matches) {
      const std::pair key(m.receiver, m.receive);
      const bool same = senders.contains(key) && senders[key] == m.sender && theirs[key] == m.send;
      if (!same) out.push_back(m);
    }
  }
  return out.empty() ? schedule.matches : out;
}

void add_rank(std::vector<std::uint32_t>& ranks, std::uint32_t rank) {
  const auto at = std::lower_bound(ranks.begin(), ranks.end(), rank);
  if (at == ranks.end() || *at != rank) ranks.insert(at, rank);
}

// A finding at a receive from any source, with the choices as its evidence.
Cause race_at(const Context& context, const std::vector<WildcardMatch>& matches) {
  const WildcardMatch& first = matches[0];
  const trace::Call& receive = context.call(receive_of(first));
  Cause cause;
  cause.finding = make_finding(RuleId::wildcard_race);
  Finding& f = cause.finding;
  f.group = printable(context.run.tables.str(receive.group));
  if (receive.step != trace::kNone) f.step = cause.step = receive.step;
  f.seq = cause.seq = receive.seq;
  for (std::size_t i = 0; i < matches.size() && i < kMatchesShown; ++i) {
    f.evidence.push_back(context.evidence(
        receive_of(matches[i]), fmt::format("takes {}", describe_message(context, matches[i]))));
  }
  f.evidence.push_back(context.evidence(send_of(first), "the message that may come first"));
  for (const WildcardMatch& m : matches) {
    add_rank(cause.deviants, m.receiver);
    if (&m == &first) add_rank(cause.deviants, m.sender);
  }
  set_fingerprint(f, trace::describe(context.run.tables, receive.signature));
  return cause;
}

std::string describe_receive(const Context& context, const WildcardMatch& m) {
  const trace::Call& receive = context.call(receive_of(m));
  return fmt::format("{}'s receive from any source ({})", context.describe_ranks({m.receiver}),
                     context.describe_location(receive_of(m), receive.seq));
}

std::vector<std::uint32_t> waiting_ranks(const ReplayResult& where) {
  std::vector<std::uint32_t> out;
  for (std::uint32_t r = 0; r < where.positions.size(); ++r) {
    if (where.positions[r].waiting_in() != kNoCall) out.push_back(r);
  }
  return out;
}

// "rank 0 waits in recv … for rank 1; …", each also as evidence.
std::string add_wait(const Context& stuck, Finding& finding) {
  std::string out;
  std::size_t shown = 0;
  for (const WaitPoint& point : stuck.where.wait_points) {
    if (shown++ >= kWaitsShown) break;
    const std::string words = describe_awaited(stuck, point);
    out += (out.empty() ? "" : "; ") + words;
    finding.evidence.push_back(wait_evidence(stuck, point, words));
  }
  return out;
}

std::optional<Cause> race_after_hang(const Context& context, const ScheduleSearch& search) {
  std::vector<std::uint32_t> waiting = waiting_ranks(context.where);
  if (waiting.empty() || !search.ending || search.fitting->matches.empty()) return std::nullopt;
  const auto matches = differing_matches(*search.fitting, &*search.ending);
  Cause cause = race_at(context, matches);
  Finding& f = cause.finding;
  f.certainty = Certainty::observed;
  f.message = fmt::format("{} took {}", describe_receive(context, matches[0]),
                          describe_message(context, matches[0]));
  for (const WildcardMatch& m : search.ending->matches) {
    if (m.receiver != matches[0].receiver || m.receive != matches[0].receive) continue;
    if (m == matches[0]) continue;
    f.message +=
        fmt::format("; had it taken {}, all would have continued", describe_message(context, m));
  }
  f.message += fmt::format(". So {}", add_wait(context, f));
  for (const std::uint32_t r : waiting) add_rank(cause.deviants, r);
  f.ranks = context.ranks(cause.deviants);
  return cause;
}

std::optional<Cause> race_after_exception(const Context& context, const ScheduleSearch& search) {
  for (std::uint32_t r = 0; r < context.run.ranks.size(); ++r) {
    const trace::RankTrace& trace = context.run.ranks[r];
    if (context.where.positions[r].state != Position::State::raised || trace.calls.empty())
      continue;
    // What it received last made it raise, if it did nothing else since.
    const auto last = static_cast<std::uint32_t>(trace.calls.size() - 1);
    std::vector<WildcardMatch> matches;
    for (const WildcardMatch& m : search.contested) {
      if (m.receiver == r) matches.push_back(m);
    }
    if (matches.empty() || !is_any_source(context.run.tables, trace.calls[last], context.semantics))
      continue;
    Cause cause = race_at(context, matches);
    Finding& f = cause.finding;
    f.certainty = Certainty::observed;
    std::vector<std::uint32_t> concerned;
    for (const WildcardMatch& m : search.fitting->matches) {
      if (m.receiver == r) add_rank(concerned, m.sender);
    }
    f.message = fmt::format(
        "{} {} after receives from any source, which may take the messages of {} in any order ({})",
        context.describe_ranks({r}), describe_state(context, r), context.describe_ranks(concerned),
        context.describe_location({r, last}, trace.calls[last].seq));
    f.why =
        "Nothing orders messages of different senders. What the rank did after them depends on "
        "an order that the next run may change.";
    cause.deviants = {r};
    f.culprits = context.ranks({r});
    add_rank(concerned, r);
    f.ranks = context.ranks(concerned);
    return cause;
  }
  return std::nullopt;
}

std::optional<Cause> possible_hang(const Context& context, const ScheduleSearch& search,
                                   bool buffered_sends) {
  const WildcardChoices choices = choices_of(*search.stuck);
  const ReplayResult where = replay(context.run, context.groups, context.agreement,
                                    {false, context.semantics, false, buffered_sends, &choices});
  const std::vector<std::uint32_t> waiting = waiting_ranks(where);
  if (waiting.empty()) return std::nullopt;
  const Context stuck{context.run,  context.groups,   where, context.modalities, context.agreement,
                      context.live, context.semantics};
  const Schedule* other = observed(search, was_recorded(context.run));
  if (search.stuck->matches.empty()) return std::nullopt;
  const auto matches = differing_matches(*search.stuck, other);
  Cause cause = race_at(context, matches);
  Finding& f = cause.finding;
  f.certainty = Certainty::possible;
  f.message = fmt::format("{} may take {}. Then {}", describe_receive(context, matches[0]),
                          describe_message(context, matches[0]), add_wait(stuck, f));
  f.why = fmt::format(
      "Messages of different senders come in any order. {}; the order given as evidence does not.",
      was_recorded(context.run) ? "This run ended well" : "Other orders end well");
  for (const std::uint32_t r : waiting) add_rank(cause.deviants, r);
  f.ranks = context.ranks(cause.deviants);
  return cause;
}

std::optional<Cause> possible_misfit(const Context& context, const ScheduleSearch& search) {
  if (!context.where.size_mismatches.empty()) return std::nullopt;
  const WildcardMatch& bad = *search.misfit;
  const auto matches =
      search.differing->matches.empty()
          ? std::vector<WildcardMatch>{bad}
          : differing_matches(*search.differing, observed(search, was_recorded(context.run)));
  Cause cause = race_at(context, matches);
  Finding& f = cause.finding;
  f.certainty = Certainty::possible;
  const trace::Call& receive = context.call(receive_of(bad));
  f.message = fmt::format(
      "{} may take {}. Then {} of {} ({}) meets {}, which it does not fit",
      describe_receive(context, matches[0]), describe_message(context, matches[0]),
      trace::describe(context.run.tables, receive.signature),
      context.describe_ranks({bad.receiver}),
      context.describe_location(receive_of(bad), receive.seq), describe_message(context, bad));
  f.evidence.push_back(context.evidence(receive_of(bad), "the receive that does not fit"));
  f.evidence.push_back(context.evidence(send_of(bad), "the message that does not fit"));
  add_rank(cause.deviants, bad.receiver);
  add_rank(cause.deviants, bad.sender);
  f.ranks = context.ranks(cause.deviants);
  cause.can_block = false;
  return cause;
}

}  // namespace

ReplayResult replay_as_recorded(const trace::Run& run, const std::vector<GroupStreams>& groups,
                                Agreement& agreement, ReplayOptions options,
                                const ScheduleSearch& search) {
  const bool recorded = was_recorded(run);
  const bool mpi = options.semantics == CallSemantics::mpi;
  const Schedule* schedule = observed(search, recorded);
  WildcardChoices choices;
  if (schedule != nullptr) {
    choices = choices_of(*schedule);
    options.choices = &choices;
  }
  options.buffered_sends = mpi && !recorded;
  ReplayResult out = replay(run, groups, agreement, options);
  const auto weaken = [&](const ReplayOptions& other) {
    const ReplayResult lenient = replay(run, groups, agreement, other);
    for (std::size_t r = 0; r < out.stuck.size(); ++r) {
      out.stuck[r] = out.stuck[r] && lenient.stuck[r];
    }
  };
  if (options.live || waiting_ranks(out).empty()) return out;
  if (mpi && recorded) {
    ReplayOptions program = options;
    program.follow_record = false;
    program.buffered_sends = true;
    weaken(program);
  }
  if (!search.has_wildcards || schedule == nullptr) return out;
  if (search.ending) {
    out.stuck.assign(out.stuck.size(), false);
  } else if (!search.complete) {
    // Whatever a receive from any source takes, it goes on no further than if it always had one.
    ReplayOptions taken = options;
    taken.choices = nullptr;
    weaken(taken);
  }
  return out;
}

std::optional<Cause> explain_observed_race(const Context& context, const ScheduleSearch& search) {
  if (!search.fitting) return std::nullopt;
  if (auto cause = race_after_hang(context, search)) return cause;
  return race_after_exception(context, search);
}

std::optional<Cause> explain_possible_race(const Context& context, const ScheduleSearch& search,
                                           bool buffered_sends) {
  if (search.stuck && (search.ending || search.fitting)) {
    if (auto cause = possible_hang(context, search, buffered_sends)) return cause;
  }
  if (search.differing && search.misfit) return possible_misfit(context, search);
  return std::nullopt;
}

}  // namespace lockstep::verify
