// All-to-alls whose splits contradict each other. The splits of all members form a matrix: what
// rank i sends to j must be what j expects from i. Without recorded splits, the totals are
// compared.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include <fmt/core.h>

#include "verify/matching/matching.h"
#include "verify/streams/past.h"
#include "verify/streams/programs.h"

namespace lockstep::verify {

namespace {

// A pair of members whose splits contradict each other at one all-to-all, as group ranks.
struct SplitConflict {
  std::size_t sender, receiver;
  std::int64_t sent, expected;
};

// Conflicts kept of one all-to-all: 1000 members have up to a million, and these suffice to see
// whether one member is part of all.
constexpr std::size_t kConflictsKept = 4096;

// The pairs of members for which what the one sends is not what the other expects. `calls` by group
// rank; null: no trace.
std::vector<SplitConflict> conflicts(const trace::Tables& tables,
                                     const std::vector<const trace::Call*>& calls) {
  std::vector<SplitConflict> out;
  for (std::size_t from = 0; from < calls.size(); ++from) {
    if (calls[from] == nullptr) continue;
    const trace::IntList& sent =
        tables.int_lists[tables.signatures[calls[from]->signature].splits_in];
    if (sent.size() != calls.size()) continue;
    for (std::size_t to = 0; to < calls.size() && out.size() < kConflictsKept; ++to) {
      if (calls[to] == nullptr) continue;
      const trace::IntList& taken =
          tables.int_lists[tables.signatures[calls[to]->signature].splits_out];
      if (taken.size() != calls.size() || sent[to] == taken[from]) continue;
      out.push_back({from, to, sent[to], taken[from]});
    }
  }
  return out;
}

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

// Of two sides of a group, each of which fits together and not with the other one, the smaller one;
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

// The calls of one all-to-all, by group rank, with the calls of members `shifted` (ascending) taken
// `by` calls later. Missing calls are null.
struct ShiftedExchange {
  std::vector<CallRef> refs;
  std::vector<const trace::Call*> calls;
};
ShiftedExchange exchange_at(const Context& context, const std::vector<const Stream*>& members,
                            std::size_t instance, const std::vector<std::size_t>& shifted = {},
                            std::size_t by = 0) {
  ShiftedExchange out;
  for (std::size_t m = 0; m < members.size(); ++m) {
    const bool moves = std::binary_search(shifted.begin(), shifted.end(), m);
    const std::size_t at = instance + (moves ? by : 0);
    const bool there = members[m] != nullptr && at < members[m]->calls.size();
    out.refs.push_back(there ? CallRef{members[m]->rank_index, members[m]->calls[at]} : CallRef{});
    out.calls.push_back(there ? &context.call(out.refs.back()) : nullptr);
  }
  return out;
}

// Where members (group ranks, ascending) are part of every conflict: did they leave out an
// all-to-all, issue one too many, or issue two in the other order? They did if their calls fit
// those of the others one call later, one call earlier, or both.
std::optional<Deviation> shifted_exchange(const Context& context, std::size_t g,
                                          const std::vector<const Stream*>& members,
                                          std::size_t instance,
                                          const std::vector<std::size_t>& deviants) {
  const auto exchanges = [&](const trace::Call* c) {
    return c != nullptr && context.run.tables.signatures[c->signature].splits_in.value != 0;
  };
  const auto fits = [&](const ShiftedExchange& exchange) {
    return std::all_of(deviants.begin(), deviants.end(),
                       [&](std::size_t m) { return exchanges(exchange.calls[m]); }) &&
           std::count_if(exchange.calls.begin(), exchange.calls.end(), exchanges) >
               static_cast<std::ptrdiff_t>(deviants.size()) &&
           conflicts(context.run.tables, exchange.calls).empty();
  };
  Deviation d;
  d.group = g;
  d.seq = context.groups[g].first_seq + instance;
  const ShiftedExchange here = exchange_at(context, members, instance);
  for (std::size_t m = 0; m < members.size(); ++m) {
    if (members[m] == nullptr) continue;
    const bool deviates = std::binary_search(deviants.begin(), deviants.end(), m);
    (deviates ? d.deviants : d.reference).push_back(members[m]->rank_index);
  }
  std::sort(d.deviants.begin(), d.deviants.end());
  std::sort(d.reference.begin(), d.reference.end());
  const auto other = std::find_if(here.refs.begin(), here.refs.end(), [&](const CallRef& ref) {
    return ref.call != kNoCall &&
           !std::binary_search(d.deviants.begin(), d.deviants.end(), ref.rank);
  });
  if (other == here.refs.end()) return std::nullopt;
  d.expected = *other;
  d.got = here.refs[deviants[0]];
  d.step = context.call(d.expected).step;
  // Left out: what it issued here fits what the others issue next. Extra: what it issues next fits
  // what the others issued here.
  ShiftedExchange next = exchange_at(context, members, instance + 1);
  for (const std::size_t m : deviants) {
    next.refs[m] = here.refs[m];
    next.calls[m] = here.calls[m];
  }
  const bool fits_later = fits(next);
  const bool fits_earlier = fits(exchange_at(context, members, instance, deviants, 1));
  if (!fits_later && !fits_earlier) return std::nullopt;
  d.kind = fits_later ? Deviation::Kind::missing : Deviation::Kind::extra;
  // Both: two calls changed places if what follows them fits as it is. Of exchanges that alternate
  // (A B A B, the first left out: B A B) the two fit as well, and what follows them does not.
  const bool goes_on =
      conflicts(context.run.tables, exchange_at(context, members, instance + 2).calls).empty();
  if (fits_later && fits_earlier && goes_on) d.kind = Deviation::Kind::swapped;
  return d;
}

// Whether the rank issues calls of the group alone from its call at `instance` to call `index`.
bool goes_on_in_group(const Context& context, const Stream& stream, std::size_t instance,
                      std::uint32_t index) {
  const std::vector<trace::Call>& calls = context.run.ranks[stream.rank_index].calls;
  const std::uint32_t first = stream.calls[instance];
  return std::all_of(calls.begin() + first, calls.begin() + std::max(first, index),
                     [&](const trace::Call& c) { return c.group == calls[first].group; });
}

// The all-to-all that one of two members left out, or issued once too often, where their sizes
// contradict each other at `instance`. Sizes vary with the routing, so the programs of the two
// decide. They may diverge later than the sizes do:
//
//   rank 0   A  A  A  A  reduce      the sizes contradict each other from the second call on, the
//   rank 1   A  A  A  reduce         programs diverge at the fourth
std::optional<Deviation> program_divergence_at(const Context& context, std::size_t g,
                                               std::size_t instance, const Stream& one,
                                               const Stream& other) {
  const GroupStreams& group = context.groups[g];
  const auto divergence =
      find_program_divergence(context.run, context.agreement, one.rank_index, other.rank_index);
  if (!divergence || !goes_on_in_group(context, one, instance, divergence->index) ||
      !goes_on_in_group(context, other, instance, divergence->index)) {
    return std::nullopt;
  }
  // One of them issues an all-to-all of the group there, the other one goes on with something else.
  const bool left_out = calls_in(context.run, divergence->usual, divergence->index, group.group);
  if (left_out == calls_in(context.run, divergence->deviant, divergence->index, group.group)) {
    return std::nullopt;
  }
  const bool first_is_usual = divergence->usual == one.rank_index;
  const Stream& usual = first_is_usual ? one : other;
  const Stream& deviant = first_is_usual ? other : one;
  const Stream& issuer = left_out ? usual : deviant;
  std::size_t at = static_cast<std::size_t>(
      std::lower_bound(issuer.calls.begin(), issuer.calls.end(), divergence->index) -
      issuer.calls.begin());
  at = std::min(at, instance);
  Deviation d;
  d.kind = left_out ? Deviation::Kind::missing : Deviation::Kind::extra;
  d.group = g;
  d.seq = group.first_seq + at;
  d.deviants = {divergence->deviant};
  for (const Stream& stream : group.streams) {
    if (stream.rank_index != divergence->deviant) d.reference.push_back(stream.rank_index);
  }
  d.expected = {usual.rank_index, usual.calls[at]};
  d.got = {deviant.rank_index, deviant.calls[at]};
  d.step = context.call(left_out ? d.expected : d.got).step;
  return d;
}

// Whether the few (group ranks) made an exchange more than most members, or less, where the
// programs of the two diverge and the past expects what the few do. Then most are wrong.
//
//   few    A A A A reduce | A A A A reduce | A A A A
//   most   A A A A reduce | A A A A reduce | A A A reduce      most left out the fourth one
enum class FewDo : std::uint8_t { more, less, unknown };
FewDo rightly_do(const Context& context, const std::vector<const Stream*>& members,
                 std::size_t instance, const std::vector<std::size_t>& few) {
  constexpr std::size_t kMaxAsked = 16;  // each costs the search of a past
  const Stream* const one = members[few[0]];
  if (one == nullptr || instance >= one->calls.size()) return FewDo::unknown;
  FewDo out = FewDo::unknown;
  std::size_t asked = 0;
  for (std::size_t m = 0; m < members.size() && asked < kMaxAsked; ++m) {
    const Stream* const other = members[m];
    if (std::find(few.begin(), few.end(), m) != few.end() || other == nullptr) continue;
    ++asked;
    const auto diverged =
        common_start(context.run, context.agreement, one->rank_index, other->rank_index);
    const auto is_in_row = [&](const Stream& stream) {
      return instance < stream.calls.size() &&
             *diverged < context.run.ranks[stream.rank_index].calls.size() &&
             goes_on_in_group(context, stream, instance, *diverged);
    };
    if (!diverged || !is_in_row(*one) || !is_in_row(*other)) return FewDo::unknown;
    const CallRef of_few{one->rank_index, *diverged};
    const CallRef of_other{other->rank_index, *diverged};
    const trace::GroupId group = context.call({one->rank_index, one->calls[instance]}).group;
    const bool more = context.call(of_few).group == group;
    const FewDo here = more ? FewDo::more : FewDo::less;
    if (more == (context.call(of_other).group == group) || (asked > 1 && here != out) ||
        expected_of(context.run, context.agreement, of_few, of_other) != Expected::first) {
      return FewDo::unknown;
    }
    out = here;
  }
  return out;
}

// The odd program of the job, where it is one of these members that diverges from the others at an
// all-to-all, or before its call at `instance`. Sizes vary with the routing, so what was left out
// shows in the numbers of calls.
std::optional<Cause> explain_by_odd_program(const Context& context,
                                            const std::vector<CallRef>& members) {
  const OddProgram* const odd = context.odd_program;
  if (odd == nullptr) return std::nullopt;
  const bool member = std::any_of(members.begin(), members.end(), [&](const CallRef& ref) {
    return ref.call != kNoCall &&
           std::binary_search(odd->deviants.begin(), odd->deviants.end(), ref.rank);
  });
  const bool left_out = odd->kind == OddProgram::Kind::missing;
  const CallRef shown{left_out ? odd->usual : odd->deviants[0], odd->index};
  const trace::Op op = context.op(shown);
  const bool exchange = op == trace::Op::all_to_all || op == trace::Op::all_to_all_single;
  return member && exchange ? explain_odd_program(context, *odd) : std::nullopt;
}

// Whether the members other than `few` (group ranks) are those of the odd program.
bool are_others_odd(const Context& context, const std::vector<CallRef>& members,
                    const std::vector<std::size_t>& few) {
  std::vector<std::uint32_t> one, others;
  for (std::size_t m = 0; m < members.size(); ++m) {
    if (members[m].call == kNoCall) continue;
    const bool is_few = std::find(few.begin(), few.end(), m) != few.end();
    (is_few ? one : others).push_back(members[m].rank);
  }
  return !one.empty() && is_odd_program_of_others(context, one, others, members[few[0]].call);
}

// What was sent comes back: experts return what they received, and gradients take the way of their
// tokens in reverse. So of two exchanges in a row the second one undoes the first. The only member
// whose call at `instance` is no such half of a pair, where those of all others are, as group rank;
// nothing where that is not so.
//
//   rank 0   sends 8, 11, receives 8, 13; sends 8, 13, receives 8, 11
//   rank 1   sends 13, 9, receives 11, 9; sends 13, 9, receives 11, 9      its second call is wrong
std::optional<std::size_t> breaks_round_trip(const Context& context,
                                             const std::vector<const Stream*>& members,
                                             std::size_t instance) {
  const trace::Tables& tables = context.run.tables;
  const auto undoes = [&](const trace::Call& a, const trace::Call& b) {
    const trace::Signature& x = tables.signatures[a.signature];
    const trace::Signature& y = tables.signatures[b.signature];
    return x.op == y.op && x.splits_in == y.splits_out && x.splits_out == y.splits_in &&
           x.in_elements == y.out_elements && x.out_elements == y.in_elements;
  };
  const auto pair_up = [&](const Stream& member, std::size_t one) {
    const std::vector<trace::Call>& calls = context.run.ranks[member.rank_index].calls;
    return undoes(calls[member.calls[one]], calls[member.calls[one + 1]]);
  };
  std::optional<std::size_t> odd;
  std::optional<bool> comes_back;  // whether the call is the second one of a pair
  for (std::size_t m = 0; m < members.size(); ++m) {
    // Where calls were lost, nothing shows which ones were pairs.
    if (members[m] == nullptr || instance >= members[m]->calls.size() ||
        !is_known_from_its_start(context.run.ranks[members[m]->rank_index])) {
      return std::nullopt;
    }
    const Stream& member = *members[m];
    std::size_t first = 0;  // of the pair that the call belongs to; pairs begin with the first call
    while (first + 1 < instance) first += pair_up(member, first) ? std::size_t{2} : std::size_t{1};
    const bool second = first < instance;
    // A member that left out a call is half a pair off.
    if (comes_back.value_or(second) != second) return std::nullopt;
    comes_back = second;
    if (!second && instance + 1 >= member.calls.size()) return std::nullopt;
    if (pair_up(member, second ? instance - 1 : instance)) continue;
    if (odd) return std::nullopt;
    odd = m;
  }
  return members.size() > 1 ? odd : std::nullopt;
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
                        const std::vector<const Stream*>& members, const ShiftedExchange& here,
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
  const FewDo rightly = shifted ? rightly_do(context, members, m, few) : FewDo::unknown;
  if (rightly != FewDo::unknown) {
    shifted->kind = rightly == FewDo::more ? Deviation::Kind::extra : Deviation::Kind::missing;
    turn_around(*shifted);
  }
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
    const ShiftedExchange here = exchange_at(context, members, m);
    std::vector<trace::SignatureId> signatures;
    for (const trace::Call* c : here.calls)
      signatures.push_back(c == nullptr ? trace::SignatureId{} : c->signature);
    if (signatures == judged) continue;
    judged = std::move(signatures);
    const std::vector<SplitConflict> found = conflicts(tables, here.calls);
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

// The totals of one instance. Nothing where it is no all-to-all, a member did not issue it, sizes
// are unknown, or splits were recorded (check_splits is more precise).
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
            "exchange, "
            "but not on {}.",
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
