// From an odd program (streams/odd_programs.h) to a finding: which call its ranks left out, added
// or made otherwise, in words.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"
#include "verify/matching/matching.h"
#include "verify/streams/odd_programs.h"
#include "verify/streams/rank_programs.h"

namespace lockstep::verify {

namespace {

using Kind = OddProgram::Kind;

// The number of a rank's collectives (or messages) in a group before its call `end`.
std::uint64_t calls_before(const Context& context, std::uint32_t rank, trace::GroupId group,
                           std::uint32_t end, bool messages) {
  const std::vector<trace::Call>& calls = context.run.ranks[rank].calls;
  return static_cast<std::uint64_t>(
      std::count_if(calls.begin(), calls.begin() + end, [&](const trace::Call& c) {
        const trace::Op op = context.run.tables.signatures[c.signature].op;
        return c.group == group && trace::is_point_to_point(op) == messages;
      }));
}

// The call as the deviants make it: "send to rank 3", of several ranks "send (rank 2: to rank 3)".
// It may be another rank's: then with the peer that corresponds, or without one if none does.
std::string words_of(const Context& context, const OddProgram& odd, CallRef call) {
  if (!trace::is_point_to_point(context.op(call))) return context.describe_call(call);
  const bool sends = context.op(call) == trace::Op::send;
  const std::uint32_t rank = odd.deviants[0];
  const auto peer = call.rank == rank
                        ? std::optional(context.call(call).peer)
                        : corresponding_peer(context.run, rank, call.rank, context.call(call));
  const std::string message = sends ? "send" : "receive";
  if (!peer || peer->value < 0) return message;
  const std::string side = fmt::format("{} rank {}", sends ? "to" : "from", peer->value);
  if (odd.deviants.size() == 1) return fmt::format("{} {}", message, side);
  return fmt::format("{} ({}: {})", message, context.describe_ranks({rank}), side);
}

// "call 4 of group cp1, step 2": where the call of this rank is that corresponds to another rank's.
std::string location_of(const Context& context, std::uint32_t rank, trace::GroupId group,
                        std::uint64_t seq, CallRef like) {
  if (context.call(like).group == group) return context.describe_location(like, seq);
  std::string out = fmt::format("call {} of {}", seq + context.run.ranks[rank].first_number,
                                context.describe_group(rank, group));
  if (const auto step = context.call(like).step; step != trace::kNone)
    out += fmt::format(", step {}", step);
  return out;
}

Cause explain_message_of(const Context& context, const OddProgram& odd, std::uint32_t rank) {
  const CallRef usual{odd.usual, odd.index};
  const CallRef own{rank, odd.index};
  Cause cause;
  cause.finding = make_finding(RuleId::p2p_unmatched);
  Finding& f = cause.finding;
  const bool left_out = odd.kind == Kind::missing;
  const trace::Call& shown = context.call(left_out ? usual : own);
  const auto group = left_out ? corresponding_group(context.run, rank, odd.usual, shown.group)
                              : std::optional(shown.group);
  const std::string who = context.describe_ranks(odd.deviants);
  const std::string more =
      odd.count > 1 ? fmt::format(" and {}", plural(odd.count - 1, "more call")) : "";
  const bool several = odd.deviants.size() > 1;
  const std::string like = odd.by_numbers ? "the other ranks that run this program"
                           : several      ? "their other rounds"
                                          : "its other rounds";
  f.seq = cause.seq = group ? calls_before(context, rank, *group, odd.index, true) : 0;
  const CallRef there = left_out ? usual : own;
  const std::string location =
      location_of(context, rank, group.value_or(shown.group), cause.seq, there);
  if (left_out) {
    f.message = fmt::format("{} {} {}{} ({}), which {} make", who,
                            several ? "each left out a" : "left out its",
                            words_of(context, odd, usual), more, location, like);
  } else if (odd.kind == Kind::extra) {
    f.message = fmt::format("{} issued {}{} ({}), which {} do not make", who,
                            words_of(context, odd, own), more, location, like);
  } else {
    f.message =
        fmt::format("{} issued {} ({}) where, by {}, {} was to come", who,
                    words_of(context, odd, own), location, like, words_of(context, odd, usual));
  }
  f.why = odd.by_numbers
              ? fmt::format(
                    "Up to here {} did the same as {}, each with peers of its own; here they "
                    "diverge.",
                    who, context.describe_ranks({odd.usual}))
              : "";
  if (group) f.group = printable(context.run.tables.str(*group));
  if (shown.step != trace::kNone) f.step = cause.step = shown.step;
  f.evidence = {context.evidence(own, "issued here"),
                context.evidence(usual, "issued by a rank that runs the same program")};
  set_fingerprint(f, trace::describe(context.run.tables, shown.signature));
  return cause;
}

std::optional<Cause> explain_collective_of(const Context& context, const OddProgram& odd,
                                           std::uint32_t rank) {
  const bool left_out = odd.kind == Kind::missing;
  const CallRef own{rank, odd.index};
  const CallRef usual{odd.usual, odd.index};
  const trace::Call& shown = context.call(left_out ? usual : own);
  const auto group = left_out ? corresponding_group(context.run, rank, odd.usual, shown.group)
                              : std::optional(shown.group);
  if (!group) return std::nullopt;
  const auto streams =
      std::find_if(context.groups.begin(), context.groups.end(),
                   [&](const GroupStreams& g) { return g.group == *group && g.comparable; });
  if (streams == context.groups.end()) return std::nullopt;
  const std::uint64_t instance = calls_before(context, rank, *group, odd.index, false);
  Deviation d;
  d.kind = left_out                  ? Deviation::Kind::missing
           : odd.kind == Kind::extra ? Deviation::Kind::extra
                                     : Deviation::Kind::replaced;
  d.group = static_cast<std::size_t>(streams - context.groups.begin());
  d.seq = streams->first_seq + instance;
  d.count = odd.count;
  d.step = shown.step;
  CallRef other;
  for (const Stream& s : streams->streams) {
    if (std::binary_search(odd.deviants.begin(), odd.deviants.end(), s.rank_index)) {
      d.deviants.push_back(s.rank_index);
      continue;
    }
    d.reference.push_back(s.rank_index);
    if (other.call == kNoCall && instance < s.calls.size())
      other = {s.rank_index, s.calls[instance]};
  }
  if (d.reference.empty()) return std::nullopt;
  if (d.deviants.empty()) d.deviants = {rank};
  d.got = own;
  d.expected = other;
  if (other.call == kNoCall) {
    // Nobody came as far as an extra call. What was left out or replaced is not known without it.
    if (d.kind != Deviation::Kind::extra) return std::nullopt;
    d.expected.rank = d.reference[0];
  }
  if (d.kind == Deviation::Kind::replaced) {
    d.differences =
        context.agreement.differences(context.call(other).signature, context.call(own).signature);
    if (d.differences == kSame) return std::nullopt;
  }
  return explain_deviation(context, d);
}

}  // namespace

std::optional<Cause> explain_odd_program(const Context& context, const OddProgram& odd) {
  const std::uint32_t rank = odd.deviants[0];
  const CallRef shown =
      odd.kind == Kind::missing ? CallRef{odd.usual, odd.index} : CallRef{rank, odd.index};
  std::optional<Cause> out;
  if (trace::is_point_to_point(context.op(shown))) {
    out = explain_message_of(context, odd, rank);
  } else {
    out = explain_collective_of(context, odd, rank);
  }
  if (!out) return std::nullopt;
  out->deviants = odd.deviants;
  out->finding.culprits = context.ranks(odd.deviants);
  return out;
}

bool is_missed_by_peers(const Context& context, const OddProgram& odd) {
  if (!odd.is_certain || odd.kind != Kind::missing) return false;
  const trace::Call& usual = context.call({odd.usual, odd.index});
  const trace::Op op = context.run.tables.op(usual);
  if (op != trace::Op::send && op != trace::Op::recv) return false;
  const trace::Op other = op == trace::Op::send ? trace::Op::recv : trace::Op::send;
  // The messages of an operation with a peer among the first calls of a rank.
  const auto count = [&](const trace::RankTrace& trace, std::size_t end, trace::Op of,
                         trace::Rank peer) {
    return std::count_if(
        trace.calls.begin(), trace.calls.begin() + static_cast<std::ptrdiff_t>(end),
        [&](const trace::Call& c) { return c.peer == peer && context.run.tables.op(c) == of; });
  };
  return std::all_of(odd.deviants.begin(), odd.deviants.end(), [&](std::uint32_t r) {
    const trace::RankTrace& own = context.run.ranks[r];
    const auto peer = corresponding_peer(context.run, r, odd.usual, usual);
    const trace::RankTrace* const theirs = peer ? context.run.find(*peer) : nullptr;
    return theirs != nullptr &&
           count(*theirs, theirs->calls.size(), other, own.rank) > count(own, odd.index, op, *peer);
  });
}

bool is_odd_program_of_others(const Context& context, const std::vector<std::uint32_t>& deviants,
                              const std::vector<std::uint32_t>& others, std::uint32_t index) {
  const OddProgram* const odd = context.odd_program;
  const auto is_odd = [&](std::uint32_t r) {
    return std::binary_search(odd->deviants.begin(), odd->deviants.end(), r);
  };
  return odd != nullptr && odd->by_numbers && odd->is_certain && odd->index <= index &&
         (odd->kind == Kind::missing || odd->kind == Kind::extra) &&
         std::none_of(deviants.begin(), deviants.end(), is_odd) &&
         std::all_of(others.begin(), others.end(), is_odd);
}

bool is_beginning_of(const Context& context, const Deviation& d) {
  const OddProgram* const odd = context.odd_program;
  return odd != nullptr && odd->is_certain && odd->deviants == d.deviants &&
         d.got.call != kNoCall && odd->index < d.got.call &&
         ((odd->kind == Kind::missing && d.kind == Deviation::Kind::missing) ||
          (odd->kind == Kind::extra && d.kind == Deviation::Kind::extra));
}

}  // namespace lockstep::verify
