#include "verify/matching/explain_modality.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"
#include "verify/matching/deviation_words.h"
#include "verify/modality.h"
#include "verify/streams/batches.h"

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

// Whether such batches made, in earlier steps, the calls that differ now.
bool made_before(const Context& context, const Deviation& d) {
  const auto explains = [&](std::uint32_t lacking, CallRef call) {
    return do_batches_explain(context.run, context.modalities, context.agreement, lacking, call,
                              d.batch());
  };
  const bool lacks = !context.modalities.lacking(d.deviants[0], d.reference[0], d.batch()).empty();
  const CallRef call = lacks ? d.expected : d.got;
  if (call.call == kNoCall) return false;
  return !explains(lacks ? d.deviants[0] : d.reference[0], call);
}

// Whether a skipped branch of the model can be the reason. Then calls are missing or extra, or
// carry other parameters; a wrong type of the same parameters, or a changed order, has another
// reason.
bool may_be_modality(const Context& context, const Deviation& d) {
  if (agreed_before(context, d) || made_before(context, d)) return false;
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
           "input with weight 0; with zeros, weight decay acts on these parameters";
  }
  return "";
}

// Whether a stand-in for what the deviants' batch lacks would have made the call that they left
// out, if its gradient had arrived. Gradients are reduced. What is gathered is used by a forward,
// or by a backward where a forward of the same batch gathered it, too (FSDP); so a gather that the
// deviants never made is one of a part that did not run at all, such as a loss over pairs.
bool lacks_gradient(const Context& context, const Deviation& d) {
  if (d.expected.call == kNoCall || context.call(d.expected).what.value == 0) return true;
  const trace::Call& expected = context.call(d.expected);
  const trace::Op op = context.op(d.expected);
  if (op != trace::Op::all_gather && op != trace::Op::all_gather_into_tensor) return true;
  const std::uint32_t deviant = d.deviants[0];
  const auto& signatures = context.run.tables.signatures;
  const std::vector<trace::Call>& calls = context.run.ranks[deviant].calls;
  for (std::uint32_t i = 0; i < calls.size(); ++i) {
    if (calls[i].what == expected.what && signatures[calls[i].signature].op == op &&
        context.modalities.batch_of(deviant, i) == d.batch())
      return true;
  }
  return false;
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
             context.modalities.stood_in(deviant, d.batch()) && lacks_gradient(context, d);
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
    const trace::Op op = context.op(d.expected);
    const bool gathered = op == trace::Op::all_gather || op == trace::Op::all_gather_into_tensor;
    return fmt::format("{}; {} {} there, and {} {} was never called{}", batch,
                       names.empty() ? "a branch's parameters" : quoted_names(names),
                       !gathered || difference.dead ? "got no gradient"
                       : names.size() == 1          ? "was not used"
                                                    : "were not used",
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

}  // namespace

std::optional<Finding> explain_modality(const Context& context, const Deviation& d) {
  if (!may_be_modality(context, d)) return std::nullopt;
  const auto difference = batch_difference(context, d);
  if (!difference) return std::nullopt;
  Finding finding =
      make_finding(difference->dead ? RuleId::dead_remedy : RuleId::modality_divergence);
  if (!difference->dead && difference->lacks && d.expected.call != kNoCall) {
    if (std::string fix = fix_of_sharded(context.op(d.expected)); !fix.empty())
      finding.fix = std::move(fix);
  }
  finding.what = names_carried(context, d);
  finding.message = modality_message(context, d, *difference, finding.what);
  // If a rank runs a part once more, its trace may end before the calls that it has left.
  finding.why = difference->once_more
                    ? repeat_sentence(d)
                    : fmt::format("{}.{}", difference_sentence(context, d), repeat_sentence(d));
  return finding;
}

}  // namespace lockstep::verify
