#include "verify/numbers/settings.h"

#include <algorithm>

#include "verify/numbers/value_classes.h"

namespace lockstep::verify {

std::optional<EqualRandom> find_equal_random(const trace::Run& run, const ValueTable& table) {
  std::optional<EqualRandom> out;
  for (const ValueRow& row : table.rows()) {  // by step
    if (row.phase != Phase::optim || number_name(run.tables.str(row.name)) != kDifferentRandom)
      continue;
    if (out && row.n > out->n) break;
    for (const std::vector<std::uint32_t>& alike : classes_of(run, row).classes) {
      if (alike.size() < 2) continue;
      if (!out) out = EqualRandom{row.n, {}};
      out->ranks.insert(out->ranks.end(), alike.begin(), alike.end());
    }
  }
  if (out) std::sort(out->ranks.begin(), out->ranks.end());
  return out;
}

std::optional<std::int64_t> find_evaluation_mode(const trace::Run& run, const ValueTable& table) {
  for (const Series& series : table.series()) {
    if (series.phase != Phase::optim || number_name(run.tables.str(series.name)) != "training")
      continue;
    const auto evaluates = [](const ValueRow* row) {
      return std::all_of(row->readings.begin(), row->readings.end(),
                         [](const Reading& r) { return r.mark->norm && *r.mark->norm == 0; });
    };
    const auto last_trained = std::find_if_not(series.rows.rbegin(), series.rows.rend(), evaluates);
    if (last_trained == series.rows.rbegin() || last_trained == series.rows.rend()) continue;
    return (*last_trained.base())->n;
  }
  return std::nullopt;
}

}  // namespace lockstep::verify
