// Calls that match although they belong to different training steps: a rank left out a whole step,
// or is ahead by one.
#include <algorithm>
#include <map>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "trace/formats/ring/ring_file.h"
#include "trace/groups.h"
#include "verify/matching/matching.h"
#include "verify/streams/past.h"
#include "verify/streams/programs.h"

namespace lockstep::verify {

namespace {

// Classes whose steps differ from the reference's from the same call on.
struct Offset {
  std::size_t from = 0;  // index of that call
  std::vector<std::size_t> classes;
};

// The steps of the calls of one group's classes, by index.
class GroupSteps {
 public:
  GroupSteps(const Context& context, const GroupStreams& group)
      : context_(context), group_(group) {}

  // Whether the classes' steps can be compared: streams of equal length that begin with the same
  // step. Calls before the first step, as a broadcast of the parameters, have none.
  bool comparable() const {
    if (!group_.comparable || group_.classes.size() < 2) return false;
    const std::size_t length = stream(0).calls.size();
    std::size_t first = 0;
    while (first < length && step(0, first) == trace::kNone) ++first;
    if (first == length) return false;
    for (std::size_t c = 0; c < group_.classes.size(); ++c) {
      if (stream(c).calls.size() != length) return false;
      for (std::size_t i = 0; i <= first; ++i)
        if (step(c, i) != step(0, i)) return false;
    }
    return true;
  }

  // The classes that are the first to be out of step with `reference` for a whole step.
  std::optional<Offset> offset_from(std::size_t reference) const {
    std::optional<Offset> out;
    for (std::size_t c = 0; c < group_.classes.size(); ++c) {
      const std::size_t from = first_offset(reference, c);
      if (from == stream(reference).calls.size()) continue;
      if (!out || from < out->from) out = Offset{from, {}};
      if (from == out->from) out->classes.push_back(c);
    }
    return out;
  }

  // The class of most ranks.
  std::size_t largest() const {
    std::size_t best = 0;
    for (std::size_t c = 1; c < group_.classes.size(); ++c)
      if (ranks_of({c}).size() > ranks_of({best}).size()) best = c;
    return best;
  }

  std::vector<std::uint32_t> ranks_of(const std::vector<std::size_t>& classes) const {
    std::vector<std::uint32_t> out;
    for (const std::size_t c : classes)
      for (const std::uint32_t s : group_.classes[c].streams)
        out.push_back(group_.streams[s].rank_index);
    std::sort(out.begin(), out.end());
    return out;
  }

  // Whether the class issues as many calls in this step as in most of its others, those between in
  // which it issues none included: parameters may be averaged every few steps.
  bool keeps_count(std::size_t c, std::int32_t step_asked) const {
    std::map<std::int32_t, std::size_t> calls_in;
    for (std::size_t i = 0; i < stream(c).calls.size(); ++i)
      if (step(c, i) != trace::kNone) ++calls_in[step(c, i)];
    const auto span = std::int64_t{calls_in.rbegin()->first} - calls_in.begin()->first + 1;
    const std::size_t steps = std::max(calls_in.size(), static_cast<std::size_t>(span));
    const auto asked = calls_in.find(step_asked);
    if (asked == calls_in.end()) return 2 * (steps - calls_in.size()) > steps;
    std::size_t alike = 0;
    for (const auto& [other, calls] : calls_in) alike += calls == asked->second ? 1U : 0U;
    return 2 * alike > steps;
  }

  // Whether all members issue their call `i` in this step.
  bool are_in_step(std::size_t i, std::int32_t asked) const {
    for (std::size_t c = 0; c < group_.classes.size(); ++c)
      if (i >= stream(c).calls.size() || step(c, i) != asked) return false;
    return !group_.classes.empty();
  }

  // For two classes in different steps at call `i`: whether the one in the later step lacked a
  // modality that the other one had in the earlier step. It would then have left out that call.
  bool lacks_modality(std::size_t a, std::size_t b, std::size_t i) const {
    const std::size_t ahead = step(a, i) > step(b, i) ? a : b;
    const std::size_t other = ahead == a ? b : a;
    return !context_.modalities.lacking(call(ahead, i).rank, call(other, i).rank, {step(other, i)})
                .empty();
  }

  CallRef call(std::size_t c, std::size_t i) const {
    return {stream(c).rank_index, stream(c).calls[i]};
  }
  // kNone also where PyTorch's Join calls for itself or for the peers: a rank that has no more
  // batches does so in their steps, while its own label stays at its last.
  std::int32_t step(std::size_t c, std::size_t i) const {
    const trace::Call& asked = context_.call(call(c, i));
    const bool in_join = context_.run.tables.str(asked.tag) == trace::ring::kJoinTag;
    return in_join ? trace::kNone : asked.step;
  }

 private:
  const Stream& stream(std::size_t c) const { return group_.streams[group_.classes[c].streams[0]]; }

