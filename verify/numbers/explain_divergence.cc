// Explains a divergence: the rule, the culprits and why they are known.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"
#include "verify/context.h"
#include "verify/numbers/divergence.h"
#include "verify/numbers/sync_calls.h"
#include "verify/numbers/value_classes.h"

namespace lockstep::verify {

namespace {

using Pattern = Divergence::Pattern;
using Ranks = std::vector<std::uint32_t>;

std::vector<trace::StringId> names_of(const Divergence& d) {
  std::vector<trace::StringId> out;
  for (const ValueRow* row : d.rows) out.push_back(row->name);
  return out;
}

std::string describe_reading(const trace::Run& run, const trace::StateMark& mark) {
  std::string out = printable(run.tables.str(mark.name));
  if (mark.hash) out += fmt::format(" hash {}", hex(*mark.hash));
  if (mark.norm) out += fmt::format(" norm {:.9g}", *mark.norm);
  return out;
}

// The first value that differs, as one rank of each side has it.
std::vector<Evidence> evidence(const Context& context, const Divergence& d) {
  constexpr std::size_t kSidesShown = 4;
  std::vector<Evidence> out;
  const ValueRow& row = *d.rows.front();
  for (const Ranks& ranks : classes_of(context.run, row).classes) {
    if (out.size() == kSidesShown) break;
    Evidence e;
    e.rank = context.run.ranks[ranks.front()].rank;
    e.text = describe_reading(context.run, *row.of(ranks.front()));
    out.push_back(std::move(e));
  }
  return out;
}

// Ranks whose differing parameters all kept their value in a step in which others' changed: the
// update was skipped there (a gradient scaler that found an overflow, say).
Ranks standing_still(const ValueTable& table, const Divergence& d) {
  Ranks out;
  std::map<std::uint32_t, bool> still;
  for (const ValueRow* row : d.rows) {
    const Series* series = table.series(row->phase, row->name);
    const ValueRow* before = row_before(*series, row->n - 1);
    if (before == nullptr) return {};
    for (const Reading& r : row->readings) {
      const trace::StateMark* was = before->of(r.rank);
      const bool same = was != nullptr && was->hash && was->hash == r.mark->hash;
      const auto [known, fresh] = still.try_emplace(r.rank, same);
      if (!fresh) known->second = known->second && same;
    }
  }
  for (const auto& [rank, same] : still) {
    if (same) out.push_back(rank);
  }
  if (out.size() == still.size()) out.clear();
  return out;
}

// Whether the synchronised gradients of the differing parameters were recorded in that step and
// equal on all ranks. Then the update itself must have differed.
bool gradients_agreed(const Context& context, const ValueTable& table, const Divergence& d) {
  return std::all_of(d.rows.begin(), d.rows.end(), [&](const ValueRow* row) {
    const ValueRow* gradient = table.row(Phase::synced_grad, row->name, d.n);
    return gradient != nullptr && !gradient->sharded() &&
           gradient->readings.size() == row->readings.size() &&
           !classes_of(context.run, *gradient).differ();
  });
}

// "3 parameters of 40 in step 5, 40 of 40 in step 9".
std::string describe_spread(const Divergence& d) {
  std::string out =
      fmt::format("{} of {} in step {}", phase_name(d.phase, d.rows.size()), d.compared, d.n);
  if (d.last_n != d.n) {
    out += fmt::format(", {} of {} in step {}", d.last_differ, d.last_compared, d.last_n);
  }
  return out;
}

std::string plural_of(Phase phase) {
  std::string words = phase_name(phase, 2);
  return words.substr(words.find(' ') + 1);
}

std::string describe_pattern(const Divergence& d) {
  switch (d.pattern) {
    case Pattern::lasting:
      return fmt::format(" differ between ranks from step {} on: ", d.n);
    case Pattern::passing:
      return fmt::format(" differ between ranks in step {} and agree again later: ", d.n);
    case Pattern::initial:
      return fmt::format(" differ between ranks at first (step {}) and agree afterwards: ", d.n);
    case Pattern::recurring:
      return fmt::format(
          " differ and agree again, as averaging every few steps does (first in step {}): ", d.n);
    case Pattern::one_look:
      return fmt::format(" differ between ranks in step {}, the only one that was recorded: ", d.n);
  }
  return {};
}

// Whether the difference is legitimate: parameters and buffers may differ before or between
// synchronisations. Synchronised gradients and optimizer values may not.
bool harmless(const Divergence& d) {
  const bool may_differ = d.phase == Phase::param || d.phase == Phase::buffer;
  return may_differ && (d.pattern == Pattern::initial || d.pattern == Pattern::recurring ||
                        d.pattern == Pattern::one_look);
}

// Whether they differ before the first update: the optimizer gets its first gradients later.
bool before_first_update(const ValueTable& table, const Divergence& d) {
  bool later = false;
  for (const Series& series : table.series()) {
    if (series.phase != Phase::synced_grad) continue;
    if (series.rows.front()->n <= d.n) return false;
    later = true;
  }
  return later;
}

// Where two ranks hold the same gradients, each under the other's names: "0.weight on rank 0 is
// 2.weight on rank 1". Such ranks reduced them in different orders. Nothing where some gradient
// that differs is on another rank under no name at all, so that something else happened to it.
// O(readings log readings).
std::optional<std::string> describe_exchange(const Context& context, const Divergence& d) {
  std::map<std::uint32_t, std::map<std::uint64_t, const trace::StateMark*>> held;  // by rank, hash
  for (const ValueRow* row : d.rows) {
    for (const Reading& r : row->readings) {
      if (!r.mark->hash || r.mark->norm == 0.0) return std::nullopt;
      held[r.rank].try_emplace(*r.mark->hash, r.mark);
    }
  }
  const auto& [reference, gradients] = *held.begin();
  // With fewer hashes than gradients, some are equal on a rank: a hash then names none.
  if (gradients.size() != d.rows.size()) return std::nullopt;
  std::string out;
  for (const auto& [rank, others] : held) {
    if (others.size() != gradients.size()) return std::nullopt;
    for (const auto& [hash, mark] : gradients) {
      const auto same = others.find(hash);
      if (same == others.end()) return std::nullopt;
      if (!out.empty() || same->second->name == mark->name) continue;
      out = fmt::format(
          "the gradient of {} on {} is that of {} on {}, to the last bit",
          printable(context.run.tables.str(mark->name)), context.describe_ranks({reference}),
          printable(context.run.tables.str(same->second->name)), context.describe_ranks({rank}));
    }
  }
  return out;
}

// Where, in the step of a divergence, one rank has gradients of parameters that another one holds
// and has none of: "rank 0 has gradients of 1.weight and 1.bias in that step, rank 1 has none of
// them". Such ranks ran different parts of the model. Names the first two ranks that show it.
// O(rows of the step · ranks).
std::optional<std::string> describe_different_parts(const Context& context, const ValueTable& table,
                                                    const Divergence& d) {
  std::set<std::uint32_t> ranks;  // that got any gradient in this step
  for (const ValueRow& row : table.rows(Phase::synced_grad, d.n)) {
    for (const Reading& r : row.readings) ranks.insert(r.rank);
  }
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<trace::StringId>> only_first;
  for (const ValueRow& row : table.rows(Phase::synced_grad, d.n)) {
    const Series* parameter = table.series(Phase::param, row.name);
    if (row.readings.size() == ranks.size() || parameter == nullptr) continue;
    const std::uint32_t has = row.readings.front().rank;
    const auto lacks = std::find_if(ranks.begin(), ranks.end(), [&](std::uint32_t rank) {
      return row.of(rank) == nullptr && parameter->rows.front()->of(rank) != nullptr;
    });
    if (lacks != ranks.end()) only_first[{has, *lacks}].push_back(row.name);
  }
  if (only_first.empty()) return std::nullopt;
  const auto& [pair, names] = *only_first.begin();
  return fmt::format("{} has gradients of {} in that step, and {} has none",
                     context.describe_ranks({pair.first}), describe_names(context, names),
                     context.describe_ranks({pair.second}));
}

// The ranks that already held the first of these optimizer values before the step in which it
// differs, where others did not: a recorder looks before the first step, and finds what was loaded.
Ranks ranks_that_loaded(const ValueTable& table, const Divergence& d) {
  const ValueRow& row = *d.rows.front();
  const ValueRow* before = row_before(*table.series(row.phase, row.name), row.n - 1);
  Ranks out;
  if (before == nullptr || before->n > 0) return out;
  for (const Reading& r : row.readings)
    if (before->of(r.rank) != nullptr) out.push_back(r.rank);
  if (out.size() == row.readings.size()) out.clear();
  return out;
}

std::string no_reduction(const Context& context, const ValueRow& row, const Ranks& ranks) {
  return fmt::format("no reduction of {}'s gradient was called on {} before the update",
                     printable(context.run.tables.str(row.name)), context.describe_ranks(ranks));
}

struct Judgement {
  RuleId rule{};
  Ranks culprits;
  std::string why;
};

// Chooses the rule for parameters, by the strongest evidence first: equal gradients, then calls
// that are missing.
Judgement judge_parameters(const Context& context, const ValueTable& table, const SyncCalls& calls,
                           const Divergence& d) {
  Judgement out{RuleId::param_divergence, d.culprits, ""};
  if (harmless(d)) return out;
  if (before_first_update(table, d)) {
    out.why = "they differ before the first update, and nothing made them equal";
    return out;
  }
  const Ranks still = standing_still(table, d);
  if (!still.empty()) {
    out.why = fmt::format("{} did not change them in that step: the update was skipped there",
                          context.describe_ranks(still));
  }
  if (gradients_agreed(context, table, d)) {
    out.rule = RuleId::rank_local_decision;
    if (out.culprits.empty()) out.culprits = still;
    out.why = fmt::format(
        "the synchronised gradients of that step are equal on all ranks, so that the update itself "
        "differed{}",
        !still.empty() ? fmt::format(": {} skipped it", context.describe_ranks(still)) : "");
    return out;
  }
  const ValueRow& row = *d.rows.front();
  const Ranks gap = ranks_without_sync(context.run, table, calls, row);
  if (gap.empty()) return out;
  out.rule = RuleId::unsynchronised_step;
  if (gap.size() < row.readings.size()) out.culprits = gap;
  out.why = no_reduction(context, row, gap);
  return out;
}

// Whether the buffer is broadcast in several steps, as DDP does with batch norm's statistics: then
// differences in between have no effect.
bool broadcast_again_and_again(const Context& context, const Divergence& d) {
  const trace::Tables& tables = context.run.tables;
  std::size_t seen = 0;
  for (const trace::Call& call : context.run.ranks[d.rows.front()->readings.front().rank].calls) {
    if (tables.op(call) != trace::Op::broadcast) continue;
    const std::vector<trace::StringId>& names = tables.name_lists[call.what];
    const bool carries = call.what.value == 0 ||
                         std::find(names.begin(), names.end(), d.rows.front()->name) != names.end();
    seen += carries ? 1U : 0U;
  }
  return seen > 1;
}

Judgement judge_divergence(const Context& context, const ValueTable& table, const SyncCalls& calls,
                           const Divergence& d) {
  switch (d.phase) {
    case Phase::param:
      return judge_parameters(context, table, calls, d);
    case Phase::optim: {
      const Ranks loaded = ranks_that_loaded(table, d);
      if (loaded.empty()) return {RuleId::rank_local_decision, d.culprits, ""};
      return {RuleId::rank_local_decision, d.culprits,
              fmt::format("only {} held them before the first step, as after loading a checkpoint",
                          context.describe_ranks(loaded))};
    }
    case Phase::buffer:
      return {RuleId::buffer_divergence, d.culprits, ""};
    default:
      return {RuleId::grad_divergence, d.culprits,
              "after the synchronisation every rank must hold the same gradient"};
  }
}

// Where a rank's gradients are those of another one times a number, the same in each of several
// tensors: "those of rank 1 are 0.5 times those of rank 0 in every tensor". Both got one sum then.
// Nothing where that is not so. O(readings log ranks).
std::optional<std::string> describe_factor(const Context& context, const Divergence& d) {
  constexpr std::size_t kMin = 2;     // in one tensor any two gradients may have such a factor
  constexpr double kRounding = 1e-5;  // of a division in float32, and of the norm
  const auto is_culprit = [&](std::uint32_t rank) {
    return std::find(d.culprits.begin(), d.culprits.end(), rank) != d.culprits.end();
  };
  const std::vector<Reading>& first = d.rows.front()->readings;
  const auto reference = std::find_if(first.begin(), first.end(),
                                      [&](const Reading& r) { return !is_culprit(r.rank); });
  if (d.rows.size() < kMin || reference == first.end()) return std::nullopt;
  std::map<std::uint32_t, double> factors;  // by rank
  for (const ValueRow* row : d.rows) {
    const trace::StateMark* const mark = row->of(reference->rank);
    if (mark == nullptr || !mark->norm || *mark->norm == 0) return std::nullopt;
    for (const Reading& r : row->readings) {
      if (!r.mark->norm || *r.mark->norm == 0) return std::nullopt;
      const double factor = *r.mark->norm / *mark->norm;
      const double known = factors.try_emplace(r.rank, factor).first->second;
      if (!(std::abs(factor / known - 1) <= kRounding)) return std::nullopt;
    }
  }
  const auto other = std::find_if(factors.begin(), factors.end(), [](const auto& rank) {
    return std::abs(rank.second - 1) > kRounding;
  });
  if (other == factors.end()) return std::nullopt;
  return fmt::format("those of {} are {:.4g} times those of {} in every tensor",
                     context.describe_ranks({other->first}), other->second,
                     context.describe_ranks({reference->rank}));
}

// Reasons that the calls, or the gradients themselves, show.
void explain_gradients(const Context& context, const ValueTable& table, const SyncCalls& calls,
                       const Divergence& d, Finding& f) {
  const Ranks gap = ranks_without_sync(context.run, table, calls, *d.rows.front());
  if (!gap.empty()) {
    f.why = no_reduction(context, *d.rows.front(), gap);
    f.fix =
        "reduce gradients before optimizer.step(); under DDP, call model(x) instead of "
        "model.module(x), and leave no_sync() before a step's last backward";
  } else if (const auto call = unwaited_reduction(context.run, table, *d.rows.front())) {
    f.why = fmt::format("{} did not wait for its asynchronous {} ({}) before the update",
                        context.describe_ranks({call->rank}), context.describe_call(*call),
                        context.describe_location(*call, context.call(*call).seq));
    f.fix = "call wait() on the handle of every asynchronous collective before its result is used";
  } else if (const auto exchange = describe_exchange(context, d)) {
    f.why = *exchange + ": the ranks reduced them in different orders";
    f.fix =
        "reduce gradients in one order on all ranks, that of model.parameters(), and not in that "
        "of a set or of backward";
  } else if (const auto factor = describe_factor(context, d)) {
    f.why = *factor + ": they were divided or scaled by different numbers";
    f.fix =
        "divide by one number on all ranks: the size of the group, or an all-reduced number of "
        "samples; a scale of the loss must be equal, too";
  } else if (const auto parts = describe_different_parts(context, table, d)) {
    f.why = *parts + ": the ranks ran different parts of the model";
    f.fix =
        "let all ranks run the same parts of the model: decide from what all of them know, such as "
        "an all-reduced number or a generator with one seed";
  }
}

}  // namespace

Cause explain_divergence(const Context& context, const ValueTable& table, const SyncCalls& calls,
                         const Divergence& d) {
  Judgement judgement = judge_divergence(context, table, calls, d);
  const std::vector<trace::StringId> names = names_of(d);
  Cause out = value_cause(context, judgement.rule, d.n, names, judgement.culprits);
  Finding& f = out.finding;
  f.certainty = Certainty::proven;
  f.message = fmt::format("{}{}{} ({}); {}", plural_of(d.phase), describe_pattern(d),
                          describe_names(context, names),
                          describe_sides(context.run, *d.rows.front()), describe_spread(d));
  f.why = std::move(judgement.why);
  f.evidence = evidence(context, d);
  if (d.phase == Phase::optim && !f.why.empty())
    f.fix = "load the optimizer's state on every rank, from one checkpoint";
  if (d.phase == Phase::param && !harmless(d) && before_first_update(table, d))
    f.fix =
        "let all ranks begin alike: load one checkpoint on all of them, or broadcast the "
        "parameters after it is loaded";
  if (d.phase == Phase::synced_grad) explain_gradients(context, table, calls, d, f);
  const bool kept_by_broadcast = d.phase == Phase::buffer && broadcast_again_and_again(context, d);
  if (kept_by_broadcast) f.why = "broadcasts overwrite them again and again";
  if (kept_by_broadcast || harmless(d)) {
    f.severity = Severity::note;
    f.certainty = Certainty::observed;
  }
  return out;
}

}  // namespace lockstep::verify
