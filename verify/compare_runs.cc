#include "verify/compare_runs.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "verify/numbers/rounding.h"
#include "verify/whole_value.h"

namespace lockstep {

namespace {

using ValueKey = std::tuple<std::int64_t, Phase, std::string>;
using Values = std::map<ValueKey, WholeValue>;

Values values_of(const Run& run) {
  const ValueTable table(run);
  Values out;
  for (const ValueRow& row : table.rows()) {
    if (row.phase != Phase::synced_grad && row.phase != Phase::param) continue;
    out.emplace(ValueKey{row.n, row.phase, run.tables.str(row.name)}, whole_value(run, row));
  }
  return out;
}

// Nothing where the two have nothing in common that could be compared.
std::optional<TensorDifference> difference(const ValueKey& key, const WholeValue& a,
                                           const WholeValue& b, std::optional<double> tolerance) {
  TensorDifference out;
  std::tie(out.n, out.phase, out.name) = key;
  const double u = std::max(unit_roundoff(a.dtype).value_or(kFloat32Roundoff),
                            unit_roundoff(b.dtype).value_or(kFloat32Roundoff));
  out.tolerance = tolerance.value_or(std::sqrt(u));
  const double size_a = a.size();
  const double size_b = b.size();
  if (size_b > 0) out.ratio = size_a / size_b;
  if (a.hash && a.hash == b.hash) {
    out.cosine = 1;
    return out;
  }
  const std::optional<double> distance = distance_between(a, b);
  if (!distance) return std::nullopt;
  out.lower_bound = !sketches_compare(a, b);
  if (!out.lower_bound && size_a > 0 && size_b > 0) {
    const double cosine =
        (size_a * size_a + size_b * size_b - *distance * *distance) / (2 * size_a * size_b);
    out.cosine = std::clamp(cosine, -1.0, 1.0);
  }
  const double scale = std::max(size_a, size_b);
  out.error = scale > 0 ? *distance / (size_b > 0 ? size_b : scale) : 0;
  return out;
}

std::map<std::int64_t, double> losses_of(const Run& run) {
  std::map<std::int64_t, std::pair<double, int>> sums;
  for (const RankTrace& trace : run.ranks) {
    for (const StepMark& step : trace.steps) {
      if (!step.loss) continue;
      sums[step.n].first += *step.loss;
      ++sums[step.n].second;
    }
  }
  std::map<std::int64_t, double> out;
  for (const auto& [n, sum] : sums) out[n] = sum.first / sum.second;
  return out;
}

void keep_worst(std::optional<TensorDifference>& worst, const TensorDifference& d) {
  if (!worst || d.error / d.tolerance > worst->error / worst->tolerance) worst = d;
}

// Sets `parted` and `drifted`.
void find_parting(std::vector<std::pair<std::uint32_t, TensorDifference>> found, Comparison& out) {
  constexpr double kAmplified = 100;
  std::sort(found.begin(), found.end(), [](const auto& x, const auto& y) {
    return std::tie(x.second.n, x.second.phase, x.first) <
           std::tie(y.second.n, y.second.phase, y.first);
  });
  double apart = 0;       // the parameters, before the step
  double apart_next = 0;  // … and after it
  std::int64_t step = INT64_MIN;
  std::set<std::string> with_gradient;  // in this step
  for (const auto& [place, d] : found) {
    if (d.n != step) {
      apart = apart_next;
      apart_next = 0;
      with_gradient.clear();
      step = d.n;
    }
    if (d.phase == Phase::synced_grad) with_gradient.insert(d.name);
    if (d.phase == Phase::param) apart_next = std::max(apart_next, d.error);
    if (d.error <= d.tolerance) continue;
    const bool explained = d.error <= kAmplified * apart ||
                           (d.phase == Phase::param && with_gradient.contains(d.name));
    if (explained) {
      out.drifted = true;
    } else if (!out.parted) {
      out.parted = d;
    }
  }
}

}  // namespace

Comparison compare_runs(const Run& a, const Run& b, std::optional<double> tolerance) {
  const Values of_a = values_of(a);
  const Values of_b = values_of(b);
  Comparison out;
  std::map<std::int64_t, StepDifference> steps;
  std::set<std::string> alone;
  std::vector<std::pair<std::uint32_t, TensorDifference>> found;
  for (const auto& [key, value] : of_a) {
    const auto other = of_b.find(key);
    if (other == of_b.end()) {
      alone.insert(std::get<std::string>(key));
      continue;
    }
    const auto d = difference(key, value, other->second, tolerance);
    if (!d) continue;
    ++out.compared;
    StepDifference& step = steps[d->n];
    keep_worst(d->phase == Phase::param ? step.parameter : step.gradient, *d);
    found.emplace_back(value.place, *d);
  }
  for (const auto& [key, value] : of_b) {
    if (!of_a.contains(key)) alone.insert(std::get<std::string>(key));
  }
  out.only_in_one = alone.size();
  find_parting(std::move(found), out);

  const std::map<std::int64_t, double> loss_b = losses_of(b);
  for (const auto& [n, loss] : losses_of(a)) {
    const auto other = loss_b.find(n);
    if (other == loss_b.end()) continue;
    steps[n].loss_a = loss;
    steps[n].loss_b = other->second;
    const double apart = std::abs(loss - other->second);
    out.max_loss_difference = std::max(out.max_loss_difference.value_or(0), apart);
  }
  for (auto& [n, step] : steps) {
    step.n = n;
    out.steps.push_back(std::move(step));
  }
  return out;
}

}  // namespace lockstep
