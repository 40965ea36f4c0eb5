// From wrong reductions of gradients to findings: what was divided by what, which rank is missing
// or counted twice, or which tensor was put in.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "base/quantities.h"
#include "base/text.h"
#include "verify/context.h"
#include "verify/numbers/reduction.h"

namespace lockstep::verify {

namespace {

using FaultKind = ReductionFault::Kind;

RuleId rule_of_fault(FaultKind kind) {
  if (kind == FaultKind::unsynchronised) return RuleId::unsynchronised_step;
  if (kind == FaultKind::diluted) return RuleId::dummy_dilution;
  return RuleId::reduction_wrong;
}

// "3", "2.5". A divisor is estimated from rounded values: 2.9998 is meant to be 3.
std::string describe_divisor(double divisor) {
  const double whole = std::round(divisor);
  if (std::abs(divisor - whole) < 1e-3 * std::max(1.0, divisor)) return fixed(whole, 0);
  return fixed(divisor, 3);
}

// What the wrong divisor suggests: a sum, two divisions (DDP and the program), or something else.
// It is estimated, so 1 and the square count within a thousandth.
std::string divisor_fault(const Context& context, const ReductionFault& f) {
  if (std::abs(f.divisor - 1) < 1e-3) {
    return fmt::format("are the sum over the {}, not their mean", plural(f.world, "rank"));
  }
  const auto job = static_cast<double>(context.run.world_size);
  if (job > static_cast<double>(f.world) && std::abs(f.divisor - job) < 1e-3 * job) {
    return fmt::format("were divided by the {} ranks of the job, not by the {} that hold them",
                       describe_divisor(f.divisor), f.world);
  }
  const double squared = static_cast<double>(f.world) * static_cast<double>(f.world);
  if (std::abs(f.divisor - squared) < 1e-3 * squared) {
    return fmt::format("were divided by the number of ranks twice ({})",
                       describe_divisor(f.divisor));
  }
  std::string out = fmt::format("are the sum over {} divided by {}", plural(f.world, "rank"),
                                describe_divisor(f.divisor));
  if (f.contributors < f.world && f.contributors > 0) {
    out += fmt::format(", neither by {} nor by the {} ranks that had a gradient", f.world,
                       f.contributors);
  }
  return out;
}

std::string describe_fault(const Context& context, const ReductionFault& f) {
  const std::string who = f.culprits.empty() ? "" : context.describe_ranks(f.culprits);
  switch (f.kind) {
    case FaultKind::unsynchronised:
      return f.culprits.empty()
                 ? "were not synchronised: each rank's optimizer got its own"
                 : fmt::format("were not synchronised on {}: the optimizer got the rank's own",
                               who);
    case FaultKind::divisor:
      return divisor_fault(context, f);
    case FaultKind::left_out:
      return fmt::format("leave out {}: they are the others' sum divided by {}", who,
                         describe_divisor(f.divisor));
    case FaultKind::counted_twice:
      return fmt::format("count {} twice", who);
    case FaultKind::mispaired:
      return fmt::format("{} was paired with another tensor: its {} was summed with the others'",
                         who.empty() ? "one rank" : who,
                         printable(context.run.tables.str(f.partner)));
    case FaultKind::diluted:
      return fmt::format(
          "are divided by all {}, though only {} had {}: the mean is {} % of the mean over "
          "those{}",
          plural(f.world, "rank"), grouped(f.contributors), f.contributors == 1 ? "one" : "any",
          fixed(100.0 * static_cast<double>(f.contributors) / static_cast<double>(f.world), 0),
          f.declared ? ", which the program declares (average=contributors)" : "");
    case FaultKind::too_large:
      return "are larger than any mean of the ranks' gradients can be";
    case FaultKind::corrupt:
      return who.empty()
                 ? "are not a mean of the ranks' gradients, in whole or in part: some values "
                   "changed on the way"
                 : fmt::format("are not the mean on {}, though they are on other ranks", who);
  }
  return {};
}

std::string why(const ReductionFault& f) {
  if (f.kind == FaultKind::unsynchronised)
    return "the hash before and after the synchronisation is one";
  if (f.kind == FaultKind::too_large) return "the norm of a mean is at most the mean of the norms";
  return "sketches are linear: that of the result must be that of the mean, up to rounding";
}

std::string fix(const ReductionFault& f) {
  switch (f.kind) {
    case FaultKind::unsynchronised:
      return "synchronise before optimizer.step(): check no_sync(), hooks that were lost when the "
             "model was moved or wrapped again, and branches that skip the call";
    case FaultKind::divisor:
    case FaultKind::too_large:
      return "divide by the number of ranks once, or reduce with the average; where a sum is "
             "meant, declare it (tag average=sum)";
    case FaultKind::diluted:
      return "divide by the number of ranks that had a gradient (all-reduce a flag), or declare "
             "the mean over the world (tag average=world)";
    case FaultKind::mispaired:
      return "order the calls by parameter name, and give every parameter a gradient on every rank";
    case FaultKind::left_out:
    case FaultKind::counted_twice:
      return "let every rank's gradient enter the all-reduce once; check the group and branches";
    case FaultKind::corrupt:
      break;
  }
  return "look for writes into the buffer while it is reduced, then for faulty memory on the rank";
}

// Faults with equal keys are one finding. Divisors are compared as text, which absorbs rounding.
// Each mispaired tensor is a finding of its own.
using Alike = std::tuple<FaultKind, std::vector<std::uint32_t>, std::string, std::uint32_t>;

Alike alike(const ReductionFault& f) {
  const bool divided = f.kind == FaultKind::divisor || f.kind == FaultKind::left_out;
  return {f.kind, f.culprits, divided ? describe_divisor(f.divisor) : "",
          f.kind == FaultKind::mispaired ? f.row->name.value : 0};
}

// One finding for faults that are alike, at the first step that shows it.
ReductionCause explain_faults(const Context& context,
                              const std::vector<const ReductionFault*>& faults,
                              std::size_t checked) {
  const ReductionFault& first = *faults.front();
  std::set<std::int64_t> steps;
  std::vector<trace::StringId> names;  // of the first step
  for (const ReductionFault* f : faults) {
    steps.insert(f->row->n);
    if (f->row->n == first.row->n) names.push_back(f->row->name);
  }
  ReductionCause out;
  out.kind = first.kind;
  out.n = first.row->n;
  Cause& cause = out.cause;
  cause = value_cause(context, rule_of_fault(first.kind), first.row->n, names, first.culprits);
  Finding& f = cause.finding;
  f.certainty = Certainty::proven;
  if (first.kind == FaultKind::diluted && !first.declared) f.severity = Severity::warning;
  f.message =
      fmt::format("the synchronised gradients of {} (step {}) {}", describe_names(context, names),
                  first.row->n, describe_fault(context, first));
  if (steps.size() > 1) f.message += fmt::format("; so in {}", plural(steps.size(), "step"));
  f.why =
      fmt::format("{} ({} of {} checked)", why(first), plural(faults.size(), "gradient"), checked);
  f.fix = fix(first);
  f.ranks.clear();
  for (const Reading& r : first.row->readings) f.ranks.push_back(context.run.ranks[r.rank].rank);
  return out;
}

}  // namespace

std::vector<ReductionCause> explain_reductions(const Context& context,
                                               const Reductions& reductions) {
  std::map<Alike, std::vector<const ReductionFault*>> groups;
  for (const ReductionFault& f : reductions.faults) groups[alike(f)].push_back(&f);
  std::vector<ReductionCause> out;
  out.reserve(groups.size());
  for (const auto& [key, faults] : groups) {
    out.push_back(explain_faults(context, faults, reductions.checked));
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const ReductionCause& a, const ReductionCause& b) { return a.n < b.n; });
  return out;
}

}  // namespace lockstep::verify
