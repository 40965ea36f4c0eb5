// From a deviation, the edit that makes a rank's stream agree again, to a finding: rule, message,
// evidence and fix.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"
#include "verify/matching/deviation_words.h"
#include "verify/matching/explain_modality.h"
#include "verify/matching/matching.h"
#include "verify/streams/loops.h"

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

// How extra or missing calls repeat those right before them, in the same step.
enum class Repeats : std::uint8_t {
  no,
  by_line,  // from the same line: of the possible reasons, a micro-batch is one
  // With the same parameters: gradients are reduced once more, or once less, per step. So the ranks
  // run different numbers of micro-batches and reduce after each one (no_sync is forgotten).
  by_name,
};

// Without recorded steps, or without parameters and lines, a repetition says nothing.
Repeats repeats_micro_batch(const Context& context, const Deviation& d) {
  const bool extra = d.kind == Deviation::Kind::extra;
  if (!extra && d.kind != Deviation::Kind::missing) return Repeats::no;
  const CallRef first = extra ? d.got : d.expected;
  if (first.call == kNoCall || d.step == trace::kNone) return Repeats::no;
  const std::vector<trace::Call>& calls = context.run.ranks[first.rank].calls;
  const trace::GroupId group = calls[first.call].group;
  std::vector<const trace::Call*> stream;  // the group's collectives
  std::size_t begin = 0;
  for (const trace::Call& call : calls) {
    if (call.group != group || context.run.tables.is_message(call)) continue;
    if (&call == &calls[first.call]) begin = stream.size();
    stream.push_back(&call);
  }
  if (begin < d.count || begin + d.count > stream.size()) return Repeats::no;
  bool named = false;
  bool one_line = true;
  for (std::size_t i = begin; i < begin + d.count; ++i) {
    const trace::Call& now = *stream[i];
    const trace::Call& before = *stream[i - d.count];
    if (now.signature != before.signature || now.what != before.what || now.step != d.step ||
        before.step != d.step)
      return Repeats::no;
    named = named || now.what.value != 0;
    one_line = one_line && now.at.value != 0 && now.at == before.at;
  }
  if (named) return Repeats::by_name;
  return one_line ? Repeats::by_line : Repeats::no;
}

// Whether calls from two lines of the program that now pair with each other were both made by both
// ranks together before: then they are two calls, and not two branches that make one.
bool are_two_calls(const Context& context, const Deviation& d) {
  if (d.kind != Deviation::Kind::replaced || d.got.call == kNoCall || d.expected.call == kNoCall)
    return false;
  const trace::StringId one = context.call(d.expected).at;
  const trace::StringId other = context.call(d.got).at;
  if (one.value == 0 || other.value == 0 || one == other) return false;
  const Stream* const a = stream_of(context.groups[d.group], d.expected.rank);
  const Stream* const b = stream_of(context.groups[d.group], d.got.rank);
  bool seen_one = false;
  bool seen_other = false;
  for (std::size_t i = 0; i < std::min(a->calls.size(), b->calls.size()); ++i) {
    if (a->calls[i] >= d.expected.call || b->calls[i] >= d.got.call) break;
    const trace::StringId at = context.run.ranks[a->rank_index].calls[a->calls[i]].at;
    if (at != context.run.ranks[b->rank_index].calls[b->calls[i]].at) continue;
    seen_one = seen_one || at == one;
    seen_other = seen_other || at == other;
  }
  return seen_one && seen_other;
}

// Whether the smaller side deviates, or the larger one left out a branch: nothing shows which.
bool is_open(const Deviation& d) {
  return d.kind == Deviation::Kind::extra && !d.singled_out &&
         d.deviants.size() != d.reference.size();
}

