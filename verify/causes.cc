#include "verify/causes.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"
#include "verify/blocking/blocking.h"
#include "verify/blocking/endings.h"
#include "verify/context.h"

namespace lockstep::verify {

namespace {

// Whether two ascending lists have a common element.
bool intersect(const std::vector<std::uint32_t>& a, const std::vector<std::uint32_t>& b) {
  auto i = a.begin();
  auto j = b.begin();
  while (i != a.end() && j != b.end()) {
    if (*i == *j) return true;
    ++(*i < *j ? i : j);
  }
  return false;
}

// Earlier first: by step where both are known, then by sequence number. Numbers of two groups do
// not compare; group and message only make the order the same in every run.
bool happens_before(const Cause& a, const Cause& b) {
  if (a.step != trace::kNone && b.step != trace::kNone && a.step != b.step) return a.step < b.step;
  return std::tie(a.finding.seq, a.finding.group, a.finding.message) <
         std::tie(b.finding.seq, b.finding.group, b.finding.message);
}

// The line of the program that a finding is about; empty where none was recorded.
std::string_view line_of(const Finding& finding) {
  for (const Evidence& e : finding.evidence)
    if (!e.at.empty()) return e.at;
  return {};
}

// True if two cycles of messages are one mistake that different ranks make: the stages of each
// replica of a pipeline wait for each other in the same step and in the same calls.
bool is_same_cycle_elsewhere(const Cause& a, const Cause& b) {
  const auto same_line = [&] {
    return !line_of(a.finding).empty() && line_of(a.finding) == line_of(b.finding);
  };
  return a.finding.rule == RuleId::p2p_cycle && b.finding.rule == RuleId::p2p_cycle &&
         a.group == b.group && a.finding.group != b.finding.group && a.step == b.step &&
         a.seq == b.seq && a.finding.what == b.finding.what &&
         a.finding.culprits.empty() == b.finding.culprits.empty() && same_line();
}

// "; the same in 7 more groups: ranks 25-31".
std::string same_elsewhere(const Finding& finding) {
  std::vector<trace::Rank> ranks;
  for (const Elsewhere& other : finding.also)
    unite(ranks, other.culprits.empty() ? other.ranks : other.culprits);
  const std::size_t groups = finding.also.size();
  std::string where;
  if (groups > 1 && finding.also[0].group_label == finding.group_label) {
    where = fmt::format("{} like it", plural(groups, "more group"));
  } else {
    std::vector<std::string> names;
    for (const Elsewhere& other : finding.also) names.push_back(other.group_label);
    where = join_and(names, 4);
  }
  return fmt::format("; the same in {}: {}", where, describe_ranks(ranks));
}

}  // namespace

void Causes::add(std::vector<Cause> causes) {
  std::move(causes.begin(), causes.end(), std::back_inserter(causes_));
}

void Causes::fold_deviations() {
  std::stable_sort(causes_.begin(), causes_.end(), happens_before);
  std::vector<Cause> kept;
  for (Cause& cause : causes_) {
    // Only deviations that block are folded: two wrong sizes in unrelated calls are two faults, but
    // a rank that skipped one call is out of step in all later ones.
    // If nothing shows which of two sides is wrong, later calls do not show it either, even if one
    // of them seems to name a side. So their deviations are consequences, too.
    const auto first = std::find_if(kept.begin(), kept.end(), [&](const Cause& k) {
      const bool undecided = k.group == cause.group && k.finding.culprits.empty() &&
                             k.finding.ranks == cause.finding.ranks;
      // A call with several roots hands out different data, by which ranks may size what they issue
      // next, as broadcast_object_list() does.
      const bool sized_by_it = k.group == cause.group && k.finding.rule == RuleId::root_mismatch &&
                               cause.finding.rule == RuleId::size_mismatch;
      return k.can_block && cause.can_block &&
             (k.deviants == cause.deviants || undecided || sized_by_it);
    });
    if (first != kept.end()) {
      first->finding.consequences.push_back(std::move(cause.finding));
    } else {
      kept.push_back(std::move(cause));
    }
  }
  causes_ = std::move(kept);
}

bool Causes::add_exchanged_names(ExchangedNames& names) {
  const auto follows = [&](const Cause& c) {
    return c.finding.rule != RuleId::group_divergence &&
           std::binary_search(names.groups.begin(), names.groups.end(), c.group);
  };
  // Moves the consequences to the end, in their order.
  const auto first = std::stable_partition(causes_.begin(), causes_.end(),
                                           [&](const Cause& c) { return !follows(c); });
  if (first == causes_.end()) return false;
  Cause& cause = names.cause;
  cause.finding.severity = Severity::error;
  cause.can_block = std::any_of(first, causes_.end(), [](const Cause& c) { return c.can_block; });
  for (auto c = first; c != causes_.end(); ++c) {
    cause.deviants = united(cause.deviants, c->deviants);
    cause.finding.ranks = united(cause.finding.ranks, c->finding.ranks);
    cause.finding.consequences.push_back(std::move(c->finding));
  }
  causes_.erase(first, causes_.end());
  causes_.push_back(std::move(cause));
  return true;
}

void Causes::add_wait(const WaitCause& wait) {
  explained_.insert(explained_.end(), wait.victims.begin(), wait.victims.end());
  explained_.insert(explained_.end(), wait.roots.begin(), wait.roots.end());
  for (Cause& cause : causes_) {
    if (!leads_to(cause, wait)) continue;
    cause.finding.consequences.push_back(wait_consequence(context_, wait));
    unite(cause.held_up, wait.victims);
    // Of a trace that just ends nothing shows that its process died, and the cause tells already
    // why the others wait.
    for (const std::uint32_t r : wait.roots)
      if (context_.where.positions[r].state == Position::State::cut) unite(cause.held_up, {r});
    // A deviation was only observed. The wait proves that it deadlocks. This does not hold for
    // ranks that stay in the creation of a group, because the wait is not located there but in a
    // call of the ranks that wait for them.
    const bool creation = cause.finding.rule == RuleId::group_divergence && cause.finding.seq;
    if (wait.stuck && !creation) cause.finding.certainty = Certainty::proven;
    return;
  }
  Cause cause = explain_wait(context_, wait);
  // Several waits may have one cause.
  const auto reported = std::find_if(causes_.begin(), causes_.end(), [&](const Cause& c) {
    return c.finding.rule == cause.finding.rule && c.finding.message == cause.finding.message;
  });
  if (reported != causes_.end()) {
    reported->finding.consequences.insert(reported->finding.consequences.end(),
                                          cause.finding.consequences.begin(),
                                          cause.finding.consequences.end());
    reported->finding.ranks = united(reported->finding.ranks, cause.finding.ranks);
    return;
  }
  // Merged now rather than in merge_sister_groups(), because a large job has thousands of such
  // cycles, and each wait is compared with all causes.
  const auto same = std::find_if(causes_.begin(), causes_.end(), [&](const Cause& known) {
    return is_same_cycle_elsewhere(known, cause);
  });
  if (same == causes_.end()) {
    causes_.push_back(std::move(cause));
  } else {
    merge_sister(context_, *same, std::move(cause));
  }
}

bool Causes::is_sister(const Cause& a, const Cause& b) const {
  if (a.group == SIZE_MAX || b.group == SIZE_MAX || a.group == b.group) return false;
  if (a.finding.rule != b.finding.rule) return false;
  if (a.finding.culprits.empty() != b.finding.culprits.empty()) return false;
  // The same line of the program.
  if (const std::string_view line = line_of(a.finding); !line.empty())
    if (line == line_of(b.finding)) return true;
  return is_same_in_sister_group(context_, a, b);
}

void Causes::merge_sister_groups() {
  std::vector<Cause> kept;
  for (Cause& cause : causes_) {
    const auto sister =
        std::find_if(kept.begin(), kept.end(), [&](const Cause& k) { return is_sister(k, cause); });
    if (sister == kept.end()) {
      kept.push_back(std::move(cause));
    } else {
      merge_sister(context_, *sister, std::move(cause));
    }
  }
  causes_ = std::move(kept);
  for (Cause& cause : causes_)
    if (!cause.finding.also.empty()) cause.finding.message += same_elsewhere(cause.finding);
}

void Causes::add_deaths() {
  std::optional<Cause> deaths = explain_deaths(context_);
  if (!deaths) return;
  for (Cause& cause : causes_) {
    if (!cause.can_block) continue;
    const auto& ranks = cause.finding.ranks;
    const auto& dead = deaths->finding.culprits;
    // If a few ranks died in a call that all issued, the call cannot complete even if no device
    // stalls. (The dead ranks may have issued later calls.) If most died, the job was ended because
    // it hung.
    const bool few_died = 2 * dead.size() <= deaths->finding.ranks.size();
    if (few_died && cause.finding.rule == RuleId::device_stall && cause.finding.culprits.empty() &&
        cause.finding.group == deaths->finding.group && cause.seq <= deaths->seq) {
      deaths->finding.consequences.push_back(std::move(cause.finding));
      cause = std::move(*deaths);
      return;
    }
    if (std::includes(ranks.begin(), ranks.end(), dead.begin(), dead.end())) return;
    // The ranks died in or after a wrong call of the same group: Gloo aborts a process that
    // receives a message of another size. Or in it and while they waited because of it, perhaps in
    // another group: a launcher ends those whom the abort left waiting.
    const bool in_it_or_held_up = std::all_of(dead.begin(), dead.end(), [&](trace::Rank r) {
      return std::binary_search(ranks.begin(), ranks.end(), r) ||
             std::any_of(cause.held_up.begin(), cause.held_up.end(),
                         [&](std::uint32_t h) { return context_.run.ranks[h].rank == r; });
    });
    if (in_it_or_held_up ||
        (cause.finding.group == deaths->finding.group && cause.seq <= deaths->seq)) {
      cause.finding.consequences.push_back(std::move(deaths->finding));
      return;
    }
  }
  causes_.push_back(std::move(*deaths));
}

void Causes::add_exceptions() {
  std::sort(explained_.begin(), explained_.end());
  // First the exceptions that ranks raised by themselves. Only if none of those is left do the
  // victims' exceptions matter ("connection closed by peer"): with a cause they are its
  // consequences, without one they are all that is known.
  const Exceptions exceptions = sort_exceptions(context_);
  std::vector<std::uint32_t> left;
  for (const std::uint32_t r : exceptions.causes) {
    if (!attach_exception(r)) left.push_back(r);
  }
  if (!left.empty()) {
    causes_.push_back(explain_exceptions(context_, left));
    return;
  }
  if (!causes_.empty()) {
    for (const std::uint32_t r : exceptions.victims) attach_exception(r);
    return;
  }
  // The end of a rank that the job's user interrupted fails the calls of the others.
  if (!exceptions.victims.empty() && !interruption(context_)) {
    Cause lost = explain_exceptions(context_, exceptions.victims);
    lost.finding.culprits.clear();
    lost.finding.why =
        "Such an exception follows from the end of another rank, or from the network: it does not "
        "show who is at fault.";
    lost.finding.fix =
        "look at the ranks that said nothing, and at the network to the peer that it names";
    causes_.push_back(std::move(lost));
  }
}

void Causes::add_wrong_values(std::vector<Cause> values) {
  const auto first = std::find_if(causes_.begin(), causes_.end(), [](const Cause& c) {
    const std::string_view family = rule(c.finding.rule).family;
    return c.finding.severity == Severity::error && (family == "matching" || family == "modality");
  });
  // An index: push_back below may move the causes.
  const auto index = static_cast<std::size_t>(first - causes_.begin());
  const bool found = first != causes_.end();
  for (Cause& cause : values) {
    const bool follows = found && cause.finding.severity == Severity::error &&
                         (causes_[index].step == trace::kNone || causes_[index].step <= cause.step);
    if (follows) {
      causes_[index].finding.consequences.push_back(std::move(cause.finding));
    } else {
      causes_.push_back(std::move(cause));
    }
  }
}

std::vector<Finding> Causes::take() {
  std::vector<Finding> out;
  for (Cause& cause : causes_) out.push_back(std::move(cause.finding));
  return out;
}

bool Causes::explain(const WaitCause& wait) const {
  return std::any_of(causes_.begin(), causes_.end(),
                     [&](const Cause& cause) { return leads_to(cause, wait); });
}

bool Causes::leads_to(const Cause& cause, const WaitCause& wait) const {
  if (!cause.can_block) return false;
  // The deviating ranks hold the others up, or wait themselves.
  if (intersect(cause.deviants, wait.roots) || intersect(cause.deviants, wait.victims)) {
    return true;
  }
  // Or a root died in the deviating call, or in a later one of the group.
  const auto died_of_it = [&](std::uint32_t r) {
    const std::uint32_t open = context_.where.positions[r].last_open;
    if (open == kNoCall || cause.group == SIZE_MAX) return false;
    const trace::Call& call = context_.call({r, open});
    return call.group == context_.groups[cause.group].group && call.seq >= cause.seq;
  };
  if (std::any_of(wait.roots.begin(), wait.roots.end(), died_of_it)) return true;
  // Or ranks wait in the deviating group, at the deviation or later.
  return std::any_of(wait.points.begin(), wait.points.end(), [&](std::size_t p) {
    const WaitPoint& point = context_.where.wait_points[p];
    return point.group != WaitPoint::kPointToPoint && point.group == cause.group &&
           context_.seq_of(point) >= cause.seq;
  });
}

bool Causes::attach_exception(std::uint32_t rank) {
  const trace::Rank r = context_.run.ranks[rank].rank;
  for (Cause& cause : causes_) {
    if (!cause.can_block) continue;
    auto& ranks = cause.finding.ranks;
    if (!std::binary_search(ranks.begin(), ranks.end(), r)) continue;
    const std::vector<trace::Rank>& culprits = cause.finding.culprits;
    if (cause.finding.rule == RuleId::rank_exception ||
        (cause.finding.rule == rule_of_exception(context_, rank) &&
         std::binary_search(culprits.begin(), culprits.end(), r)))
      return true;  // it is reported already
    Finding below = explain_exceptions(context_, {rank}).finding;
    below.fix.clear();
    below.evidence.clear();
    cause.finding.consequences.push_back(std::move(below));
    return true;
  }
  // The exception of a rank that is part of some wait needs no cause of its own.
  return std::binary_search(explained_.begin(), explained_.end(), rank);
}

}  // namespace lockstep::verify
