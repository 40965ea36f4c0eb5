#include "verify/numbers/check_numbers.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"
#include "trace/formats/ring/ring_file.h"
#include "verify/context.h"
#include "verify/numbers/divergence.h"
#include "verify/numbers/reduction.h"
#include "verify/numbers/replicas.h"
#include "verify/numbers/settings.h"
#include "verify/numbers/sync_calls.h"
#include "verify/numbers/updates.h"
#include "verify/numbers/value_classes.h"

namespace lockstep::verify {

namespace {

// A fault and when in the run it occurs, to be chained with its consequences.
struct Link {
  std::int64_t n = 0;
  Phase phase{};
  bool makes_ranks_differ = false;  // the ranks' values differ after it
  bool may_follow = false;          // an earlier one, after which ranks differ, may be its cause
  Cause cause;
};

// The first step in which a rank without batches stood in for itself (PyTorch's Join) where others
// trained. It numbers no steps meanwhile: later ones of equal numbers are different steps.
//
//   rank 0   reduce (step 9)   reduce (step 10)             reduce (step 11)
//   rank 1   reduce (step 9)   reduce (step 10, of Join)    reduce (step 10)
//
// O(calls) where Join made any, else O(1).
std::optional<std::int64_t> first_joined_step(const Context& context) {
  const auto joins = [&](const trace::Call& call) {
    return context.run.tables.str(call.tag) == trace::ring::kJoinTag;
  };
  std::optional<std::int64_t> out;
  for (const GroupStreams& group : context.groups) {
    if (!group.comparable || group.streams.size() < 2) continue;
    const Stream& first = group.streams[0];
    for (const Stream& stream : group.streams) {
      const std::size_t both = std::min(first.calls.size(), stream.calls.size());
      for (std::size_t i = 0; i < both; ++i) {
        const trace::Call& a = context.call({first.rank_index, first.calls[i]});
        const trace::Call& b = context.call({stream.rank_index, stream.calls[i]});
        if (a.tag == b.tag || joins(a) == joins(b)) continue;
        const std::int64_t step = std::min(a.step, b.step);
        if (step != trace::kNone) out = std::min(out.value_or(step), step);
        break;
      }
    }
  }
  return out;
}

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

Cause explain_unchanged(const Context& context, const Unchanged& found) {
  const UpdateFault& fault = found.fault;
  Cause out = value_cause(context, RuleId::no_update, fault.n, fault.names, {});
  Finding& f = out.finding;
  f.certainty = Certainty::observed;
  const std::string which =
      found.all ? "no parameter changed in any step"
                : fmt::format("{} changed in no step: {}", plural(fault.names.size(), "parameter"),
                              describe_names(context, fault.names));
  f.message =
      fmt::format("{}, although {} had gradients in {} and the learning rate is not 0", which,
                  found.all || fault.names.size() > 1 ? "they" : "it", plural(fault.steps, "step"));
  if (!found.all) f.severity = Severity::note;
  return out;
}

Cause explain_unreduced(const Context& context, const Unreduced& found) {
  const bool some = found.ranks.size() < context.run.ranks.size();
  Cause out = value_cause(context, RuleId::unsynchronised_step, found.n, {},
                          some ? found.ranks : std::vector<std::uint32_t>{});
  Finding& f = out.finding;
  f.certainty = Certainty::observed;
  f.ranks = context.ranks(found.ranks);
  const std::string where =
      fmt::format("({}, {})", context.describe_ranks(found.ranks), plural(found.steps, "step"));
  if (found.backwards == 0) {
    f.message = fmt::format(
        "the optimizer made step {} without any gradient, after a backward of the model {}",
        found.n, where);
    f.why = "FSDP keeps gradients to itself until a backward reduces them";
    f.fix = "call set_requires_gradient_sync(True) before the last micro-batch of each step";
    return out;
  }
  f.message = fmt::format(
      "in step {} the gradients of {} under no_sync() were zeroed before a reduction carried "
      "them {}",
      found.n, plural(found.backwards, "backward"), where);
  f.why = "the update contains the last micro-batch alone";
  f.fix = "call optimizer.zero_grad() once per update, not in each micro-batch";
  return out;
}

Cause explain_equal_random(const Context& context, const EqualRandom& found) {
  Cause out = value_cause(context, RuleId::equal_random, found.n, {}, {});
  Finding& f = out.finding;
  f.certainty = Certainty::observed;
  f.ranks = context.ranks(found.ranks);
  f.message = fmt::format(
      "{} draw the same random numbers in step {}, although the program says that theirs differ",
      context.describe_ranks(found.ranks), found.n);
  return out;
}

Cause explain_evaluation_mode(const Context& context, std::int64_t n) {
  Cause out = value_cause(context, RuleId::evaluation_mode, n, {}, {});
  out.finding.certainty = Certainty::observed;
  out.finding.message = fmt::format(
      "the model is in evaluation mode from step {} on, in which it goes on being trained", n);
  return out;
}

Cause explain_non_finite(const Context& context, const NonFinite& found) {
  const bool some = found.first_ranks.size() < context.run.ranks.size();
  Cause out = value_cause(context, RuleId::non_finite, found.n, found.names,
                          some ? found.first_ranks : std::vector<std::uint32_t>{});
  Finding& f = out.finding;
  f.certainty = Certainty::observed;
  f.message = fmt::format("parameters are not finite from step {} on: {}", found.n,
                          describe_names(context, found.names));
  if (found.first == Phase::local_grad) {
    f.message += fmt::format("; first were the gradients that {} computed in step {}",
                             context.describe_ranks(found.first_ranks), found.first_n);
  } else if (found.first == Phase::synced_grad) {
    f.message +=
        fmt::format("; the optimizer got gradients that are not finite in step {}", found.first_n);
  } else {
    f.message += "; its gradients were finite, so the update made them so";
  }
  return out;
}

Cause explain_still(const Context& context, const UpdateFault& fault) {
  Cause out = explain_update(
      context, RuleId::rank_local_decision, Certainty::observed, fault,
      fmt::format("parts of parameters stayed as they were in step {} although they had a gradient "
                  "and the other ranks' parts changed",
                  fault.n));
  out.finding.fix = "give every rank's optimizer all of its parameters, and let all make the step";
  return out;
}

// Whether gradients were clipped by norms that differ between ranks, though the optimizer got equal
// ones: each rank clipped its own, and they were reduced afterwards.
bool clipped_before_reduced(const Context& context, const ValueTable& table, const Divergence& d) {
  constexpr std::string_view kNorm = "clip.norm";
  const auto is_norm = [&](const ValueRow* row) {
    return context.run.tables.str(row->name).starts_with(kNorm);
  };
  if (d.phase != Phase::optim || !std::all_of(d.rows.begin(), d.rows.end(), is_norm)) return false;
  const auto gradients = table.rows(Phase::synced_grad, d.n);
  return !gradients.empty() &&
         std::all_of(gradients.begin(), gradients.end(), [&](const ValueRow& row) {
           return row.sharded() || !classes_of(context.run, row).differ();
         });
}

// The ranks that zeroed gradients without a step, where the others did not: in all of the step that
// follows they are behind.
std::vector<std::uint32_t> ranks_that_discarded(const trace::Run& run, const Divergence& d) {
  std::vector<std::uint32_t> out;
  bool others = false;
  for (const ValueRow* row : d.rows) {
    if (d.phase != Phase::optim || number_name(run.tables.str(row->name)) != "discarded") continue;
    for (const Reading& r : row->readings) {
      if (r.mark->norm.value_or(0) > 0) out.push_back(r.rank);
      others = others || r.mark->norm == 0.0;
    }
  }
  return others ? out : std::vector<std::uint32_t>{};
}

// Whether parameters differ and agree again and again: averaged every few steps (local SGD), so
// that gradients and moments may differ.
bool are_averaged(const trace::Run& run, const ValueTable& table) {
  const std::vector<Divergence> found = find_divergences(run, table, Phase::param);
  return !found.empty() && std::all_of(found.begin(), found.end(), [](const Divergence& d) {
    return d.pattern == Divergence::Pattern::recurring;
  });
}

// Whether these are gradients that the optimizer reduces itself.
bool left_to_optimizer(const Context& context, const Divergence& d) {
  std::set<std::uint32_t> ranks;
  std::int64_t elements = 0;
  for (const ValueRow* row : d.rows) {
    for (const Reading& r : row->readings) ranks.insert(r.rank);
    elements += elements_of(context.run, *row->readings.front().mark);
  }
  return elements > 0 &&
         reduced_by_optimizer(context.run, {ranks.begin(), ranks.end()}, d.n, elements);
}

// Whether the optimizer reduces what it got, so that its gradients may differ between ranks, and
// what it adds up of them.
bool optimizer_reduces(const Context& context, const ValueTable& table) {
  const std::vector<Divergence> found = find_divergences(context.run, table, Phase::synced_grad);
  return !found.empty() && std::all_of(found.begin(), found.end(), [&](const Divergence& d) {
    return left_to_optimizer(context, d);
  });
}

// Whether all of these are tensors that an optimizer keeps for a parameter: "exp_avg/w".
bool are_optimizer_tensors(const trace::Run& run, const ValueTable& table, const Divergence& d) {
  std::set<std::string_view> parameters;
  for (const Series& series : table.series()) {
    if (series.phase == Phase::param) parameters.insert(run.tables.str(series.name));
  }
  return std::all_of(d.rows.begin(), d.rows.end(), [&](const ValueRow* row) {
    const std::string_view name = run.tables.str(row->name);
    const std::size_t slash = name.find('/');
    return slash != std::string_view::npos && parameters.contains(name.substr(slash + 1));
  });
}

void add_divergences(const Context& context, const ValueTable& table, const SyncCalls& calls,
                     Phase phase, bool averaged, bool reduces, std::vector<Link>& links,
                     std::vector<std::string>& undecided) {
  for (const Divergence& d : find_divergences(context.run, table, phase)) {
    if (d.pattern == Divergence::Pattern::one_look && phase == Phase::param) {
      undecided.push_back(
          "parameters differ between ranks in the one step that was recorded, "
          "before any synchronisation perhaps");
    }
    Cause cause = explain_divergence(context, table, calls, d);
    if (averaged && phase != Phase::param) {
      cause.finding.severity = Severity::note;
      cause.finding.certainty = Certainty::observed;
      cause.finding.why =
          "parameters agree again every few steps: they are averaged, not gradients";
    }
    if (reduces && (phase == Phase::synced_grad ||
                    (phase == Phase::optim && are_optimizer_tensors(context.run, table, d)))) {
      cause.finding.severity = Severity::note;
      cause.finding.certainty = Certainty::observed;
      cause.finding.why = "the optimizer reduces what it got itself: ranks have their own before";
    }
    if (clipped_before_reduced(context, table, d)) {
      cause.finding.why =
          "the gradients that the optimizer got are equal: each rank clipped its own, before they "
          "were reduced";
      cause.finding.fix = "reduce the gradients, then clip them";
      // What the reduction gave is then no mean of the ranks' gradients: a consequence.
      for (Link& link : links) link.may_follow |= link.phase == Phase::local_grad && link.n >= d.n;
      links.push_back({d.n, Phase::leftover, true, false, std::move(cause)});
      continue;
    }
    if (const auto behind = ranks_that_discarded(context.run, d); !behind.empty()) {
      cause = value_cause(context, RuleId::rank_local_decision, d.n, {}, behind);
      Finding& f = cause.finding;
      f.certainty = Certainty::proven;
      f.message = fmt::format(
          "{} zeroed the gradients of a backward without an optimizer step in step {}; the other "
          "ranks made the step",
          context.describe_ranks(behind), d.n);
      links.push_back({d.n, Phase::leftover, true, false, std::move(cause)});
      continue;
    }
    const bool serious = cause.finding.severity == Severity::error;
    if (context.live && !serious) continue;
    const bool reported = cause.finding.severity != Severity::note;
    links.push_back({d.n, phase, serious, reported, std::move(cause)});
  }
}

// Puts consequences below their cause. The first fault that makes ranks differ is the cause of all
// later differences: nothing shows whether a later one has a reason of its own. Faults that all
// ranks share (a wrong divisor) are independent of it.
std::vector<Cause> chained(std::vector<Link> links) {
  std::stable_sort(links.begin(), links.end(), [](const Link& a, const Link& b) {
    return std::tie(a.n, a.phase) < std::tie(b.n, b.phase);
  });
  std::optional<std::size_t> first_divergent;  // an index of `out`
  std::vector<Cause> out;
  for (Link& link : links) {
    if (first_divergent && link.may_follow) {
      out[*first_divergent].finding.consequences.push_back(std::move(link.cause.finding));
      continue;
    }
    out.push_back(std::move(link.cause));
    if (!first_divergent && link.makes_ranks_differ) first_divergent = out.size() - 1;
  }
  return out;
}

// Adds how many recorded values were not compared, and why, to `unknown`.
void list_uncompared(const Context& context, const ValueTable& table, const Reductions& reductions,
                     std::vector<std::string>& unknown) {
  if (reductions.unchecked > 0) {
    unknown.push_back(plural(reductions.unchecked, "synchronised gradient") +
                      ": not compared with the ranks' own, since ranks of their group left no "
                      "trace");
  }
  // The parts of sharded parameters, counted in the first recorded step.
  const auto parts =
      std::count_if(table.rows().begin(), table.rows().end(), [&](const ValueRow& row) {
        return row.phase == Phase::param && row.sharded() && row.n == table.rows().front().n;
      });
  if (parts > 0 && context.run.ranks.size() > 1) {
    unknown.push_back(plural(parts, "parameter") +
                      ": recorded without saying that ranks hold the same (parts of sharded ones; "
                      "or watch() needs replicas=group), so not compared");
  }
  const auto vague = std::count_if(table.series().begin(), table.series().end(),
                                   [](const Series& s) { return s.phase == Phase::other_grad; });
  if (vague > 0) {
    unknown.push_back(plural(vague, "gradient") +
                      ": recorded without saying whether before or after the synchronisation, "
                      "so not compared");
  }
}

}  // namespace

std::vector<Cause> check_numbers(const Context& context, std::vector<std::string>& unknown,
                                 std::vector<std::string>& undecided) {
  const bool any = std::any_of(context.run.ranks.begin(), context.run.ranks.end(),
                               [](const trace::RankTrace& trace) { return !trace.states.empty(); });
  if (!any) return {};
  const SyncCalls calls(context);
  const std::optional<std::int64_t> joined = first_joined_step(context);
  if (joined) {
    unknown.push_back(
        fmt::format("values from step {} on: a rank without batches stood in for itself (Join), so "
                    "that later steps of equal numbers are different ones",
                    *joined));
  }
  // Ranks outside the group that averages a tensor hold no replica of it, so they do not count.
  const ValueTable table(
      context.run,
      [&](std::uint32_t rank, trace::StringId name) {
        const SyncCall* call = calls.of(name);
        return call == nullptr || std::binary_search(call->ranks.begin(), call->ranks.end(), rank);
      },
      are_undeclared_replicas(context.run),
      joined.value_or(std::numeric_limits<std::int64_t>::max()));
  const Reductions reductions = check_reductions(context, table, calls);

  const bool averaged = are_averaged(context.run, table);
  const bool reduces = optimizer_reduces(context, table);
  std::vector<Link> links;
  for (ReductionCause& r : explain_reductions(context, reductions)) {
    const bool diverge = r.makes_ranks_differ();
    links.push_back({r.n, Phase::local_grad, diverge, false, std::move(r.cause)});
  }
  for (const UpdateFault& fault : find_stale_gradients(context.run, table)) {
    links.push_back({fault.n, Phase::leftover, false, false, explain_stale(context, fault)});
  }
  for (const UpdateFault& fault : find_decayed(context.run, table)) {
    links.push_back({fault.n, Phase::param, false, false, explain_decayed(context, fault)});
  }
  for (const Phase phase : {Phase::synced_grad, Phase::optim, Phase::param, Phase::buffer}) {
    add_divergences(context, table, calls, phase, averaged, reduces, links, undecided);
  }
  for (const UpdateFault& fault : find_still(context.run, table)) {
    links.push_back({fault.n, Phase::param, true, true, explain_still(context, fault)});
  }
  if (const auto found = find_unreduced(context.run, table))
    links.push_back({found->n, Phase::leftover, false, false, explain_unreduced(context, *found)});
  if (const auto random = find_equal_random(context.run, table)) {
    links.push_back(
        {random->n, Phase::leftover, false, false, explain_equal_random(context, *random)});
  }
  if (const auto found = find_non_finite(table))
    links.push_back({found->n, Phase::param, false, true, explain_non_finite(context, *found)});
  // A job that still runs may update later, and train again.
  if (const auto n = find_evaluation_mode(context.run, table); n && !context.live)
    links.push_back({*n, Phase::leftover, false, false, explain_evaluation_mode(context, *n)});
  const auto unchanged = context.live ? std::nullopt : find_unchanged(context.run, table);
  if (unchanged) {
    links.push_back(
        {unchanged->fault.n, Phase::param, false, false, explain_unchanged(context, *unchanged)});
  }
  list_uncompared(context, table, reductions, unknown);
  return chained(std::move(links));
}

}  // namespace lockstep::verify
