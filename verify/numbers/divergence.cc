#include "verify/numbers/divergence.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "verify/numbers/value_classes.h"

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

// Counts how many values differ in the last step in which one of those that differed first can be
// compared: an optimizer's tensors are not recorded in all steps, and ranks may end in different
// ones.
void count_at_the_end(const trace::Run& run, const ValueTable& table, Divergence& out) {
  for (const ValueRow* first : out.rows) {
    const Series& series = *table.series(out.phase, first->name);
    for (auto row = series.rows.rbegin(); row != series.rows.rend(); ++row) {
      if ((*row)->n <= out.last_n) break;
      if (agree(run, **row)) out.last_n = (*row)->n;
    }
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

}  // namespace lockstep::verify