// Whether these ranks made no call of the group from the deviation on, with which the others' one
// could have been paired.
bool pair_with_nothing(const Context& context, const Deviation& d,
                       const std::vector<std::uint32_t>& ranks) {
  const GroupStreams& group = context.groups[d.group];
  return std::all_of(ranks.begin(), ranks.end(), [&](std::uint32_t r) {
    const Stream* const stream = stream_of(group, r);
    return stream == nullptr || stream->calls.size() + group.first_seq <= d.seq;
  });
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
      if (pair_with_nothing(context, d, d.deviants)) {
        return fmt::format(
            "Without {} the call does not end, and nothing that {} {} after it begins.",
            context.describe_ranks(d.deviants), context.describe_ranks(d.reference),
            d.reference.size() == 1 ? "does" : "do");
      }
      return fmt::format(
          "Without that call the sequences agree again. A group's calls are paired by their "
          "order, so from there on every call is paired with the wrong one.{}",
          repeat_sentence(d));
    case Deviation::Kind::extra:
      if (pair_with_nothing(context, d, d.reference)) {
        return fmt::format(
            "The others never make that call, so it does not end, and nothing that {} {} after it "
            "begins.",
            context.describe_ranks(d.deviants), d.deviants.size() == 1 ? "does" : "do");
      }
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

// Whether one rank may have left a loop with which another one goes on: it made the other's call
// before, from this line, and made its own after whole rounds of a loop, or for the first time
// where it is a barrier, as before a checkpoint and at the end. In a framework's loop all calls
// have one line of the program (trainer.train()): then both must be calls that it made before.
bool leaves_loop(const Context& context, CallRef leaves, CallRef goes_on) {
  const std::vector<trace::Call>& calls = context.run.ranks[leaves.rank].calls;
  const trace::Call& own = calls[leaves.call];
  const trace::Call& other = context.call(goes_on);
  if (own.at.value == 0 || other.at.value == 0) return false;
  const bool one_line = own.at == other.at;
  const auto agree = [&](const trace::Call& a, const trace::Call& b) {
    return context.agreement.agree(a.signature, b.signature);
  };
  const auto made = [&](const trace::Call& like) {
    return std::any_of(calls.begin(), calls.begin() + leaves.call, [&](const trace::Call& c) {
      return c.at == like.at && (!one_line || agree(c, like));
    });
  };
  if (!made(other) || (one_line && (agree(own, other) || !made(own)))) return false;
  return comes_after_whole_rounds(context.run, context.agreement, leaves) ||
         (context.run.tables.op(own) == trace::Op::barrier && !made(own));
}

// Whether the two sides may have made different numbers of iterations.
bool may_be_of_different_lengths(const Context& context, const Deviation& d) {
  if (d.expected.call == kNoCall || d.got.call == kNoCall) return false;
  if (d.kind == Deviation::Kind::missing) return leaves_loop(context, d.got, d.expected);
  return d.kind == Deviation::Kind::replaced &&
         (leaves_loop(context, d.got, d.expected) || leaves_loop(context, d.expected, d.got));
}

// The finding about the calls alone: the batches do not explain the deviation.
Finding explain_calls(const Context& context, const Deviation& d) {
  Finding finding = make_finding(rule_of_deviation(d));
  finding.message = difference_sentence(context, d);
  finding.why = usual_why(context, d);
  // A barrier carries nothing: no gradient is missing.
  if (finding.rule == RuleId::missing_collective && d.expected.call != kNoCall &&
      context.run.tables.op(context.call(d.expected)) == trace::Op::barrier) {
    finding.fix =
        "make the call on every rank: a condition before it must come out alike on all of them";
  }
  if (is_open(d)) {
    finding.fix =
        "let all ranks run the branch that makes these calls, also without data for it; or, if "
        "they are not the model's, make them on all ranks or on none";
  } else if (may_have_gone_past(context, d)) {
    tell_gone_past(context, d, finding);
  }
  if (may_be_of_different_lengths(context, d))
    finding.fix += "; or, if a loop ended early on a rank, make as many iterations on every rank";
  if (may_be_once_more(context, d)) {
    finding.why = fmt::format(
        "{} came to {} again ({}): either it left that call out, or it made the one before it once "
        "more, as where a micro-batch is not under no_sync.",
        context.describe_ranks(d.deviants), context.describe_call(d.got),
        context.describe_location(d.got, context.call(d.got).seq));
    finding.fix += "; or synchronise in as many micro-batches on every rank";
  }
  if (are_two_calls(context, d) && finding.rule != RuleId::op_mismatch) {
    finding.why = fmt::format(
        "They are two calls of the program ({} and {}), which these ranks made together before: "
        "one was left out or made once more.{}",
        printable(context.run.tables.str(context.call(d.expected).at)),
        printable(context.run.tables.str(context.call(d.got).at)), repeat_sentence(d));
    finding.fix =
        "let all ranks make the same calls: as many rounds of each loop, the same branches";
  }
  finding.what = names_carried(context, d);
  const Repeats repeats = repeats_micro_batch(context, d);
  if (repeats == Repeats::by_line && !may_be_once_more(context, d))
    finding.fix += "; or synchronise in as many micro-batches on every rank";
  if (repeats == Repeats::by_name) {
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
