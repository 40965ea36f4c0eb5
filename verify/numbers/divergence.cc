#include "verify/numbers/divergence.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include <fmt/core.h>

#include "base/text.h"
#include "verify/context.h"
#include "verify/numbers/rounding.h"
#include "verify/numbers/sync_calls.h"

namespace lockstep::verify {

namespace {

using Pattern = Divergence::Pattern;

// Whether the ranks agree on a row; nothing where fewer than two recorded it.
std::optional<bool> agree(const trace::Run& run, const ValueRow& row) {
  if (row.readings.size() < 2 || row.sharded()) return std::nullopt;
  const ValueClasses classes = classes_of(run, row);
  if (classes.classes.empty()) return std::nullopt;
  return !classes.differ();
}

// The pattern of one value, and where it begins.
struct Onset {
  Pattern pattern{};
  const ValueRow* row = nullptr;  // the first that differs
};

// The pattern of one value over the steps; nothing where the ranks always agree. With "=" for steps
// in which they agree and "!" for others:
//
//   ==!!!  lasting    !!!!  lasting    ==!==  passing    !!===  initial    =!=!=  recurring
std::optional<Onset> onset_of(const trace::Run& run, const Series& series) {
  const ValueRow* first_differing = nullptr;
  const ValueRow* first_apart = nullptr;  // the first to differ after one that agreed
  std::size_t looks = 0;
  std::size_t reunions = 0;  // how often ranks agreed again after they had differed
  bool agreed = false;
  bool agreed_before = false;
  for (const ValueRow* row : series.rows) {
    const std::optional<bool> same = agree(run, *row);
    if (!same) continue;
    ++looks;
    if (*same) {
      if (first_apart != nullptr && !agreed) ++reunions;
      agreed_before = true;
    } else {
      if (first_differing == nullptr) first_differing = row;
      if (agreed_before && first_apart == nullptr) first_apart = row;
    }
    agreed = *same;
  }
  if (first_differing == nullptr) return std::nullopt;
  if (reunions > 1) return Onset{Pattern::recurring, first_apart};
  if (first_apart != nullptr)
    return Onset{agreed ? Pattern::passing : Pattern::lasting, first_apart};
  if (agreed) return Onset{Pattern::initial, first_differing};
  if (looks == 1 && first_differing->n <= 0) return Onset{Pattern::one_look, first_differing};
  return Onset{Pattern::lasting, first_differing};
}

// Counts how many values differ in the last step that has values of this phase.
void count_at_the_end(const trace::Run& run, const ValueTable& table, Divergence& out) {
  for (const Series& series : table.series()) {
    if (series.phase == out.phase) out.last_n = std::max(out.last_n, series.rows.back()->n);
  }
  for (const ValueRow& row : table.rows(out.phase, out.last_n)) {
    if (const std::optional<bool> same = agree(run, row)) {
      ++out.last_compared;
      out.last_differ += *same ? 0U : 1U;
    }
  }
}

// The ranks in the minority of any row; none where some row has no clear majority.
std::vector<std::uint32_t> culprits_of(const trace::Run& run,
                                       const std::vector<const ValueRow*>& rows) {
  std::vector<std::uint32_t> out;
  for (const ValueRow* row : rows) {
    const std::vector<std::uint32_t> minority = classes_of(run, *row).minority();
    if (minority.empty()) return {};
    out.insert(out.end(), minority.begin(), minority.end());
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace

std::vector<Divergence> find_divergences(const trace::Run& run, const ValueTable& table,
                                         Phase phase) {
  std::array<std::vector<const ValueRow*>, 5> by_pattern;
  for (const Series& series : table.series()) {
    if (series.phase != phase) continue;
    if (const std::optional<Onset> onset = onset_of(run, series)) {
      by_pattern[static_cast<std::size_t>(onset->pattern)].push_back(onset->row);
    }
  }
  std::vector<Divergence> out;
  for (std::size_t c = 0; c < by_pattern.size(); ++c) {
    std::vector<const ValueRow*>& rows = by_pattern[c];
    if (rows.empty()) continue;
    Divergence d;
    d.pattern = static_cast<Pattern>(c);
    d.phase = phase;
    d.n = (*std::min_element(rows.begin(), rows.end(), [](const auto* a, const auto* b) {
            return a->n < b->n;
          }))->n;
    // Values that begin to differ later follow from the first ones.
    std::erase_if(rows, [&](const ValueRow* row) { return row->n != d.n; });
    std::sort(rows.begin(), rows.end(),
              [](const auto* a, const auto* b) { return a->name_index < b->name_index; });
    d.rows = std::move(rows);
    for (const ValueRow& row : table.rows(phase, d.n)) d.compared += agree(run, row) ? 1U : 0U;
    d.culprits = culprits_of(run, d.rows);
    count_at_the_end(run, table, d);
    out.push_back(std::move(d));
  }
  return out;
}

std::string describe_sides(const trace::Run& run, const ValueRow& row) {
  constexpr std::size_t kSidesShown = 4;
  std::vector<std::string> sides;
  const ValueClasses classes = classes_of(run, row);
  for (const std::vector<std::uint32_t>& ranks : classes.classes) {
    std::vector<trace::Rank> named;
    named.reserve(ranks.size());
    for (const std::uint32_t r : ranks) named.push_back(run.ranks[r].rank);
    sides.push_back(describe_ranks(named));
  }
  // The minority first, since it is what the reader looks for: "rank 3 against ranks 0-2".
  if (!classes.minority().empty()) std::reverse(sides.begin(), sides.end());
  std::string out;
  for (std::size_t s = 0; s < std::min(sides.size(), kSidesShown); ++s) {
    out += (s == 0 ? "" : " against ") + sides[s];
  }
  if (sides.size() > kSidesShown)
    out += fmt::format(" and {}", plural(sides.size() - kSidesShown, "more side"));
  return out;
}

namespace {

using Classes = std::vector<std::vector<std::uint32_t>>;

Classes by_hash(const ValueRow& row) {
  std::map<std::uint64_t, std::vector<std::uint32_t>> by_value;
  for (const Reading& r : row.readings) {
    if (r.mark->hash) by_value[*r.mark->hash].push_back(r.rank);
  }
  Classes out;
  for (auto& [hash, ranks] : by_value) out.push_back(std::move(ranks));
  return out;
}

// Sorted norms, cut where two neighbours are further apart than rounding explains.
Classes by_norm(const trace::Run& run, const ValueRow& row) {
  std::vector<std::pair<double, std::uint32_t>> norms;
  std::int64_t elements = 0;
  for (const Reading& r : row.readings) {
    if (!r.mark->norm) continue;
    norms.emplace_back(*r.mark->norm, r.rank);
    elements = std::max(elements, elements_of(run, *r.mark));
  }
  std::sort(norms.begin(), norms.end());
  const double tolerance = norm_tolerance(elements);
  Classes out;
  double last = 0;
  for (const auto& [norm, rank] : norms) {
    if (out.empty() || std::abs(norm - last) > tolerance * std::abs(norm)) out.emplace_back();
    out.back().push_back(rank);
    last = norm;
  }
  for (auto& ranks : out) std::sort(ranks.begin(), ranks.end());
  return out;
}

}  // namespace

std::vector<std::uint32_t> ValueClasses::minority() const {
  std::vector<std::uint32_t> others;
  for (std::size_t c = 1; c < classes.size(); ++c) {
    others.insert(others.end(), classes[c].begin(), classes[c].end());
  }
  if (classes.empty() || classes.front().size() <= others.size()) return {};
  std::sort(others.begin(), others.end());
  return others;
}

ValueClasses classes_of(const trace::Run& run, const ValueRow& row) {
  // Hashes are exact, but one alone compares with nothing: then the norms decide.
  const auto hashes = std::count_if(row.readings.begin(), row.readings.end(),
                                    [](const Reading& r) { return r.mark->hash.has_value(); });
  ValueClasses out{hashes > 1 ? by_hash(row) : by_norm(run, row)};
  std::sort(out.classes.begin(), out.classes.end(), [](const auto& a, const auto& b) {
    return a.size() != b.size() ? a.size() > b.size() : a.front() < b.front();
  });
  return out;
}

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
    const bool still_apart = !still.empty();
    if (still_apart && out.culprits.empty()) out.culprits = still;
    out.why = fmt::format(
        "the synchronised gradients of that step are equal on all ranks, so that the update itself "
        "differed{}",
        still_apart ? fmt::format(": {} skipped it", context.describe_ranks(still)) : "");
    return out;
  }
  const ValueRow& row = *d.rows.front();
  const Ranks gap = ranks_without_sync(context.run, table, calls, row);
  if (gap.empty()) return out;
  out.rule = RuleId::unsynchronised_step;
  if (gap.size() < row.readings.size()) out.culprits = gap;
  out.why = fmt::format("no reduction of {}'s gradient was called on {} before the update",
                        printable(context.run.tables.str(row.name)), context.describe_ranks(gap));
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
  f.message = fmt::format("{}{}{} ({}); {}", plural_of(d.phase), describe_pattern(d),
                          describe_names(context, names),
                          describe_sides(context.run, *d.rows.front()), describe_spread(d));
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
