#include "verify/matching/explain_deviation.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"

namespace lockstep::verify {

namespace {

constexpr std::size_t kNamesShown = 3;

std::string quoted_names(const std::vector<std::string>& names) {
  std::vector<std::string> clean;
  clean.reserve(names.size());
  for (const std::string& name : names) clean.push_back(printable(name));
  return join_and(clean, kNamesShown);
}

std::string modality_words(const std::optional<std::vector<std::string>>& held) {
  if (!held || held->empty()) return "nothing";
  if (held->size() == 1) return printable((*held)[0]) + " only";
  std::vector<std::string> clean;
  for (const std::string& name : *held) clean.push_back(printable(name));
  return join_and(clean);
}

RuleId rule_of_deviation(const Deviation& d) {
  switch (d.kind) {
    case Deviation::Kind::missing:
      return RuleId::missing_collective;
    case Deviation::Kind::extra:
      return RuleId::extra_collective;
    case Deviation::Kind::swapped:
      return RuleId::order_swap;
    case Deviation::Kind::identity:
      return RuleId::identity_mismatch;
    case Deviation::Kind::replaced:
      break;
  }
  if (d.differences & kDifferentOp) return RuleId::op_mismatch;
  if (d.differences & kDifferentSize) return RuleId::size_mismatch;
  if (d.differences & kDifferentDtype) return RuleId::dtype_mismatch;
  if (d.differences & kDifferentRoot) return RuleId::root_mismatch;
  if (d.differences & kDifferentRedop) return RuleId::redop_mismatch;
  return RuleId::op_mismatch;
}

// The same difference of the two ranks' batches in an earlier step, in which their calls agreed: a
// remedy is at work, and the batches are not why the calls part now.
bool agreed_before(const Context& context, const Deviation& d) {
  const std::uint32_t deviant = d.deviants[0];
  const std::uint32_t other = d.reference[0];
  const auto mine = context.modalities.held(deviant, d.step);
  const auto theirs = context.modalities.held(other, d.step);
  for (const trace::ModalityMark& mark : context.run.ranks[deviant].modalities) {
    const auto step = static_cast<std::int32_t>(mark.n);
    if (step < d.step && context.modalities.held(deviant, step) == mine &&
        context.modalities.held(other, step) == theirs) {
      return true;
    }
  }
  return false;
}

bool carries_something_else(const Context& context, const Deviation& d) {
  if (d.expected.call == kNoCall || d.got.call == kNoCall) return false;
  const trace::NameListId expected = context.call(d.expected).what;
  const trace::NameListId got = context.call(d.got).what;
  return expected.value != 0 && got.value != 0 && expected != got;
}

// Calls that part because a branch of the model was skipped differ in what they carry, not in their
// form or order.
bool may_be_modality(const Context& context, const Deviation& d) {
  if (agreed_before(context, d)) return false;
  switch (d.kind) {
    case Deviation::Kind::missing:
      return true;
    case Deviation::Kind::extra:
      // A branch that only the deviants' batches reach; or, where calls are prefetched, the next
      // one's call in the place of one that the deviants skipped.
      return !context.modalities.lacking(d.reference[0], d.deviants[0], d.step).empty() ||
             carries_something_else(context, d);
    case Deviation::Kind::swapped:
    case Deviation::Kind::identity:
      return false;
    case Deviation::Kind::replaced:
      break;
  }
  const bool both = d.expected.call != kNoCall && d.got.call != kNoCall;
  const trace::NameListId expected = both ? context.call(d.expected).what : trace::NameListId{};
  if (both && expected.value != 0 && expected == context.call(d.got).what) return false;
  return (d.differences & (kDifferentOp | kDifferentSize)) != 0;
}

std::vector<std::string> names_carried(const Context& context, const Deviation& d) {
  const CallRef ref = d.expected.call != kNoCall ? d.expected : d.got;
  std::vector<std::string> names = context.run.tables.names(context.call(ref).what);
  if (d.kind == Deviation::Kind::missing) {
    const auto skipped =
        left_out(context.run, context.modalities, d.got.rank, d.expected.rank, d.step);
    if (!skipped.empty()) names = skipped;
  }
  // Several calls may carry one thing: it is named once.
  std::set<std::string> seen;
  std::erase_if(names, [&](const std::string& name) { return !seen.insert(name).second; });
  return names;
}

std::string again_words(const Deviation& d) {
  return d.repeats == 0 ? "" : " The same happens " + plural(d.repeats, "more time") + ".";
}

std::string form_message(const Context& context, const Deviation& d) {
  const trace::Tables& tables = context.run.tables;
  const std::string who = context.rank_words(d.deviants);
  const std::string others = context.rank_words(d.reference);
  const bool has_got = d.got.call != kNoCall;
  const bool has_expected = d.expected.call != kNoCall;
  const std::string place = context.place_words(has_expected ? d.expected : d.got, d.seq);
  switch (d.kind) {
    case Deviation::Kind::missing: {
      std::string out = who + " never issued " + context.call_words(d.expected);
      if (d.count > 1) out += " and the " + plural(d.count - 1, "call") + " after it";
      return out + ", which " + others + " issued as " + place;
    }
    case Deviation::Kind::extra: {
      std::string out = who + " issued " + context.call_words(d.got);
      if (d.count > 1) out += " and " + plural(d.count - 1, "more call");
      out += " as " + context.place_words(d.got, d.seq) + ", which " + others + " did not issue";
      return out;
    }
    case Deviation::Kind::swapped:
      return who + " issued " + context.call_words(d.got) + " before " +
             context.call_words(d.expected) + "; " + others + " issued them the other way round (" +
             place + ")";
    case Deviation::Kind::identity:
    case Deviation::Kind::replaced:
      break;
  }
  const auto words = [&](CallRef ref, bool known) {
    if (!known) return std::string("nothing");
    return d.kind == Deviation::Kind::identity
               ? context.call_words(ref)
               : trace::describe(tables, context.call(ref).signature);
  };
  return who + " issued " + words(d.got, has_got) + " where " + others + " issued " +
         words(d.expected, has_expected) + " (" + place + ")";
}

// "rank 1's batch of step 0 held text only; …" — where the batches differ and the calls part.
bool tell_modality(const Context& context, const Deviation& d, Finding& finding) {
  if (!may_be_modality(context, d)) return false;
  const std::uint32_t deviant = d.deviants[0];
  const std::uint32_t other = d.reference[0];
  const bool lacks = !context.modalities.lacking(deviant, other, d.step).empty();
  const bool exceeds = !context.modalities.lacking(other, deviant, d.step).empty();
  if (!lacks && !exceeds) return false;
  const std::string step = std::to_string(d.step);
  const std::string who = context.rank_words(d.deviants);
  const std::string batch =
      (d.deviants.size() == 1 ? who + "'s batch of step " + step
                              : "the batches of " + who + " in step " + step) +
      " held " + modality_words(context.modalities.held(deviant, d.step));
  const CallRef call = d.expected.call != kNoCall ? d.expected : d.got;
  const bool dead =
      lacks && d.kind == Deviation::Kind::missing && context.modalities.stood_in(deviant, d.step);
  finding = make_finding(dead ? RuleId::dead_remedy : RuleId::modality_divergence);
  finding.what = names_carried(context, d);
  const std::string names =
      finding.what.empty() ? "a branch's parameters" : quoted_names(finding.what);
  const bool several = finding.what.size() != 1;
  if (lacks) {
    finding.message =
        batch + "; " + names + " got no gradient there, and " + (several ? "their" : "its") + " " +
        std::string(
            trace::op_name(context.run.tables.signatures[context.call(d.expected).signature].op)) +
        " was never called";
    if (dead) {
      finding.message += ". A stand-in was computed there, but it is not connected to the loss";
    }
  } else {
    finding.message = batch + ", those of " + context.rank_words(d.reference) + " held " +
                      modality_words(context.modalities.held(other, d.step)) +
                      "; the calls part at " + context.place_words(call, d.seq);
  }
  finding.why = form_message(context, d) + "." + again_words(d);
  return true;
}

std::string usual_why(const Deviation& d) {
  if (!d.singled_out) {
    return "As many ranks did the one as the other, and nothing earlier in the traces tells which "
           "of "
           "them deviates." +
           again_words(d);
  }
  switch (d.kind) {
    case Deviation::Kind::missing:
      return "Left out that call, the sequences agree again. A group's calls are paired by their "
             "order, so from there on every call is paired with the wrong one." +
             again_words(d);
    case Deviation::Kind::extra:
      return "Without it the sequences agree again. A group's calls are paired by their order, so "
             "from there on every call is paired with the wrong one." +
             again_words(d);
    case Deviation::Kind::identity:
      return "Operation, size and type agree, so nothing hangs: different tensors are combined." +
             again_words(d);
    case Deviation::Kind::swapped:
    case Deviation::Kind::replaced:
      return again_words(d).empty() ? "" : again_words(d).substr(1);
  }
  return "";
}

}  // namespace

Cause explain_deviation(const Context& context, const Deviation& d) {
  Cause cause;
  Finding& finding = cause.finding;
  if (!tell_modality(context, d, finding)) {
    finding = make_finding(rule_of_deviation(d));
    finding.message = form_message(context, d);
    finding.why = usual_why(d);
    finding.what = names_carried(context, d);
  }
  finding.group = context.groups[d.group].name;
  finding.seq = d.seq;
  if (d.step != trace::kNone) finding.step = d.step;
  if (d.singled_out) finding.culprits = context.ranks(d.deviants);
  std::vector<std::uint32_t> concerned = d.deviants;
  concerned.insert(concerned.end(), d.reference.begin(), d.reference.end());
  finding.ranks = context.ranks(concerned);
  if (d.expected.call != kNoCall) {
    finding.evidence.push_back(context.evidence(d.expected, context.call_words(d.expected)));
  }
  if (d.got.call != kNoCall) {
    finding.evidence.push_back(context.evidence(d.got, context.call_words(d.got)));
  }
  const CallRef call = d.expected.call != kNoCall ? d.expected : d.got;
  set_fingerprint(finding, trace::describe(context.run.tables, context.call(call).signature));
  cause.deviants = d.deviants;
  cause.call = context.call(call).signature;
  cause.group = d.group;
  cause.seq = d.seq;
  cause.step = d.step;
  cause.can_block =
      d.kind != Deviation::Kind::replaced || (d.differences & ~unsigned{kDifferentRedop}) != 0;
  return cause;
}

namespace {

// A pair of members whose splits contradict each other at one all-to-all, as group ranks.
struct SplitConflict {
  std::size_t sender, receiver;
  std::int64_t sent, expected;
};

constexpr std::size_t kConflictsKept = 4096;  // of one all-to-all: enough to see who is in them all

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

// The one member that takes part in every conflict, where more than one pair conflicts.
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

Cause splits_cause(const Context& context, std::size_t g, std::uint64_t meeting,
                   const std::vector<CallRef>& refs, const SplitConflict& c) {
  const CallRef sender = refs[c.sender];
  const CallRef receiver = refs[c.receiver];
  const trace::Rank from = context.run.ranks[sender.rank].rank;
  const trace::Rank to = context.run.ranks[receiver.rank].rank;
  Cause cause;
  cause.finding = make_finding(RuleId::splits_mismatch);
  Finding& f = cause.finding;
  cause.group = g;
  cause.seq = context.groups[g].first_seq + meeting;
  cause.step = context.call(sender).step;
  f.message = "rank " + std::to_string(from.value) + " sends " + std::to_string(c.sent) +
              " to rank " + std::to_string(to.value) + ", which expects " +
              std::to_string(c.expected) + " from it (" + context.place_words(sender, cause.seq) +
              ")";
  f.group = context.groups[g].name;
  f.seq = cause.seq;
  if (cause.step != trace::kNone) f.step = cause.step;
  cause.deviants = {std::min(sender.rank, receiver.rank), std::max(sender.rank, receiver.rank)};
  f.ranks = context.ranks(cause.deviants);
  f.evidence = {context.evidence(sender, "sends " + std::to_string(c.sent)),
                context.evidence(receiver, "expects " + std::to_string(c.expected))};
  set_fingerprint(f, "all_to_all");
  return cause;
}

}  // namespace

namespace {

// The calls of one all-to-all, by group rank; `shifted`'s call is taken so many places later. Those
// that are not there are null.
struct ShiftedExchange {
  std::vector<CallRef> refs;
  std::vector<const trace::Call*> calls;
};
ShiftedExchange exchange_at(const Context& context, const std::vector<const Stream*>& members,
                            std::size_t meeting, std::size_t shifted = SIZE_MAX,
                            std::size_t by = 0) {
  ShiftedExchange out;
  for (std::size_t m = 0; m < members.size(); ++m) {
    const std::size_t at = meeting + (m == shifted ? by : 0);
    const bool there = members[m] != nullptr && at < members[m]->calls.size();
    out.refs.push_back(there ? CallRef{members[m]->rank_index, members[m]->calls[at]} : CallRef{});
    out.calls.push_back(there ? &context.call(out.refs.back()) : nullptr);
  }
  return out;
}

// Where every conflict involves one member: whether it left out an exchange or made one too many,
// by whether its calls fit those of the others one place later, or earlier.
std::optional<Deviation> shifted_exchange(const Context& context, std::size_t g,
                                          const std::vector<const Stream*>& members,
                                          std::size_t meeting, std::size_t deviant) {
  const auto exchanges = [&](const trace::Call* c) {
    return c != nullptr && context.run.tables.signatures[c->signature].splits_in.value != 0;
  };
  const auto fits = [&](const ShiftedExchange& exchange) {
    return exchanges(exchange.calls[deviant]) &&
           std::count_if(exchange.calls.begin(), exchange.calls.end(), exchanges) > 1 &&
           conflicts(context.run.tables, exchange.calls).empty();
  };
  Deviation d;
  d.group = g;
  d.seq = context.groups[g].first_seq + meeting;
  d.deviants = {members[deviant]->rank_index};
  const ShiftedExchange here = exchange_at(context, members, meeting);
  for (std::size_t m = 0; m < members.size(); ++m) {
    if (m != deviant && members[m] != nullptr) d.reference.push_back(members[m]->rank_index);
  }
  std::sort(d.reference.begin(), d.reference.end());
  const auto other = std::find_if(here.refs.begin(), here.refs.end(), [&](const CallRef& ref) {
    return ref.call != kNoCall && ref.rank != d.deviants[0];
  });
  if (other == here.refs.end()) return std::nullopt;
  d.expected = *other;
  d.got = here.refs[deviant];
  d.step = context.call(d.expected).step;
  // Left out: what it issued here fits what the others issue next. (A shift of the one by -1 is a
  // shift of all others by 1.)
  ShiftedExchange next = exchange_at(context, members, meeting + 1);
  next.refs[deviant] = here.refs[deviant];
  next.calls[deviant] = here.calls[deviant];
  if (fits(next)) {
    d.kind = Deviation::Kind::missing;
    return d;
  }
  if (fits(exchange_at(context, members, meeting, deviant, 1))) {
    d.kind = Deviation::Kind::extra;
    return d;
  }
  return std::nullopt;
}

}  // namespace

std::vector<Cause> check_splits(const Context& context) {
  std::vector<Cause> out;
  const trace::Tables& tables = context.run.tables;
  for (std::size_t g = 0; g < context.groups.size(); ++g) {
    const GroupStreams& group = context.groups[g];
    if (!group.comparable || group.streams.empty()) continue;
    std::map<trace::Rank, const Stream*> by_rank;
    std::size_t shortest = SIZE_MAX;
    for (const Stream& s : group.streams) {
      by_rank[context.run.ranks[s.rank_index].rank] = &s;
      shortest = std::min(shortest, s.calls.size());
    }
    std::vector<const Stream*> members;  // by group rank; null: without a trace
    for (const trace::Rank member : group.members) {
      const auto found = by_rank.find(member);
      members.push_back(found == by_rank.end() ? nullptr : found->second);
    }
    const Stream& first = group.streams[0];
    std::vector<trace::SignatureId> judged;
    for (std::size_t m = 0; m < shortest; ++m) {
      const trace::Call& lead = context.run.ranks[first.rank_index].calls[first.calls[m]];
      if (tables.signatures[lead.signature].splits_in.value == 0) continue;
      const ShiftedExchange here = exchange_at(context, members, m);
      std::vector<trace::SignatureId> signatures;
      for (const trace::Call* c : here.calls) {
        signatures.push_back(c == nullptr ? trace::SignatureId{} : c->signature);
      }
      if (signatures == judged) continue;  // the same as the last one
      judged = std::move(signatures);
      const std::vector<SplitConflict> found = conflicts(tables, here.calls);
      if (found.empty()) continue;
      const std::optional<std::size_t> odd = in_all(found);
      const std::optional<Deviation> shifted =
          odd ? shifted_exchange(context, g, members, m, *odd) : std::nullopt;
      out.push_back(shifted ? explain_deviation(context, *shifted)
                            : splits_cause(context, g, m, here.refs, found[0]));
      if (!shifted && odd) {
        out.back().deviants = {here.refs[*odd].rank};
        out.back().finding.culprits = context.ranks(out.back().deviants);
      }
      break;  // one cause a group: what follows is as wrong
    }
  }
  return out;
}

}  // namespace lockstep::verify