  // The first of consecutive calls that all differ in their step and span more than one step, or
  // that come from different lines of the program, or that one class made after calls of other
  // groups and the other class before them, or that differ at fewer than half of the changes from
  // step to step, or only where the batch of the rank ahead lacked a modality; the number of calls
  // where there are none. Labels that are late by one call do not count: those are late every time.
  //
  //   a  1 1 1 2 2 2 3 3 3        b is late by a call in each step
  //   b  1 1 1 1 2 2 2 3 3
  //
  //   a  1 1 1 2 2 2 3 3 3        b left out step 2: from index 3 on it is ahead
  //   b  1 1 1 3 3 3 4 4 4
  //
  //   a  1 1 1 2 2 2 3 3 3 4 4 4  b left out a call of step 2, and made it up in step 3
  //   b  1 1 1 2 2 3 3 3 3 4 4 4
  std::size_t first_offset(std::size_t a, std::size_t b) const {
    const std::size_t calls = stream(a).calls.size();
    std::size_t short_runs = 0;  // differences within one step
    std::size_t first_short = calls;
    bool always_lacks = true;
    for (std::size_t from = 0; from < calls; ++from) {
      if (!differ(a, b, from)) continue;
      std::size_t to = from + 1;
      // The same class must be ahead throughout.
      while (to < calls && differ(a, b, to) &&
             (step(a, to) < step(b, to)) == (step(a, from) < step(b, from))) {
        ++to;
      }
      if (spans_step(a, from, to) || are_of_other_lines(a, b, from) || is_moved(a, b, from, to))
        return from;
      if (short_runs++ == 0) first_short = from;
      always_lacks = always_lacks && lacks_modality(a, b, from);
      from = to - 1;
    }
    std::size_t changes = 0;
    for (std::size_t i = 1; i < calls; ++i)
      if (step(a, i - 1) != trace::kNone && step(a, i) != step(a, i - 1)) ++changes;
    const bool seldom = 2 * short_runs < changes && changes - short_runs >= 2;
    return seldom || always_lacks ? first_short : calls;
  }

  bool differ(std::size_t a, std::size_t b, std::size_t i) const {
    return step(a, i) != trace::kNone && step(b, i) != trace::kNone && step(a, i) != step(b, i);
  }

  // Whether [from, to) spans more than one step. (A label that is late by a call differs in a part
  // of each step. A step of a single call cannot be told from such a label.)
  bool spans_step(std::size_t c, std::size_t from, std::size_t to) const {
    return step(c, from) != step(c, to - 1);
  }

  // Whether the two classes make their call `i` from different lines: then it is another call, and
  // no label that is late.
  bool are_of_other_lines(std::size_t a, std::size_t b, std::size_t i) const {
    const trace::StringId one = context_.call(call(a, i)).at;
    const trace::StringId other = context_.call(call(b, i)).at;
    return one.value != 0 && other.value != 0 && one != other;
  }

  // Whether one class makes the calls [from, to) after calls of other groups that the other class
  // makes after them. Then it is no label that is late: the calls came in another step.
  //
  //   a  t t t | dp | t t t | dp       t: this group's calls; dp: another group's
  //   b  t t | dp | t t t t | dp
  bool is_moved(std::size_t a, std::size_t b, std::size_t from, std::size_t to) const {
    if (from == 0 || to >= stream(a).calls.size()) return false;
    const auto more_before = [&](std::size_t i) {
      const auto calls_since_last = [&](std::size_t c) {
        return std::int64_t{stream(c).calls[i]} - std::int64_t{stream(c).calls[i - 1]};
      };
      return calls_since_last(a) - calls_since_last(b);
    };
    const bool any_threads =
        mixes_threads(context_.run.ranks[call(a, to).rank], call(a, to).call) ||
        mixes_threads(context_.run.ranks[call(b, to).rank], call(b, to).call);
    return !any_threads && more_before(from) != 0 && more_before(from) == -more_before(to);
  }

