#include "verify/causes.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <tuple>
#include <utility>

#include "verify/blocking/blocking.h"
#include "verify/blocking/endings.h"
#include "verify/context.h"

namespace lockstep::verify {

namespace {

constexpr std::size_t kMostEvidence = 8;  // what a reader looks at

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

}  // namespace

void Causes::add(std::vector<Cause> causes) {
  std::move(causes.begin(), causes.end(), std::back_inserter(causes_));
}

void Causes::fold_deviations() {
  std::stable_sort(causes_.begin(), causes_.end(), happens_before);
  std::vector<Cause> kept;
  for (Cause& cause : causes_) {
    // Only what blocks: two wrong sizes in unrelated calls are two faults, but a rank that skipped
    // one call is out of step in all later ones.
    const auto first = std::find_if(kept.begin(), kept.end(), [&](const Cause& k) {
      return k.can_block && cause.can_block && k.deviants == cause.deviants;
    });
    if (first != kept.end()) {
      first->finding.consequences.push_back(std::move(cause.finding));
    } else {
      kept.push_back(std::move(cause));
    }
  }
  causes_ = std::move(kept);
}

bool Causes::add_above(ExchangedNames& names) {
  const auto follows = [&](const Cause& c) {
    return c.finding.rule != RuleId::group_divergence &&
           std::binary_search(names.groups.begin(), names.groups.end(), c.group);
  };
  // The consequences to the end, in their order.
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
    if (!cause.can_block || !leads_to(cause, wait)) continue;
    cause.finding.consequences.push_back(wait_consequence(context_, wait));
    // A deviation was observed; that it deadlocks is now proven.
    if (wait.stuck) cause.finding.certainty = Certainty::proven;
    return;
  }
  causes_.push_back(explain_wait(context_, wait));
}

void Causes::merge_sister_groups() {
  std::vector<Cause> kept;
  for (Cause& cause : causes_) {
    // The same rule, call, index, step and parameters in another group of the same size.
    const auto sister = std::find_if(kept.begin(), kept.end(), [&](const Cause& k) {
      return k.call.value != 0 && k.group != SIZE_MAX && cause.group != SIZE_MAX &&
             k.group != cause.group && k.finding.rule == cause.finding.rule &&
             k.call == cause.call && k.seq == cause.seq && k.step == cause.step &&
             k.finding.what == cause.finding.what &&
             k.finding.culprits.empty() == cause.finding.culprits.empty() &&
             context_.groups[k.group].members.size() == context_.groups[cause.group].members.size();
    });
    if (sister == kept.end()) {
      kept.push_back(std::move(cause));
      continue;
    }
    Finding& f = sister->finding;
    f.message +=
        "; the same in group " + cause.finding.group + ": " + context_.rank_words(cause.deviants);
    sister->deviants = united(sister->deviants, cause.deviants);
    f.culprits = united(f.culprits, cause.finding.culprits);
    f.ranks = united(f.ranks, cause.finding.ranks);
    f.evidence.insert(f.evidence.end(), cause.finding.evidence.begin(),
                      cause.finding.evidence.end());
    f.evidence.resize(std::min<std::size_t>(f.evidence.size(), kMostEvidence));
    // The certainty of the merged cause is the strongest one (proven is the smallest value).
    for (Finding& below : cause.finding.consequences) f.consequences.push_back(std::move(below));
    if (cause.finding.certainty < f.certainty) f.certainty = cause.finding.certainty;
  }
  causes_ = std::move(kept);
}

void Causes::add_deaths() {
  std::optional<Cause> deaths = explain_deaths(context_);
  if (!deaths) return;
  for (Cause& cause : causes_) {
    if (!cause.can_block) continue;
    const auto& ranks = cause.finding.ranks;
    const auto& dead = deaths->finding.culprits;
    if (std::includes(ranks.begin(), ranks.end(), dead.begin(), dead.end())) return;
    // They died in or after a call of the same group that had gone wrong: Gloo aborts a process
    // that receives a message of another size.
    if (cause.finding.group == deaths->finding.group && cause.seq <= deaths->seq) {
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
    if (!hang_below(r)) left.push_back(r);
  }
  if (!left.empty()) {
    causes_.push_back(explain_exceptions(context_, left));
    return;
  }
  if (!causes_.empty()) {
    for (const std::uint32_t r : exceptions.victims) hang_below(r);
    return;
  }
  if (!exceptions.victims.empty()) {
    causes_.push_back(explain_exceptions(context_, exceptions.victims));
  }
}

void Causes::add_below_matching(std::vector<Cause> numbers) {
  const auto first = std::find_if(causes_.begin(), causes_.end(), [](const Cause& c) {
    const std::string_view family = rule(c.finding.rule).family;
    return c.finding.severity == Severity::error && (family == "matching" || family == "modality");
  });
  // An index: push_back below may move the causes.
  const auto place = static_cast<std::size_t>(first - causes_.begin());
  const bool found = first != causes_.end();
  for (Cause& cause : numbers) {
    const bool follows = found && cause.finding.severity == Severity::error &&
                         (causes_[place].step == trace::kNone || causes_[place].step <= cause.step);
    if (follows) {
      causes_[place].finding.consequences.push_back(std::move(cause.finding));
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

bool Causes::leads_to(const Cause& cause, const WaitCause& wait) const {
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

bool Causes::hang_below(std::uint32_t rank) {
  const trace::Rank r = context_.run.ranks[rank].rank;
  for (Cause& cause : causes_) {
    if (!cause.can_block) continue;
    auto& ranks = cause.finding.ranks;
    if (!std::binary_search(ranks.begin(), ranks.end(), r)) continue;
    if (cause.finding.rule == RuleId::rank_exception) return true;  // it is reported already
    Finding below = explain_exceptions(context_, {rank}).finding;
    below.fix.clear();
    below.evidence.clear();
    cause.finding.consequences.push_back(std::move(below));
    return true;
  }
  // A rank that some wait concerns needs no cause of its own.
  return std::binary_search(explained_.begin(), explained_.end(), rank);
}

}  // namespace lockstep::verify
