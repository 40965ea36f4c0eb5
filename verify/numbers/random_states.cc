#include "verify/numbers/random_states.h"

#include <algorithm>

#include "verify/numbers/divergence.h"

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

}  // namespace lockstep::verify