  const Context& context_;
  const GroupStreams& group_;
};

// The offset as a deviation: the ranks in the later step left out their call of the earlier one.
Deviation as_deviation(std::size_t g, const GroupStreams& group, const GroupSteps& steps,
                       std::size_t reference, const Offset& offset) {
  Deviation d;
  d.kind = Deviation::Kind::missing;
  d.group = g;
  d.seq = group.first_seq + offset.from;
  d.expected = steps.call(reference, offset.from);
  d.reference = steps.ranks_of({reference});
  d.got = steps.call(offset.classes[0], offset.from);
  d.deviants = steps.ranks_of(offset.classes);
  const std::int32_t expected = steps.step(reference, offset.from);
  const std::int32_t got = steps.step(offset.classes[0], offset.from);
  d.step = std::min(expected, got);
  if (expected > got) {  // it is the reference that went ahead
    std::swap(d.expected, d.got);
    std::swap(d.reference, d.deviants);
  }
  d.singled_out = d.deviants.size() != d.reference.size() ||
                  steps.lacks_modality(reference, offset.classes[0], offset.from);
  return d;
}

// What a group is for, as its first member with a trace declares it; empty where nothing says so.
std::string_view purpose_of(const Context& context, const GroupStreams& group) {
  if (group.streams.empty()) return "";
  const trace::RankTrace& member = context.run.ranks[group.streams[0].rank_index];
  const auto* const declared = trace::membership(member, group.group);
  return declared == nullptr ? "" : role_of(context.run.tables, *declared);
}

// The one of two steps in which most sister groups, which are as large, issue their call `index`;
// kNone: neither.
std::int32_t step_of_sisters(const Context& context, std::size_t g, std::size_t index,
                             std::int32_t one, std::int32_t other) {
  const GroupStreams& group = context.groups[g];
  std::size_t as_one = 0, as_other = 0;
  for (std::size_t s = 0; s < context.groups.size(); ++s) {
    const GroupStreams& sister = context.groups[s];
    if (s == g || !sister.comparable || sister.members.size() != group.members.size() ||
        sister.first_seq != group.first_seq || !sister.absent.empty() ||
        purpose_of(context, sister) != purpose_of(context, group)) {
      continue;
    }
    const GroupSteps steps(context, sister);
    as_one += steps.are_in_step(index, one) ? 1U : 0U;
    as_other += steps.are_in_step(index, other) ? 1U : 0U;
  }
  if (as_one == as_other) return trace::kNone;
  return as_one > as_other ? one : other;
}

Cause explain_offset(const Context& context, std::size_t g, const GroupSteps& steps,
                     std::size_t reference, const Offset& offset) {
  const GroupStreams& group = context.groups[g];
  const Deviation d = as_deviation(g, group, steps, reference, offset);
  Cause cause = explain_deviation(context, d);
  cause.can_block = false;
  Finding& finding = cause.finding;
  const std::string sentence =
      fmt::format("{} issued {} in step {} where {} issued it in step {} ({})",
                  context.describe_ranks(d.deviants), context.describe_call(d.got),
                  context.call(d.got).step, context.describe_ranks(d.reference),
                  context.call(d.expected).step, context.describe_location(d.expected, cause.seq));
  if (finding.rule == RuleId::modality_divergence || finding.rule == RuleId::dead_remedy) {
    finding.certainty = Certainty::observed;
    finding.why = fmt::format(
        "{}. Nothing hangs, and the gradients of different steps are combined.", sentence);
    return cause;
  }
  const bool known =
      context.call(d.got).what.value != 0 && context.call(d.expected).what.value != 0;
  Finding renamed = make_finding(RuleId::step_mismatch);
  // The same parameters combined over different steps give wrong numbers: an error. For calls
  // without recorded parameters it may be intended: the rule's own severity.
  if (known) renamed.severity = Severity::error;
  renamed.certainty = Certainty::observed;
  renamed.message = sentence;
  renamed.why =
      "The ranks' calls match across different steps: what one computes for a step is combined "
      "with what the others compute for another.";
  renamed.group = group.name;
  renamed.seq = cause.seq;
  renamed.step = cause.step;
  // Numbers show who deviates: the ranks ahead left out a step, or the others repeated one. Of
  // equal parties, it is the one in another step than sister groups, or whose calls in that step
  // are not as many as in its others.
  const std::vector<std::uint32_t> odd = steps.ranks_of(offset.classes);
  const std::vector<std::uint32_t> usual = steps.ranks_of({reference});
  const std::int32_t step_of_usual = steps.step(reference, offset.from);
  const std::int32_t step_of_odd = steps.step(offset.classes[0], offset.from);
  const std::int32_t of_sisters =
      step_of_sisters(context, g, offset.from, step_of_usual, step_of_odd);
  const bool reference_keeps = steps.keeps_count(reference, d.step);
  const bool odd_keeps = steps.keeps_count(offset.classes[0], d.step);
  const bool tied = odd.size() == usual.size();
  const bool reference_is_right =
      of_sisters == trace::kNone ? reference_keeps && !odd_keeps : of_sisters == step_of_usual;
  const bool odd_is_right =
      of_sisters == trace::kNone ? odd_keeps && !reference_keeps : of_sisters == step_of_odd;
  if (odd.size() < usual.size() || (tied && reference_is_right)) {
    renamed.culprits = context.ranks(odd);
  } else if (tied && odd_is_right) {
    renamed.culprits = context.ranks(usual);
  }
  renamed.ranks = finding.ranks;
  renamed.what = context.run.tables.names(context.call(d.expected).what);
  renamed.evidence = finding.evidence;
  set_fingerprint(renamed, trace::describe(context.run.tables, context.call(d.expected).signature));
  finding = std::move(renamed);
  return cause;
}

}  // namespace

std::vector<Cause> check_step_offsets(const Context& context) {
  std::vector<Cause> out;
  for (std::size_t g = 0; g < context.groups.size(); ++g) {
    const GroupSteps steps(context, context.groups[g]);
    if (!steps.comparable()) continue;
    const std::size_t reference = steps.largest();
    if (const std::optional<Offset> offset = steps.offset_from(reference))
      out.push_back(explain_offset(context, g, steps, reference, *offset));
  }
  return out;
}

}  // namespace lockstep::verify
