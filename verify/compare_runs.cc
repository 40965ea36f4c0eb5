#include "verify/compare_runs.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <variant>

#include "verify/numbers/rounding.h"

namespace lockstep::verify {

namespace {

// One tensor in one step as a run recorded it: what its lowest rank holds, or all ranks' parts
// together if it is sharded.
struct WholeValue {
  std::optional<std::uint64_t> hash;  // not of sharded ones
  std::optional<double> norm;
  Sketch sketch;
  std::string dtype;
  std::uint32_t name_index = 0;  // as ValueRow's

  // The 2-norm: recorded, or estimated from the sketch.
  double size() const { return norm ? *norm : norm_estimate(sketch); }
};

// Puts the parts of a sharded tensor together. O(ranks).
WholeValue whole_value(const trace::Run& run, const ValueRow& row) {
  const trace::StateMark& first = *row.readings.front().mark;
  WholeValue out{first.hash, first.norm, first.sketch, run.tables.str(first.dtype), row.name_index};
  if (!row.sharded()) return out;
  out.hash.reset();
  double squares = first.norm.value_or(0) * first.norm.value_or(0);
  for (std::size_t i = 1; i < row.readings.size(); ++i) {
    const trace::StateMark& mark = *row.readings[i].mark;
    squares += mark.norm.value_or(0) * mark.norm.value_or(0);
    if (mark.sketch.size() == out.sketch.size())
      out.sketch = sum(std::move(out.sketch), mark.sketch);
  }
  if (out.norm) out.norm = std::sqrt(squares);
  return out;
}

// Whether both have sketches of one length.
bool sketches_compare(const WholeValue& a, const WholeValue& b) {
  return !a.sketch.empty() && a.sketch.size() == b.sketch.size();
}

// The 2-norm of the difference: 0 where the hashes are equal, else estimated from the sketches,
// else a lower bound from the norms; nothing where the two have nothing in common.
std::optional<double> distance_between(const WholeValue& a, const WholeValue& b) {
  if (a.hash && a.hash == b.hash) return 0;
  if (sketches_compare(a, b)) return norm_estimate(sum(a.sketch, b.sketch, -1));
  if (a.norm && b.norm) return std::abs(*a.norm - *b.norm);
  return std::nullopt;
}

using ValueKey = std::tuple<std::int64_t, Phase, std::string>;
using Values = std::map<ValueKey, WholeValue>;

Values values_of(const trace::Run& run) {
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
    // By the law of cosines; rounding and the estimate may take it out of range.
    const double cosine =
        (size_a * size_a + size_b * size_b - *distance * *distance) / (2 * size_a * size_b);
    out.cosine = std::clamp(cosine, -1.0, 1.0);
  }
  const double scale = std::max(size_a, size_b);
  out.error = scale > 0 ? *distance / (size_b > 0 ? size_b : scale) : 0;
  return out;
}

std::map<std::int64_t, double> losses_of(const trace::Run& run) {
  std::map<std::int64_t, std::pair<double, int>> sums;
  for (const trace::RankTrace& trace : run.ranks) {
    for (const trace::StepMark& step : trace.steps) {
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

// Sets `first_difference` and `drifted`; compare_runs.h says which differences are explained.
void find_first_difference(std::vector<std::pair<std::uint32_t, TensorDifference>> found,
                           Comparison& out) {
  constexpr double kAmplified = 100;  // AdamW divides noise by its own size: see compare_runs.h
  std::sort(found.begin(), found.end(), [](const auto& x, const auto& y) {
    return std::tie(x.second.n, x.second.phase, x.first) <
           std::tie(y.second.n, y.second.phase, y.first);
  });
  double apart = 0;       // the parameters, before the step
  double apart_next = 0;  // … and after it
  std::int64_t step = INT64_MIN;
  std::set<std::string> with_gradient;  // in this step
  for (const auto& [name_index, d] : found) {
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
    } else if (!out.first_difference) {
      out.first_difference = d;
    }
  }
}

}  // namespace

Comparison compare_runs(const trace::Run& a, const trace::Run& b, std::optional<double> tolerance) {
  const Values of_a = values_of(a);
  const Values of_b = values_of(b);
  Comparison out;
  std::map<std::int64_t, StepDifference> steps;
  std::set<std::string> alone;  // names of tensors that one run alone recorded
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
    found.emplace_back(value.name_index, *d);
  }
  for (const auto& [key, value] : of_b) {
    if (!of_a.contains(key)) alone.insert(std::get<std::string>(key));
  }
  out.only_in_one = alone.size();
  find_first_difference(std::move(found), out);

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

namespace {

// By name, then by step.
using ValuesByName = std::map<std::string, std::map<std::int64_t, WholeValue>>;

ValuesByName course_of(const trace::Run& run, Phase phase,
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

Drift drift_between(const trace::Run& a, const trace::Run& b, Phase phase,
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

namespace {

// The last step that a rank finished, and the mean loss of the ranks that recorded one.
std::optional<std::pair<std::int64_t, double>> last_loss(const trace::Run& run) {
  std::optional<std::int64_t> last;
  double sum = 0;
  int ranks = 0;
  for (const trace::RankTrace& trace : run.ranks) {
    for (const trace::StepMark& step : trace.steps) {
      if (last && step.n < *last) continue;
      if (!last || step.n > *last) {
        last = step.n;
        sum = 0;
        ranks = 0;
      }
      if (!step.loss) continue;
      sum += *step.loss;
      ++ranks;
    }
  }
  if (!last || ranks == 0) return std::nullopt;
  return std::pair{*last, sum / ranks};
}

// The relative difference up to which two final losses agree: the square root of the unit roundoff
// of the type that the forward computes in, half of its digits. float32: 2.4e-4, float16: 2.2e-2,
// bfloat16: 6.3e-2. A dtype that is not known counts as float32.
//
// Why not a few roundings: the order in which gradients are added makes differences of about u.
// AdamW divides a gradient that consists of such noise by the noise's own size, so parameters
// without a real gradient come to differ by as much as the learning rate, which changes the loss a
// little. docs/scenarios.md has measurements.
double loss_tolerance(std::string_view dtype) {
  const double u = unit_roundoff(dtype).value_or(0);
  return std::sqrt(u > 0 ? u : kFloat32Roundoff);
}

}  // namespace

std::optional<FinalLoss> final_loss(const trace::Run& run, const trace::Run& reference,
                                    std::string_view dtype) {
  const auto own = last_loss(run);
  const auto other = last_loss(reference);
  if (!own || !other || own->first != other->first) return std::nullopt;
  FinalLoss out;
  out.step = own->first;
  out.loss = own->second;
  out.reference = other->second;
  out.tolerance = loss_tolerance(dtype);
  const double difference = std::abs(out.loss - out.reference);
  out.apart = difference == 0 ? 0 : difference / std::abs(out.reference);
  return out;
}

}  // namespace lockstep::verify
