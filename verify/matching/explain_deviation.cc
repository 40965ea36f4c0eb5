// From a deviation, the edit that makes a rank's stream agree again, to a finding: rule, message,
// evidence and fix. Where batches explain it, the rule is modality-divergence.
#include <algorithm>
#include <optional>
#include <set>

#include <fmt/core.h>

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

std::string describe_modality(const std::optional<std::vector<std::string>>& held) {
  if (!held || held->empty()) return "nothing";
  if (held->size() == 1) return fmt::format("{} only", printable((*held)[0]));
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

// Whether the two ranks had batches that differed in the same way before, with calls that agreed.
// Then a remedy handles such batches, and they are not the reason now.
bool agreed_before(const Context& context, const Deviation& d) {
  const std::uint32_t deviant = d.deviants[0];
  const std::uint32_t other = d.reference[0];
  const auto mine = context.modalities.held(deviant, d.batch());
  const auto theirs = context.modalities.held(other, d.batch());
  const std::vector<BatchNumber> earlier = context.modalities.before(deviant, d.batch());
  return std::any_of(earlier.begin(), earlier.end(), [&](const BatchNumber& batch) {
    return context.modalities.held(deviant, batch) == mine &&
           context.modalities.held(other, batch) == theirs;
  });
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
      return !context.modalities.lacking(d.reference[0], d.deviants[0], d.batch()).empty() ||
             carries_something_else(context, d);
    case Deviation::Kind::swapped:
      return false;
    case Deviation::Kind::identity:
      // The deviants skipped a branch, and its calls pair with others of equal sizes, as shards of
      // large worlds often have.
      return true;
    case Deviation::Kind::replaced:
      break;
  }
  const bool both = d.expected.call != kNoCall && d.got.call != kNoCall;
  const trace::NameListId expected = both ? context.call(d.expected).what : trace::NameListId{};
  if (both && expected.value != 0 && expected == context.call(d.got).what) return false;
  return (d.differences & (kDifferentOp | kDifferentSize)) != 0;
}

// The parameters of the deviation: for missing calls, all that the deviant left out in this batch.
std::vector<std::string> names_carried(const Context& context, const Deviation& d) {
  const CallRef ref = d.expected.call != kNoCall ? d.expected : d.got;
  std::vector<std::string> names = context.run.tables.names(context.call(ref).what);
  if (d.kind == Deviation::Kind::missing) {
    const auto skipped =
        left_out(context.run, context.modalities, d.got.rank, d.expected.rank, d.batch());
    if (!skipped.empty()) names = skipped;
  }
  // Several calls may carry the same parameter: name it once.
  std::set<std::string> seen;
  std::erase_if(names, [&](const std::string& name) { return !seen.insert(name).second; });
  return names;
}

// How often `rank` made the call in the step, before its call number `end`: a part of the model
// that runs once for images and once for videos makes it twice.
std::size_t times_made(const Context& context, std::uint32_t rank, const trace::Call& like,
                       std::uint32_t end) {
  if (like.what.value == 0) return 0;
  const auto& signatures = context.run.tables.signatures;
  const std::vector<trace::Call>& calls = context.run.ranks[rank].calls;
  std::size_t times = 0;
  for (std::size_t i = 0; i < calls.size() && i < end; ++i) {
    const bool alike = calls[i].step == like.step && calls[i].what == like.what &&
                       signatures[calls[i].signature].op == signatures[like.signature].op;
    times += alike ? 1 : 0;
  }
  return times;
}

