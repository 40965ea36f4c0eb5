#include "verify/step_offsets.h"

#include <algorithm>
#include <optional>

namespace lockstep {

namespace {

struct Offset {
  std::size_t from = 0;  // the first call from which on the steps differ
  std::vector<std::size_t> classes;
};

class GroupSteps {
 public:
  GroupSteps(const Context& context, const GroupStreams& group)
      : context_(context), group_(group) {}

  bool comparable() const {
    if (!group_.comparable || group_.classes.size() < 2) return false;
    const std::size_t length = stream(0).calls.size();
    if (length == 0 || step(0, 0) == kNone) return false;
    for (std::size_t c = 0; c < group_.classes.size(); ++c)
      if (stream(c).calls.size() != length || step(c, 0) != step(0, 0)) return false;
    return true;
  }

  // The classes that are out of step with `reference` for the longest, if any are.
  std::optional<Offset> offset_from(std::size_t reference) const {
    std::optional<Offset> out;
    for (std::size_t c = 0; c < group_.classes.size(); ++c) {
      const std::size_t from = agrees_before(reference, c);
      if (!spans_steps(reference, from)) continue;
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

  CallRef call(std::size_t c, std::size_t i) const {
    return {stream(c).rank_index, stream(c).calls[i]};
  }
  std::int32_t step(std::size_t c, std::size_t i) const { return context_.call(call(c, i)).step; }

 private:
  const Stream& stream(std::size_t c) const { return group_.streams[group_.classes[c].streams[0]]; }

  // The number of calls in front of those at the end that all differ in their step.
  std::size_t agrees_before(std::size_t a, std::size_t b) const {
    std::size_t from = stream(a).calls.size();
    while (from > 0 && step(a, from - 1) != kNone && step(b, from - 1) != kNone &&
           step(a, from - 1) != step(b, from - 1)) {
      --from;
    }
    return from;
  }

  bool spans_steps(std::size_t c, std::size_t from) const {
    const std::size_t calls = stream(c).calls.size();
    return from < calls && step(c, from) != step(c, calls - 1);
  }

  const Context& context_;
  const GroupStreams& group_;
};

Cause explain(const Context& context, std::size_t g, const GroupSteps& steps, std::size_t reference,
              const Offset& offset) {
  const GroupStreams& group = context.groups[g];
  const CallRef expected = steps.call(reference, offset.from);
  const CallRef got = steps.call(offset.classes[0], offset.from);
  const std::vector<std::uint32_t> deviants = steps.ranks_of(offset.classes);
  const std::vector<std::uint32_t> others = steps.ranks_of({reference});
  Cause cause;
  cause.group = g;
  cause.seq = group.first_seq + offset.from;
  cause.step = std::min(context.call(expected).step, context.call(got).step);
  cause.deviants = deviants;
  cause.can_block = false;
  Finding& finding = cause.finding;
  finding = make_finding(RuleId::step_mismatch);
  finding.certainty = Certainty::observed;
  finding.message = context.rank_words(deviants) + " issued " + context.call_words(got) +
                    " in step " + std::to_string(context.call(got).step) + " where " +
                    context.rank_words(others) + " issued it in step " +
                    std::to_string(context.call(expected).step) + " (" +
                    context.place_words(expected, cause.seq) + ")";
  finding.why =
      "From there to the last call of the group the ranks meet in different steps: what "
      "one computes for a step is combined with what the others compute for another.";
  finding.group = group.name;
  finding.seq = cause.seq;
  finding.step = cause.step;
  if (deviants.size() < others.size()) finding.culprits = context.ranks(deviants);
  std::vector<std::uint32_t> concerned = deviants;
  concerned.insert(concerned.end(), others.begin(), others.end());
  std::sort(concerned.begin(), concerned.end());
  finding.ranks = context.ranks(concerned);
  finding.what = context.run.tables.names(context.call(expected).what);
  finding.evidence = {context.evidence(expected, context.call_words(expected)),
                      context.evidence(got, context.call_words(got))};
  set_fingerprint(finding, describe(context.run.tables, context.call(expected).signature));
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
      out.push_back(explain(context, g, steps, reference, *offset));
  }
  return out;
}

}  // namespace lockstep
