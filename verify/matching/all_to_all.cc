#include "verify/matching/all_to_all.h"

#include <algorithm>
#include <cstdint>

#include "verify/matching/matching.h"
#include "verify/streams/programs.h"
#include "verify/streams/rounds.h"

namespace lockstep::verify {

Exchange exchange_at(const Context& context, const std::vector<const Stream*>& members,
                     std::size_t instance, const std::vector<std::size_t>& shifted,
                     std::size_t by) {
  Exchange out;
  for (std::size_t m = 0; m < members.size(); ++m) {
    const bool moves = std::binary_search(shifted.begin(), shifted.end(), m);
    const std::size_t at = instance + (moves ? by : 0);
    const bool there = members[m] != nullptr && at < members[m]->calls.size();
    out.refs.push_back(there ? CallRef{members[m]->rank_index, members[m]->calls[at]} : CallRef{});
    out.calls.push_back(there ? &context.call(out.refs.back()) : nullptr);
  }
  return out;
}

std::vector<SplitConflict> split_conflicts(const trace::Tables& tables,
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

std::optional<Deviation> shifted_exchange(const Context& context, std::size_t g,
                                          const std::vector<const Stream*>& members,
                                          std::size_t instance,
                                          const std::vector<std::size_t>& deviants) {
  const auto exchanges = [&](const trace::Call* c) {
    return c != nullptr && context.run.tables.signatures[c->signature].splits_in.value != 0;
  };
  const auto fits = [&](const Exchange& exchange) {
    return std::all_of(deviants.begin(), deviants.end(),
                       [&](std::size_t m) { return exchanges(exchange.calls[m]); }) &&
           std::count_if(exchange.calls.begin(), exchange.calls.end(), exchanges) >
               static_cast<std::ptrdiff_t>(deviants.size()) &&
           split_conflicts(context.run.tables, exchange.calls).empty();
  };
  Deviation d;
  d.group = g;
  d.seq = context.groups[g].first_seq + instance;
  const Exchange here = exchange_at(context, members, instance);
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
  Exchange next = exchange_at(context, members, instance + 1);
  for (const std::size_t m : deviants) {
    next.refs[m] = here.refs[m];
    next.calls[m] = here.calls[m];
  }
  const bool fits_later = fits(next);
  const bool fits_earlier = fits(exchange_at(context, members, instance, deviants, 1));
  if (!fits_later && !fits_earlier) return std::nullopt;
  d.kind = fits_later ? Deviation::Kind::missing : Deviation::Kind::extra;
  // Both: two calls changed places if what follows them fits as it is. If exchanges
  // alternate (A B A B, the first left out: B A B), the two fit as well, but what follows does not.
  const bool goes_on =
      split_conflicts(context.run.tables, exchange_at(context, members, instance + 2).calls)
          .empty();
  if (fits_later && fits_earlier && goes_on) d.kind = Deviation::Kind::swapped;
  return d;
}

namespace {

// Whether the rank issues calls of the group alone from its call at `instance` to call `index`.
bool goes_on_in_group(const Context& context, const Stream& stream, std::size_t instance,
                      std::uint32_t index) {
  const std::vector<trace::Call>& calls = context.run.ranks[stream.rank_index].calls;
  const std::uint32_t first = stream.calls[instance];
  return std::all_of(calls.begin() + first, calls.begin() + std::max(first, index),
                     [&](const trace::Call& c) { return c.group == calls[first].group; });
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

// Whether the two come to their next call of the group that is no all-to-all at the same place, and
// it is the same one. Then neither of them has an exchange more than the other.
bool are_level_later(const Context& context, const Stream& one, const Stream& other,
                     std::size_t instance) {
  const auto op_at = [&](const Stream& stream, std::size_t at) {
    return context.op({stream.rank_index, stream.calls[at]});
  };
  const auto exchanges = [](trace::Op op) {
    return op == trace::Op::all_to_all || op == trace::Op::all_to_all_single;
  };
  const std::size_t shorter = std::min(one.calls.size(), other.calls.size());
  for (std::size_t at = instance; at < shorter; ++at) {
    if (exchanges(op_at(one, at)) && exchanges(op_at(other, at))) continue;
    return op_at(one, at) == op_at(other, at);
  }
  return false;
}

}  // namespace

void correct_by_past(const Context& context, const std::vector<const Stream*>& members,
                     std::size_t instance, const std::vector<std::size_t>& few,
                     Deviation& shifted) {
  const FewDo rightly = rightly_do(context, members, instance, few);
  if (rightly == FewDo::unknown) return;
  shifted.kind = rightly == FewDo::more ? Deviation::Kind::extra : Deviation::Kind::missing;
  turn_around(shifted);
}

std::optional<Deviation> program_divergence_at(const Context& context, std::size_t g,
                                               std::size_t instance, const Stream& one,
                                               const Stream& other) {
  const GroupStreams& group = context.groups[g];
  const auto divergence =
      find_program_divergence(context.run, context.agreement, one.rank_index, other.rank_index);
  if (!divergence || !goes_on_in_group(context, one, instance, divergence->index) ||
      !goes_on_in_group(context, other, instance, divergence->index) ||
      are_level_later(context, one, other, instance)) {
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

}  // namespace lockstep::verify