std::string repeat_sentence(const Deviation& d) {
  return d.repeats == 0 ? "" : fmt::format(" The same happens {}.", plural(d.repeats, "more time"));
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

// As describe_location(), but without the call's step if that is not the deviation's: a message
// with two step numbers reads like two faults.
std::string location_words(const Context& context, const Deviation& d, CallRef ref) {
  const trace::Call& call = context.call(ref);
  if (d.step == trace::kNone || call.step == d.step) return context.describe_location(ref, d.seq);
  const std::string at = printable(context.run.tables.str(call.at));
  return at.empty() ? context.describe_numbered(ref, d.seq)
                    : fmt::format("{}, {}", context.describe_numbered(ref, d.seq), at);
}

// "rank 1 issued broadcast (root 1), rank 2 issued broadcast (root 2)".
std::string describe_replacements(const Context& context, const Deviation& d) {
  constexpr std::size_t kShown = 4;
  std::vector<std::string> parts;
  for (const Deviation::Replacement& one : d.replacements) {
    parts.push_back(
        fmt::format("{} issued {}", context.describe_ranks(one.ranks),
                    trace::describe(context.run.tables, context.call(one.got).signature)));
  }
  return join_and(parts, kShown);
}

// As many ranks did one thing as the other, and nothing shows which are wrong.
bool is_tie(const Deviation& d) {
  return !d.singled_out && d.deviants.size() == d.reference.size();
}

// The deviation as one sentence, without its reason.
std::string form_message(const Context& context, const Deviation& d) {
  const trace::Tables& tables = context.run.tables;
  const std::string who = context.describe_ranks(d.deviants);
  const std::string others = context.describe_ranks(d.reference);
  const bool has_got = d.got.call != kNoCall;
  const bool has_expected = d.expected.call != kNoCall;
  const std::string location = location_words(context, d, has_expected ? d.expected : d.got);
  switch (d.kind) {
    case Deviation::Kind::missing: {
      const std::string more =
          d.count > 1 ? fmt::format(" and the {} after it", plural(d.count - 1, "call")) : "";
      if (is_tie(d)) {
        return fmt::format(
            "{} issued {}{} as {}, and {} did not: either {} left {} out, or {} made {} too many",
            others, context.describe_call(d.expected), more, location, who, who,
            d.count > 1 ? "them" : "it", others, d.count > 1 ? "them" : "one");
      }
      return fmt::format("{} never issued {}{}, which {} issued as {}", who,
                         context.describe_call(d.expected), more, others, location);
    }
    case Deviation::Kind::extra: {
      const std::string more =
          d.count > 1 ? fmt::format(" and {}", plural(d.count - 1, "more call")) : "";
      if (is_tie(d)) {
        return fmt::format(
            "{} issued {}{} as {}, and {} did not: either {} made {} too many, or {} left {} out",
            who, context.describe_call(d.got), more, context.describe_location(d.got, d.seq),
            others, who, d.count > 1 ? "them" : "one", others, d.count > 1 ? "them" : "it");
      }
      return fmt::format("{} issued {}{} as {}, which {} did not issue", who,
                         context.describe_call(d.got), more,
                         context.describe_location(d.got, d.seq), others);
    }
    case Deviation::Kind::swapped:
      if (d.count > 2) {
        return fmt::format(
            "{} issued {} calls in another order than {}: first {}, in place of {} ({})", who,
            d.count, others, context.describe_call(d.got), context.describe_call(d.expected),
            location);
      }
      return fmt::format("{} issued {} before {}; {} issued them the other way round ({})", who,
                         context.describe_call(d.got), context.describe_call(d.expected), others,
                         location);
    case Deviation::Kind::identity:
    case Deviation::Kind::replaced:
      break;
  }
  const auto words = [&](CallRef ref, bool known) {
    if (!known) return std::string("nothing");
    return d.kind == Deviation::Kind::identity
               ? context.describe_call(ref)
               : trace::describe(tables, context.call(ref).signature);
  };
  std::string issued = fmt::format("{} issued {}", who, words(d.got, has_got));
  if (!d.replacements.empty()) issued = describe_replacements(context, d);
  return fmt::format("{} where {} issued {} ({})", issued, others, words(d.expected, has_expected),
                     location);
}

// "rank 1's batch of step 0", "the micro-batches 2 of ranks 1, 3 in step 0".
std::string batch_words(const Deviation& d, const std::string& who) {
  const bool one = d.deviants.size() == 1;
  if (d.micro_batch == trace::kNone) {
    return one ? fmt::format("{}'s batch of step {}", who, d.step)
               : fmt::format("the batches of {} in step {}", who, d.step);
  }
  return one ? fmt::format("{}'s micro-batch {} of step {}", who, d.micro_batch, d.step)
             : fmt::format("the micro-batches {} of {} in step {}", d.micro_batch, who, d.step);
}

// What to do about a sharded module that a rank left out; empty for other calls. PyTorch's own
// remedy reduces zeros for the parameters of a module that ran, and does nothing for one that did
// not.
std::string fix_of_sharded(trace::Op op) {
  if (op == trace::Op::all_gather || op == trace::Op::all_gather_into_tensor) {
    return "call the module on every rank, with an empty or dummy input whose output is added to "
           "the loss with weight 0, or balance the modalities over the ranks; "
           "set_reduce_scatter_unused_params of FSDP2 does not help, since it acts on modules that "
           "the rank calls";
  }
  if (op == trace::Op::reduce_scatter || op == trace::Op::reduce_scatter_tensor) {
    return "reduce zeros for parameters without a gradient: set_reduce_scatter_unused_params(True) "
           "of FSDP2 (PyTorch 2.13 and later) where every rank calls the module, else a dummy "
           "input "
           "with weight 0; with zeros, weight decay acts on these parameters";
  }
  return "";
}

// How the batches of the deviants and of the reference differ.
struct BatchDifference {
  bool lacks = false;  // the deviants' batch lacked a modality that the reference's held
  bool dead = false;   // it lacked one, and a stand-in was computed whose gradient never arrived
  bool less_often = false;  // the deviants called a part of the model, but less often
  bool once_more = false;   // they called it more often
};

// Nothing: the batches do not differ.
std::optional<BatchDifference> batch_difference(const Context& context, const Deviation& d) {
  const std::uint32_t deviant = d.deviants[0];
  const std::uint32_t other = d.reference[0];
  BatchDifference out;
  out.lacks = !context.modalities.lacking(deviant, other, d.batch()).empty();
  if (!out.lacks && context.modalities.lacking(other, deviant, d.batch()).empty())
    return std::nullopt;
  out.dead = out.lacks && d.kind == Deviation::Kind::missing &&
             context.modalities.stood_in(deviant, d.batch());
  out.less_often = out.lacks && !out.dead && d.expected.call != kNoCall &&
                   times_made(context, deviant, context.call(d.expected), kNoCall) > 0;
  out.once_more = !out.lacks && d.got.call != kNoCall &&
                  times_made(context, d.got.rank, context.call(d.got), d.got.call) > 0;
  return out;
}

// "rank 1's batch of step 0 held text only; …". `names`: the parameters of the calls that differ.
std::string modality_message(const Context& context, const Deviation& d,
                             const BatchDifference& difference,
                             const std::vector<std::string>& names) {
  const auto held = [&](std::uint32_t rank) {
    return describe_modality(context.modalities.held(rank, d.batch()));
  };
  const std::string batch = fmt::format(
      "{} held {}", batch_words(d, context.describe_ranks(d.deviants)), held(d.deviants[0]));
  if (difference.lacks && !difference.less_often) {
    return fmt::format("{}; {} got no gradient there, and {} {} was never called{}", batch,
                       names.empty() ? "a branch's parameters" : quoted_names(names),
                       names.size() == 1 ? "its" : "their", trace::op_name(context.op(d.expected)),
                       difference.dead ? ". A stand-in was computed there, but it is not connected "
                                         "to the loss, or not computed again in backward"
                                       : "");
  }
  const std::string both = fmt::format("{}, those of {} held {}", batch,
                                       context.describe_ranks(d.reference), held(d.reference[0]));
  if (difference.less_often) {
    return fmt::format("{}; {} was called less often there: a part of the model ran less often",
                       both, context.describe_call(d.expected));
  }
  if (difference.once_more) {
    return fmt::format("{}; {} was called once more there ({}): a part of the model ran again",
                       both, context.describe_call(d.got), context.describe_location(d.got, d.seq));
  }
  const CallRef call = d.expected.call != kNoCall ? d.expected : d.got;
  return fmt::format("{}; the calls differ from {}", both, context.describe_location(call, d.seq));
}

// Fills in the finding if the batches explain the deviation. False: they do not.
bool explain_modality(const Context& context, const Deviation& d, Finding& finding) {
  if (!may_be_modality(context, d)) return false;
  const auto difference = batch_difference(context, d);
  if (!difference) return false;
  finding = make_finding(difference->dead ? RuleId::dead_remedy : RuleId::modality_divergence);
  if (!difference->dead && difference->lacks && d.expected.call != kNoCall) {
    if (std::string fix = fix_of_sharded(context.op(d.expected)); !fix.empty())
      finding.fix = std::move(fix);
  }
  finding.what = names_carried(context, d);
  finding.message = modality_message(context, d, *difference, finding.what);
  // If a rank runs a part once more, its trace may end before the calls that it has left.
  finding.why = difference->once_more
                    ? repeat_sentence(d)
                    : fmt::format("{}.{}", form_message(context, d), repeat_sentence(d));
  return true;
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

}  // namespace

Cause explain_deviation(const Context& context, const Deviation& d) {
  Cause cause;
  Finding& finding = cause.finding;
  if (!explain_modality(context, d, finding)) {
    finding = make_finding(rule_of_deviation(d));
    finding.message = form_message(context, d);
    finding.why = usual_why(context, d);
    if (is_open(d)) {
      finding.fix =
          "let all ranks run the branch that makes these calls, also without data for it; or, if "
          "they are not the model's, make them on all ranks or on none";
    } else if (may_have_gone_past(context, d)) {
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
            "It is the last call of {}, after whole rounds of a loop. Nothing shows whether {} "
            "made "
            "a call too many or a round too few, or {} a round too many.",
            who, who, others);
      }
      finding.fix += "; or make as many iterations on every rank";
    }
    if (may_be_once_more(context, d)) {
      finding.why = fmt::format(
          "{} came to {} again ({}): either it left that call out, or it made the one before it "
          "once more, as where a micro-batch is not under no_sync.",
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
          "give all ranks the same number of micro-batches per step, and reduce in the last one "
          "only (no_sync)";
    }
  }
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
