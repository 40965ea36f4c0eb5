#include "verify/numbers/explain_divergence.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>

#include "base/text.h"
#include "verify/context.h"
#include "verify/numbers/sync_calls.h"

namespace lockstep::verify {

namespace {

using Course = Divergence::Course;
using Ranks = std::vector<std::uint32_t>;

std::vector<trace::StringId> names_of(const Divergence& d) {
  std::vector<trace::StringId> out;
  for (const ValueRow* row : d.rows) out.push_back(row->name);
  return out;
}

std::string reading_words(const trace::Run& run, const trace::StateMark& mark) {
  std::string out = printable(run.tables.str(mark.name));
  if (mark.hash) out += " hash " + hex(*mark.hash);
  if (mark.norm) {
    char number[40];
    std::snprintf(number, sizeof number, " norm %.9g", *mark.norm);
    out += number;
  }
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
    e.text = reading_words(context.run, *row.of(ranks.front()));
    out.push_back(std::move(e));
  }
  return out;
}

// Ranks whose parameters stayed as they were in a step in which others' changed.
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

// Whether the synchronised gradients of the parameters that differ were recorded in that step, and
// equal on all ranks.
bool gradients_agreed(const Context& context, const ValueTable& table, const Divergence& d) {
  return std::all_of(d.rows.begin(), d.rows.end(), [&](const ValueRow* row) {
    const ValueRow* gradient = table.row(Phase::synced_grad, row->name, d.n);
    return gradient != nullptr && !gradient->sharded() &&
           gradient->readings.size() == row->readings.size() &&
           !classes_of(context.run, *gradient).differ();
  });
}

std::string spread_words(const Divergence& d) {
  std::string out = phase_word(d.phase, d.rows.size()) + " of " + std::to_string(d.compared) +
                    " in step " + std::to_string(d.n);
  if (d.last_n != d.n) {
    out += ", " + std::to_string(d.last_differ) + " of " + std::to_string(d.last_compared) +
           " in step " + std::to_string(d.last_n);
  }
  return out;
}

std::string plural_of(Phase phase) {
  std::string words = phase_word(phase, 2);
  return words.substr(words.find(' ') + 1);
}

std::string course_words(const Divergence& d) {
  switch (d.course) {
    case Course::lasting:
      return " differ between ranks from step " + std::to_string(d.n) + " on: ";
    case Course::passing:
      return " differ between ranks in step " + std::to_string(d.n) + " and agree again later: ";
    case Course::initial:
      return " differ between ranks at first (step " + std::to_string(d.n) +
             ") and agree afterwards: ";
    case Course::recurring:
      return " part and agree again, as averaging every few steps does (first in step " +
             std::to_string(d.n) + "): ";
    case Course::one_look:
      return " differ between ranks in step " + std::to_string(d.n) +
             ", the only one that was recorded: ";
  }
  return {};
}

// Parameters and buffers may differ before they are first synchronised, or between the times that
// they are. A gradient after its synchronisation and a number that all must agree on may not.
bool harmless(const Divergence& d) {
  const bool may_differ = d.phase == Phase::param || d.phase == Phase::buffer;
  return may_differ && (d.course == Course::initial || d.course == Course::recurring ||
                        d.course == Course::one_look);
}

struct Judgement {
  RuleId rule{};
  Ranks culprits;
  std::string why;
};

Judgement judge_parameters(const Context& context, const ValueTable& table, const SyncCalls& calls,
                           const Divergence& d) {
  Judgement out{RuleId::param_divergence, d.culprits, ""};
  if (harmless(d)) return out;
  const Ranks still = standing_still(table, d);
  if (!still.empty()) {
    out.why = context.rank_words(still) + " did not change them in that step: the update was " +
              "skipped there";
  }
  if (gradients_agreed(context, table, d)) {
    out.rule = RuleId::rank_local_decision;
    const bool told = !still.empty();
    if (told && out.culprits.empty()) out.culprits = still;
    out.why =
        "the synchronised gradients of that step are equal on all ranks, so that the update "
        "itself differed" +
        (told ? ": " + context.rank_words(still) + " skipped it" : std::string());
    return out;
  }
  const ValueRow& row = *d.rows.front();
  const Ranks gap = ranks_without_sync(context.run, table, calls, row);
  if (gap.empty()) return out;
  out.rule = RuleId::unsynchronised_step;
  if (gap.size() < row.readings.size()) out.culprits = gap;
  out.why = "no reduction of " + printable(context.run.tables.str(row.name)) +
            "'s gradient was called on " + context.rank_words(gap) + " before the update";
  return out;
}

bool broadcast_again_and_again(const Context& context, const Divergence& d) {
  const trace::Tables& tables = context.run.tables;
  std::size_t seen = 0;
  for (const trace::Call& call : context.run.ranks[d.rows.front()->readings.front().rank].calls) {
    if (tables.signatures[call.signature].op != trace::Op::broadcast) continue;
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
    case Phase::optim:
      return {RuleId::rank_local_decision, d.culprits, ""};
    case Phase::buffer:
      return {RuleId::buffer_divergence, d.culprits, ""};
    default:
      return {RuleId::grad_divergence, d.culprits,
              "after the synchronisation every rank must hold the same gradient"};
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
  f.message = plural_of(d.phase) + course_words(d) + names_words(context, names) + " (" +
              sides_words(context.run, *d.rows.front()) + "); " + spread_words(d);
  f.why = std::move(judgement.why);
  f.evidence = evidence(context, d);
  const bool kept_by_broadcast = d.phase == Phase::buffer && broadcast_again_and_again(context, d);
  if (kept_by_broadcast) f.why = "broadcasts overwrite them again and again";
  if (kept_by_broadcast || harmless(d)) {
    f.severity = Severity::note;
    f.certainty = Certainty::observed;
  }
  return out;
}

}  // namespace lockstep::verify
