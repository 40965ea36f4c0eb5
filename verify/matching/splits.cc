// All-to-alls whose splits contradict each other. The splits of all members form a matrix: what
// rank i sends to j must be what j expects from i. Without recorded splits, the totals are
// compared.
#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "verify/matching/all_to_all.h"
#include "verify/matching/matching.h"

namespace lockstep::verify {

namespace {

bool to_itself(const SplitConflict& c) { return c.sender == c.receiver; }

// The rank indices, sorted, of members that send themselves another count than they expect.
std::vector<std::uint32_t> unfit_for_themselves(const std::vector<SplitConflict>& found,
                                                const std::vector<CallRef>& refs) {
  std::vector<std::uint32_t> out;
  for (const SplitConflict& c : found)
    if (to_itself(c)) out.push_back(refs[c.sender].rank);
  std::sort(out.begin(), out.end());
  return out;
}

// The only member that is part of every conflict: the likely culprit. Nothing for a single
// conflict, where both sides are.
std::optional<std::size_t> in_all(const std::vector<SplitConflict>& found) {
  if (found.size() < 2) return std::nullopt;
  for (const std::size_t member : {found[0].sender, found[0].receiver}) {
    const std::size_t other = member == found[0].sender ? found[0].receiver : found[0].sender;
    const auto with = [](const SplitConflict& c, std::size_t m) {
      return c.sender == m || c.receiver == m;
    };
    const bool all = std::all_of(found.begin(), found.end(),
                                 [&](const SplitConflict& c) { return with(c, member); });
    const bool other_too = std::all_of(found.begin(), found.end(),
                                       [&](const SplitConflict& c) { return with(c, other); });
    if (all && !other_too) return member;
  }
  return std::nullopt;
}

Cause splits_cause(const Context& context, std::size_t g, std::uint64_t instance,
                   const std::vector<CallRef>& refs, const SplitConflict& c) {
  const CallRef sender = refs[c.sender];
  const CallRef receiver = refs[c.receiver];
  const trace::Rank from = context.run.ranks[sender.rank].rank;
  const trace::Rank to = context.run.ranks[receiver.rank].rank;
  Cause cause;
  cause.finding = make_finding(RuleId::splits_mismatch);
  Finding& f = cause.finding;
  cause.group = g;
  cause.seq = context.groups[g].first_seq + instance;
  cause.step = context.call(sender).step;
  const std::string location = context.describe_location(sender, cause.seq);
  f.message = from == to ? fmt::format("rank {} sends {} to itself, and expects {} ({})",
                                       from.value, c.sent, c.expected, location)
                         : fmt::format("rank {} sends {} to rank {}, which expects {} from it ({})",
                                       from.value, c.sent, to.value, c.expected, location);
  f.group = context.groups[g].name;
  f.seq = cause.seq;
  if (cause.step != trace::kNone) f.step = cause.step;
  cause.deviants = {std::min(sender.rank, receiver.rank), std::max(sender.rank, receiver.rank)};
  if (from == to) cause.deviants.pop_back();
  f.ranks = context.ranks(cause.deviants);
  f.evidence = {context.evidence(sender, fmt::format("sends {}", c.sent)),
                context.evidence(receiver, fmt::format("expects {}", c.expected))};
  set_fingerprint(f, "all_to_all");
  return cause;
}

// The smaller of two sides of a group, each of which fits together and not with the other one;
// empty where there are no two such sides, or both are equally large. As group ranks, ascending.
//
//   ranks 0, 3   exchange 4, which fits         ranks 1, 2 and 4 left out exchange 4, and their
//   1, 2, 4      exchange 5, which fits         exchange 5 does not fit exchange 4 of ranks 0 and 3
// Members without a trace (null in `calls`) are on no side.
std::vector<std::size_t> smaller_side(const std::vector<SplitConflict>& found,
                                      const std::vector<const trace::Call*>& calls) {
  if (found.size() >= kConflictsKept) return {};
  const std::size_t one = found[0].sender;
  std::vector<bool> opposite(calls.size());
  for (const SplitConflict& c : found) {
    if (c.sender == one) opposite[c.receiver] = true;
    if (c.receiver == one) opposite[c.sender] = true;
  }
  const bool parts = std::all_of(found.begin(), found.end(), [&](const SplitConflict& c) {
    return opposite[c.sender] != opposite[c.receiver];
  });
  std::size_t near = 0, far = 0;
  for (std::size_t m = 0; m < calls.size(); ++m)
    if (calls[m] != nullptr) ++(opposite[m] ? far : near);
  if (!parts || far == near) return {};
  std::vector<std::size_t> out;
  for (std::size_t m = 0; m < calls.size(); ++m)
    if (calls[m] != nullptr && opposite[m] == (far < near)) out.push_back(m);
  return out;
}

// By group rank, the member's stream; null: it left no trace.
std::vector<const Stream*> streams_by_group_rank(const Context& context,
                                                 const GroupStreams& group) {
  std::map<trace::Rank, const Stream*> by_rank;
  for (const Stream& s : group.streams) by_rank[context.run.ranks[s.rank_index].rank] = &s;
  std::vector<const Stream*> out;
  for (const trace::Rank member : group.members) {
    const auto found = by_rank.find(member);
    out.push_back(found == by_rank.end() ? nullptr : found->second);
  }
  return out;
}

// Explains why the splits of call `m` of group `g` contradict each other. `found`: at least one
// conflict. From strong evidence to weak:
//
//   - a rank contradicts itself, whatever the others do;
//   - the exchange is shifted: some ranks left out a call before it, or issued one too many;
//   - a rank runs another program than those of its kind;
//   - a rank's call does not undo the exchange next to it.
Cause explain_conflicts(const Context& context, std::size_t g, std::size_t m,
                        const std::vector<const Stream*>& members, const Exchange& here,
                        const std::vector<SplitConflict>& found) {
  const auto blame = [&](const SplitConflict& conflict, std::vector<std::uint32_t> ranks) {
    Cause out = splits_cause(context, g, m, here.refs, conflict);
    out.finding.culprits = context.ranks(ranks);
    out.deviants = std::move(ranks);
    return out;
  };
  if (std::vector<std::uint32_t> own = unfit_for_themselves(found, here.refs); !own.empty())
    return blame(*std::find_if(found.begin(), found.end(), to_itself), std::move(own));
  const std::optional<std::size_t> odd = in_all(found);
  const std::vector<std::size_t> few = odd ? std::vector{*odd} : smaller_side(found, here.calls);
  if (!few.empty() && are_others_odd(context, here.refs, few)) {
    if (std::optional<Cause> other = explain_by_odd_program(context, here.refs))
      return std::move(*other);
  }
  std::optional<Deviation> shifted =
      few.empty() ? std::nullopt : shifted_exchange(context, g, members, m, few);
  if (shifted) correct_by_past(context, members, m, few, *shifted);
  if (!shifted) {
    shifted = program_divergence_at(context, g, m, *members[found[0].sender],
                                    *members[found[0].receiver]);
  }
  if (shifted) return explain_deviation(context, *shifted);
  if (std::optional<Cause> other = explain_by_odd_program(context, here.refs))
    return std::move(*other);
  const std::optional<std::size_t> wrong = odd ? odd : breaks_round_trip(context, members, m);
  if (!wrong) return splits_cause(context, g, m, here.refs, found[0]);
  if (!odd) shifted = shifted_exchange(context, g, members, m, {*wrong});
  if (shifted) return explain_deviation(context, *shifted);
  return blame(found[0], {here.refs[*wrong].rank});
}

// The first all-to-all of group `g` whose splits contradict each other; later conflicts follow from
// it. Nothing if all fit.
std::optional<Cause> check_splits_of(const Context& context, std::size_t g) {
  const GroupStreams& group = context.groups[g];
  if (!group.comparable || group.streams.empty()) return std::nullopt;
  const trace::Tables& tables = context.run.tables;
  const std::vector<const Stream*> members = streams_by_group_rank(context, group);
  std::size_t shortest = SIZE_MAX;
  for (const Stream& s : group.streams) shortest = std::min(shortest, s.calls.size());
  const Stream& first = group.streams[0];
  // The signatures of the last all-to-all that was checked: equal ones have equal splits.
  std::vector<trace::SignatureId> judged;
  for (std::size_t m = 0; m < shortest; ++m) {
    const trace::Call& lead = context.run.ranks[first.rank_index].calls[first.calls[m]];
    if (tables.signatures[lead.signature].splits_in.value == 0) continue;
    const Exchange here = exchange_at(context, members, m);
    std::vector<trace::SignatureId> signatures;
    for (const trace::Call* c : here.calls)
      signatures.push_back(c == nullptr ? trace::SignatureId{} : c->signature);
    if (signatures == judged) continue;
    judged = std::move(signatures);
    const std::vector<SplitConflict> found = split_conflicts(tables, here.calls);
    if (!found.empty()) return explain_conflicts(context, g, m, members, here, found);
  }
  return std::nullopt;
}

}  // namespace

std::vector<Cause> check_splits(const Context& context) {
  std::vector<Cause> out;
  for (std::size_t g = 0; g < context.groups.size(); ++g)
    if (std::optional<Cause> cause = check_splits_of(context, g)) out.push_back(std::move(*cause));
  return out;
}

namespace {

struct Totals {
  std::int64_t given = 0, taken = 0;
};

// The totals of one instance. Nothing where it is not an all-to-all, a member did not issue it,
// sizes are unknown, or splits were recorded (check_splits is more precise).
std::optional<Totals> totals_of(const Context& context, const GroupStreams& group, std::size_t m) {
  Totals out;
  for (const Stream& stream : group.streams) {
    if (m >= stream.calls.size()) return std::nullopt;
    const trace::Call& call = context.run.ranks[stream.rank_index].calls[stream.calls[m]];
    const trace::Signature& s = context.run.tables.signatures[call.signature];
    if (s.op != trace::Op::all_to_all_single && s.op != trace::Op::all_to_all) return std::nullopt;
    if (s.splits_in.value != 0 || s.in_elements == trace::kNone || s.out_elements == trace::kNone) {
      return std::nullopt;
    }
    out.given += s.in_elements;
    out.taken += s.out_elements;
  }
  return out;
}

// As program_divergence_at(), for the first member and the first of the others whose program
// diverges from it.
std::optional<Deviation> program_divergence_in(const Context& context, std::size_t g,
                                               std::size_t instance) {
  constexpr std::size_t kMaxMembers = 8;  // asked; a group's members mostly do the same
  const std::vector<Stream>& streams = context.groups[g].streams;
  for (std::size_t s = 1; s < streams.size() && s < kMaxMembers; ++s) {
    if (auto found = program_divergence_at(context, g, instance, streams[0], streams[s]))
      return found;
  }
  return std::nullopt;
}

}  // namespace

std::vector<Cause> check_exchange_totals(const Context& context) {
  std::vector<Cause> out;
  for (std::size_t g = 0; g < context.groups.size(); ++g) {
    const GroupStreams& group = context.groups[g];
    if (!group.absent.empty() || !group.comparable || group.streams.empty()) continue;
    for (std::size_t m = 0; m < group.streams[0].calls.size(); ++m) {
      const std::optional<Totals> totals = totals_of(context, group, m);
      if (!totals || totals->given == totals->taken) continue;
      if (const auto divergence = program_divergence_in(context, g, m)) {
        out.push_back(explain_deviation(context, *divergence));
        break;
      }
      std::vector<const Stream*> members(group.streams.size());
      std::transform(group.streams.begin(), group.streams.end(), members.begin(),
                     [](const Stream& s) { return &s; });
      if (std::optional<Cause> other =
              explain_by_odd_program(context, exchange_at(context, members, m).refs)) {
        out.push_back(std::move(*other));
        break;
      }
      const CallRef call{group.streams[0].rank_index, group.streams[0].calls[m]};
      const std::uint64_t seq = group.first_seq + m;
      Cause cause;
      cause.finding = make_finding(RuleId::splits_mismatch);
      Finding& f = cause.finding;
      f.message = fmt::format("in {} ({}) the members give {} elements and take {}",
                              context.describe_call(call), context.describe_location(call, seq),
                              totals->given, totals->taken);
      f.why =
          "Splits are not recorded, so which ranks disagree is unknown; the totals show that "
          "some do.";
      for (const Stream& stream : group.streams) cause.deviants.push_back(stream.rank_index);
      if (const auto wrong = breaks_round_trip(context, members, m)) {
        f.why = fmt::format(
            "The totals show that splits disagree. What was sent comes back with the next "
            "exchange, but not on {}.",
            context.describe_ranks({members[*wrong]->rank_index}));
        f.culprits = context.ranks({members[*wrong]->rank_index});
      }
      cause.group = g;
      cause.seq = seq;
      f.group = group.name;
      f.seq = seq;
      f.ranks = context.ranks(cause.deviants);
      f.evidence.push_back(context.evidence(call, "its totals differ"));
      set_fingerprint(f, "");
      out.push_back(std::move(cause));
      break;
    }
  }
  return out;
}

}  // namespace lockstep::verify
