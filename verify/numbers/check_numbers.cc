#include "verify/numbers/check_numbers.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include <fmt/core.h>

#include "base/text.h"
#include "verify/context.h"
#include "verify/numbers/divergence.h"
#include "verify/numbers/reduction.h"
#include "verify/numbers/sync_calls.h"
#include "verify/numbers/updates.h"

namespace lockstep::verify {

namespace {

// A fault and when in the run it occurs, to be chained with its consequences.
struct Link {
  std::int64_t n = 0;
  Phase phase{};
  bool parts_ranks = false;  // the ranks' values differ after it
  bool may_follow = false;   // it may be a consequence of an earlier one that parts ranks
  Cause cause;
};

// `what`: "parameters changed in step 3 although their gradient was zero".
Cause explain_update(const Context& context, RuleId rule, Certainty certainty,
                     const UpdateFault& fault, const std::string& what) {
  const bool some = fault.ranks.size() < context.run.ranks.size();
  Cause out = value_cause(context, rule, fault.n, fault.names,
                          some ? fault.ranks : std::vector<std::uint32_t>{});
  Finding& f = out.finding;
  f.certainty = certainty;
  f.ranks = context.ranks(fault.ranks);
  f.message = fmt::format("{}: {} ({}, {})", what, describe_names(context, fault.names),
                          context.describe_ranks(fault.ranks), plural(fault.steps, "step"));
  return out;
}

Cause explain_decayed(const Context& context, const UpdateFault& fault) {
  return explain_update(context, RuleId::decayed_unused, Certainty::observed, fault,
                        fmt::format("parameters changed in step {} although their gradient was {}",
                                    fault.n, fault.absent ? "not there" : "zero"));
}

Cause explain_stale(const Context& context, const UpdateFault& fault) {
  return explain_update(
      context, RuleId::stale_gradient, Certainty::proven, fault,
      fmt::format("backward began step {} with the gradients of the step before", fault.n));
}

void add_divergences(const Context& context, const ValueTable& table, const SyncCalls& calls,
                     Phase phase, std::vector<Link>& links, std::vector<std::string>& undecided) {
  for (const Divergence& d : find_divergences(context.run, table, phase)) {
    if (d.course == Divergence::Course::one_look && phase == Phase::param) {
      undecided.push_back(
          "parameters differ between ranks in the one step that was recorded, "
          "before any synchronisation perhaps");
    }
    Cause cause = explain_divergence(context, table, calls, d);
    const bool serious = cause.finding.severity == Severity::error;
    if (context.live && !serious) continue;
    const bool reported = cause.finding.severity != Severity::note;
    links.push_back({d.n, phase, serious, reported, std::move(cause)});
  }
}

// Puts consequences below their cause. The first fault that makes ranks differ is the cause of all
// later differences: nothing tells whether a later one has a reason of its own. Faults on all ranks
// alike (a wrong divisor) are independent of it.
std::vector<Cause> chained(std::vector<Link> links) {
  std::stable_sort(links.begin(), links.end(), [](const Link& a, const Link& b) {
    return std::tie(a.n, a.phase) < std::tie(b.n, b.phase);
  });
  constexpr std::size_t kNobody = SIZE_MAX;
  std::size_t parting = kNobody;
  std::vector<Cause> out;
  for (Link& link : links) {
    if (parting != kNobody && link.may_follow) {
      out[parting].finding.consequences.push_back(std::move(link.cause.finding));
      continue;
    }
    out.push_back(std::move(link.cause));
    if (parting == kNobody && link.parts_ranks) parting = out.size() - 1;
  }
  return out;
}

}  // namespace

std::vector<Cause> check_numbers(const Context& context, std::vector<std::string>& unknown,
                                 std::vector<std::string>& undecided) {
  const bool any = std::any_of(context.run.ranks.begin(), context.run.ranks.end(),
                               [](const trace::RankTrace& trace) { return !trace.states.empty(); });
  if (!any) return {};
  const SyncCalls calls(context);
  // Ranks outside the group that averages a tensor hold no replica of it, so they do not count.
  const ValueTable table(context.run, [&](std::uint32_t rank, trace::StringId name) {
    const SyncCall* call = calls.of(name);
    return call == nullptr || std::binary_search(call->ranks.begin(), call->ranks.end(), rank);
  });
  const Reductions reductions = check_reductions(context, table, calls);

  std::vector<Link> links;
  for (ReductionCause& r : explain_reductions(context, reductions)) {
    const bool parts = r.parts_ranks();
    links.push_back({r.n, Phase::local_grad, parts, false, std::move(r.cause)});
  }
  for (const UpdateFault& fault : find_stale_gradients(context.run, table)) {
    links.push_back({fault.n, Phase::leftover, false, false, explain_stale(context, fault)});
  }
  for (const UpdateFault& fault : find_decayed(context.run, table)) {
    links.push_back({fault.n, Phase::param, false, false, explain_decayed(context, fault)});
  }
  for (const Phase phase : {Phase::synced_grad, Phase::optim, Phase::param, Phase::buffer}) {
    add_divergences(context, table, calls, phase, links, undecided);
  }
  if (reductions.unchecked > 0) {
    unknown.push_back(plural(reductions.unchecked, "synchronised gradient") +
                      ": not compared with the ranks' own, since ranks of their group left no "
                      "trace");
  }
  const auto vague = std::count_if(table.series().begin(), table.series().end(),
                                   [](const Series& s) { return s.phase == Phase::other_grad; });
  if (vague > 0) {
    unknown.push_back(plural(vague, "gradient") +
                      ": recorded without saying whether before or after the synchronisation, "
                      "so not compared");
  }
  return chained(std::move(links));
}

}  // namespace lockstep::verify
