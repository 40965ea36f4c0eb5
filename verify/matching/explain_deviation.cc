// From a deviation, the edit that makes a rank's stream agree again, to a finding: rule, message,
// evidence and fix.
#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/core.h>

#include "verify/matching/deviation_words.h"
#include "verify/matching/explain_modality.h"
#include "verify/matching/matching.h"

namespace lockstep::verify {

namespace {

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

// Whether the extra or missing calls repeat those right before them, in the same step and with the
// same parameters. Then gradients are reduced once more, or once less, per step: the ranks run
// different numbers of micro-batches and reduce after each one (no_sync is forgotten). Without
// recorded steps or parameters, a repetition has many possible reasons.
bool repeats_micro_batch(const Context& context, const Deviation& d) {
  const bool extra = d.kind == Deviation::Kind::extra;
  if (!extra && d.kind != Deviation::Kind::missing) return false;
  const CallRef first = extra ? d.got : d.expected;
  if (first.call == kNoCall || d.step == trace::kNone) return false;
  const std::vector<trace::Call>& calls = context.run.ranks[first.rank].calls;
  const trace::GroupId group = calls[first.call].group;
  std::vector<const trace::Call*> stream;  // the group's collectives
  std::size_t begin = 0;
  for (const trace::Call& call : calls) {
    if (call.group != group || context.run.tables.is_message(call)) continue;
    if (&call == &calls[first.call]) begin = stream.size();
    stream.push_back(&call);
  }
  if (begin < d.count || begin + d.count > stream.size()) return false;
  bool named = false;
  for (std::size_t i = begin; i < begin + d.count; ++i) {
    const trace::Call& now = *stream[i];
    const trace::Call& before = *stream[i - d.count];
    if (now.signature != before.signature || now.what != before.what || now.step != d.step ||
        before.step != d.step)
      return false;
    named = named || now.what.value != 0;
  }
  return named;
}

// Whether the smaller side deviates, or the larger one left out a branch: nothing shows which.
bool is_open(const Deviation& d) {
  return d.kind == Deviation::Kind::extra && !d.singled_out &&
         d.deviants.size() != d.reference.size();
}

std::string usual_why(const Context& context, const Deviation& d) {
  if (is_open(d)) {
    return fmt::format(
        "No other round shows whether {} made these calls too many, or {} left them out, as they "
        "would those of a branch that their batches do not use.{}",
        context.describe_ranks(d.deviants), context.describe_ranks(d.reference),
        repeat_sentence(d));
  }
  if (!d.singled_out) {
    return fmt::format(
        "Equally many ranks did each, and nothing earlier in the traces shows which of them "
        "deviate.{}",
        repeat_sentence(d));
  }
  switch (d.kind) {
    case Deviation::Kind::missing:
      return fmt::format(
          "Without that call the sequences agree again. A group's calls are paired by their "
          "order, so from there on every call is paired with the wrong one.{}",
          repeat_sentence(d));
    case Deviation::Kind::extra:
      return fmt::format(
          "Without it the sequences agree again. A group's calls are paired by their order, so "
          "from there on every call is paired with the wrong one.{}",
          repeat_sentence(d));
    case Deviation::Kind::identity:
      return fmt::format(
          "Operation, size and type agree, so nothing hangs: different tensors are combined.{}",
          repeat_sentence(d));
    case Deviation::Kind::swapped:
    case Deviation::Kind::replaced:
      return repeat_sentence(d).empty() ? "" : repeat_sentence(d).substr(1);
  }
  return "";
}

// Whether an extra call is the last of its rank, which made calls like the reference's before: then
// the rank may as well have passed those that the others still make, as one does that leaves a loop
// early or skips a batch.
bool may_have_gone_past(const Context& context, const Deviation& d) {
  if (d.kind != Deviation::Kind::extra || (!d.singled_out && !is_tie(d)) ||
      d.expected.call == kNoCall || d.got.call == kNoCall || d.step != trace::kNone)
    return false;
  const std::vector<trace::Call>& calls = context.run.ranks[d.got.rank].calls;
  const trace::Call& got = calls[d.got.call];
  const trace::Call& expected = context.call(d.expected);
  if (got.at.value == 0 || expected.at.value == 0 || got.at == expected.at) return false;
  const auto before = calls.begin() + d.got.call;
  return std::none_of(before + 1, calls.end(),
                      [&](const trace::Call& c) { return c.group == got.group; }) &&
         std::any_of(calls.begin(), before,
                     [&](const trace::Call& c) { return c.at == expected.at; });
}

// Whether the deviant blocks in such a call as it made last in the group, where the others went on:
// it left theirs out, or made its own once more.
bool may_be_once_more(const Context& context, const Deviation& d) {
  if (d.kind != Deviation::Kind::missing || !d.singled_out || d.got.call == kNoCall ||
      d.step != trace::kNone)
    return false;
  const std::vector<trace::Call>& calls = context.run.ranks[d.got.rank].calls;
  const trace::Call& got = calls[d.got.call];
  if (got.at.value == 0 || d.got.call + 1 != calls.size()) return false;
  for (std::uint32_t c = d.got.call; c-- > 0;) {
    if (calls[c].group != got.group) continue;
    return calls[c].at == got.at && calls[c].signature == got.signature;
  }
  return false;
}

// What the finding says where the rank may as well have gone past the reference's call.
void tell_gone_past(const Context& context, const Deviation& d, Finding& finding) {
  const std::string who = context.describe_ranks(d.deviants);
  const std::string others = context.describe_ranks(d.reference);
  finding.why = fmt::format(
      "It is the last call of {}: either it is one too many, or it comes after calls that the "
      "others still make, because a loop was left early or a batch was skipped.",
      who);
  if (is_tie(d)) {
    finding.message = fmt::format(
        "{} came to {} ({}) where {} went on with {}: either that call is one too many, or the "
        "ranks made different numbers of rounds",
        who, context.describe_call(d.got), context.describe_location(d.got, d.seq), others,
        context.describe_call(d.expected));
    finding.why = fmt::format(
        "It is the last call of {}, after whole rounds of a loop. Nothing shows whether {} made a "
        "call too many or a round too few, or {} a round too many.",
        who, who, others);
  }
  finding.fix += "; or make as many iterations on every rank";
}

// The finding about the calls alone: the batches do not explain the deviation.
Finding explain_calls(const Context& context, const Deviation& d) {
  Finding finding = make_finding(rule_of_deviation(d));
  finding.message = difference_sentence(context, d);
  finding.why = usual_why(context, d);
  if (is_open(d)) {
    finding.fix =
        "let all ranks run the branch that makes these calls, also without data for it; or, if "
        "they are not the model's, make them on all ranks or on none";
  } else if (may_have_gone_past(context, d)) {
    tell_gone_past(context, d, finding);
  }
  if (may_be_once_more(context, d)) {
    finding.why = fmt::format(
        "{} came to {} again ({}): either it left that call out, or it made the one before it once "
        "more, as where a micro-batch is not under no_sync.",
        context.describe_ranks(d.deviants), context.describe_call(d.got),
        context.describe_location(d.got, context.call(d.got).seq));
    finding.fix += "; or synchronise in as many micro-batches on every rank";
  }
  finding.what = names_carried(context, d);
  if (repeats_micro_batch(context, d)) {
    const bool more = d.kind == Deviation::Kind::extra;
    finding.message = fmt::format(
        "the accumulation counts differ: {} reduced its gradients {} in step {} than {}. {}",
        context.describe_ranks(d.deviants), more ? "more often" : "less often", d.step,
        context.describe_ranks(d.reference), finding.message);
    finding.fix =
        "give all ranks the same number of micro-batches per step, and reduce in the last one only "
        "(no_sync)";
  }
  return finding;
}

}  // namespace

Cause explain_deviation(const Context& context, const Deviation& d) {
  Cause cause;
  std::optional<Finding> by_batches = explain_modality(context, d);
  cause.finding = by_batches ? std::move(*by_batches) : explain_calls(context, d);
  Finding& finding = cause.finding;
  finding.group = context.groups[d.group].name;
  finding.seq = d.seq;
  if (d.step != trace::kNone) finding.step = d.step;
  if (d.singled_out) finding.culprits = context.ranks(d.deviants);
  std::vector<std::uint32_t> concerned = d.deviants;
  concerned.insert(concerned.end(), d.reference.begin(), d.reference.end());
  finding.ranks = context.ranks(concerned);
  if (d.expected.call != kNoCall) {
    finding.evidence.push_back(context.evidence(d.expected, context.describe_call(d.expected)));
  }
  if (d.got.call != kNoCall) {
    finding.evidence.push_back(context.evidence(d.got, context.describe_call(d.got)));
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
