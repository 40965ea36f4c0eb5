#include "verify/drift.h"

#include <cmath>
#include <map>
#include <string>

#include "verify/whole_value.h"

namespace lockstep {

namespace {

// By name, then by step.
using ValuesByName = std::map<std::string, std::map<std::int64_t, WholeValue>>;

ValuesByName course_of(const Run& run, Phase phase,
                       const std::function<bool(std::string_view)>& counts) {
  const ValueTable table(run);
  ValuesByName out;
  for (const ValueRow& row : table.rows()) {
    const std::string& name = run.tables.str(row.name);
    if (row.phase == phase && counts(name)) out[name].emplace(row.n, whole_value(run, row));
  }
  return out;
}

double square(double x) { return x * x; }

}  // namespace

Drift drift_between(const Run& a, const Run& b, Phase phase,
                    const std::function<bool(std::string_view)>& counts) {
  const ValuesByName of_a = course_of(a, phase, counts);
  const ValuesByName of_b = course_of(b, phase, counts);
  Drift out;
  for (const auto& [name, steps_b] : of_b) {
    const auto steps_a = of_a.find(name);
    if (steps_a == of_a.end()) continue;
    // The last step of both.
    for (auto last = steps_b.rbegin(); last != steps_b.rend(); ++last) {
      const auto same = steps_a->second.find(last->first);
      if (same == steps_a->second.end()) continue;
      const auto apart = distance_between(same->second, last->second);
      if (!apart) break;
      ++out.tensors;
      out.apart += square(*apart);
      out.size += square(last->second.size());
      out.travelled += square(distance_between(last->second, steps_b.begin()->second).value_or(0));
      break;
    }
  }
  for (double* squares : {&out.apart, &out.size, &out.travelled}) *squares = std::sqrt(*squares);
  return out;
}

}  // namespace lockstep
