#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "verify/matching/matching.h"

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

// Whether the two ranks' batches differed in the same way in an earlier step, although their calls
// agreed there. Then a remedy handles such batches, and they are not the reason now.
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

// Whether the two calls carry different parameters, as far as both are known.
bool carries_something_else(const Context& context, const Deviation& d) {
  if (d.expected.call == kNoCall || d.got.call == kNoCall) return false;
  const trace::NameListId expected = context.call(d.expected).what;
  const trace::NameListId got = context.call(d.got).what;
  return expected.value != 0 && got.value != 0 && expected != got;
}

// Whether a skipped branch of the model can be the reason. Then calls are missing or extra, or
// carry other parameters; a wrong type of the same parameters, or a changed order, has another
// reason.
bool may_be_modality(const Context& context, const Deviation& d) {
  if (agreed_before(context, d)) return false;
  switch (d.kind) {
    case Deviation::Kind::missing:
      return true;
    case Deviation::Kind::extra:
      // Only the deviants' batches reach the branch. Or calls are prefetched (FSDP), and the call
      // of the next layer comes instead of one that the deviants skipped.
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

// The parameters of the deviation: for missing calls, all that the deviant left out in this step.
std::vector<std::string> names_carried(const Context& context, const Deviation& d) {
  const CallRef ref = d.expected.call != kNoCall ? d.expected : d.got;
  std::vector<std::string> names = context.run.tables.names(context.call(ref).what);
  if (d.kind == Deviation::Kind::missing) {
    const auto skipped =
        left_out(context.run, context.modalities, d.got.rank, d.expected.rank, d.step);
    if (!skipped.empty()) names = skipped;
  }
  // Several calls may carry the same parameter: name it once.
  std::set<std::string> seen;
  std::erase_if(names, [&](const std::string& name) { return !seen.insert(name).second; });
  return names;
}

std::string again_words(const Deviation& d) {
  return d.repeats == 0 ? "" : " The same happens " + plural(d.repeats, "more time") + ".";
}

// The deviation as one sentence, without its reason.
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

// Fills in the finding where the batches explain the deviation: "rank 1's batch of step 0 held text
// only; …". False: they do not.
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
  // A remedy computed a stand-in, but its gradient never arrived: a remedy without effect.
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
  // Only a different reduce operation lets all ranks continue, with wrong numbers.
  cause.can_block =
      d.kind != Deviation::Kind::replaced || (d.differences & ~unsigned{kDifferentRedop}) != 0;
  return cause;
}

}  // namespace lockstep::verify
