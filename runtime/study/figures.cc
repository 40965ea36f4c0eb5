#include "runtime/study/figures.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include <fmt/core.h>

#include "base/text.h"
#include "trace/run.h"
#include "verify/compare_runs.h"
#include "verify/rules/rules.h"

namespace lockstep::runtime {

namespace {

std::string end_of(const JobOutcome& outcome) {
  if (outcome.end == JobEnd::completed) return "completed";
  if (outcome.report.findings.empty()) {
    return outcome.end == JobEnd::timed_out ? "timed out" : "failed";
  }
  const verify::Finding& leading = outcome.report.findings.front();
  std::string out = std::string(verify::rule(leading.rule).name);
  if (leading.step) out += fmt::format(" at step {}", *leading.step);
  return out;
}

// Calls outside of steps (start, evaluation) are not counted.
double bytes_per_step(const trace::Run& run) {
  double bytes = 0;
  std::size_t steps = 0;
  for (const trace::RankTrace& trace : run.ranks) {
    steps += trace.steps.size();
    for (const trace::Call& call : trace.calls) {
      if (call.step != trace::kNone) bytes += trace::call_bytes(run, call);
    }
  }
  return steps == 0 ? 0 : bytes / static_cast<double>(steps);
}

bool is_image_path(std::string_view name) { return name.starts_with("image"); }
bool is_text_path(std::string_view name) { return name.starts_with("text"); }
bool is_running_statistic(std::string_view name) {
  return name.ends_with("running_mean") || name.ends_with("running_var");
}

std::optional<double> share(double part, double whole) {
  if (whole > 0) return part / whole;
  return std::nullopt;
}

std::optional<double> travelled_share(const trace::Run& a, const trace::Run& b,
                                      const std::function<bool(std::string_view)>& counts) {
  const verify::Drift d = verify::drift_between(a, b, verify::Phase::param, counts);
  return share(d.apart, d.travelled);
}

std::optional<double> feature_drift(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return std::nullopt;
  const double size = std::inner_product(b.begin(), b.end(), b.begin(), 0.0);
  double apart = 0;
  for (std::size_t i = 0; i < a.size(); ++i) apart += (a[i] - b[i]) * (a[i] - b[i]);
  return share(std::sqrt(apart), std::sqrt(size));
}

}  // namespace

RunFigures figures_of(const JobOutcome& outcome) {
  RunFigures out;
  out.completed = outcome.end == JobEnd::completed;
  out.end = end_of(outcome);
  out.bytes_per_step = bytes_per_step(outcome.run);
  double losses = 0;
  std::size_t ranks = 0;
  for (const WorkerOutcome& worker : outcome.workers) {
    if (!worker.numbers) continue;
    const WorkerNumbers& n = *worker.numbers;
    out.step_ms = std::max(out.step_ms, n.step_ms_median);
    out.peak_bytes = std::max(out.peak_bytes, static_cast<double>(n.peak_rss_bytes));
    if (n.last_loss) {
      losses += *n.last_loss;
      ++ranks;
    }
    if (n.retrieval && n.retrieval->items > 0) {
      out.recall_at_1 = n.retrieval->recall_at_1;
      out.image_sketches = n.retrieval->image_sketches;
    }
  }
  if (ranks > 0) out.loss = losses / static_cast<double>(ranks);
  return out;
}

reports::Accuracy accuracy_of(const Watched& run, const Watched& same, const Watched& plain) {
  reports::Accuracy out;
  const verify::Comparison comparison = verify::compare_runs(*run.run, *same.run);
  if (comparison.first_difference) {
    out.gradient_error = comparison.first_difference->error;
    out.first_difference = comparison.first_difference->name;
  } else {
    for (const verify::StepDifference& step : comparison.steps) {
      if (!step.gradient) continue;
      // Differences of rounding that grew since say nothing about the strategy.
      if (out.gradient_error && step.gradient->error > step.gradient->tolerance) break;
      out.gradient_error = std::max(out.gradient_error.value_or(0), step.gradient->error);
    }
  }
  out.image_drift = travelled_share(*run.run, *plain.run, is_image_path);
  out.text_drift = travelled_share(*run.run, *plain.run, is_text_path);
  const verify::Drift statistics =
      verify::drift_between(*run.run, *plain.run, verify::Phase::buffer, is_running_statistic);
  out.batch_norm_drift = share(statistics.apart, statistics.size);
  out.feature_drift = feature_drift(run.figures->image_sketches, plain.figures->image_sketches);
  return out;
}

std::optional<reports::Spread> spread_of(std::vector<double> values) {
  if (values.empty()) return std::nullopt;
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return reports::Spread{(values[(n - 1) / 2] + values[n / 2]) / 2, values.front(), values.back()};
}

void add_runs(const std::vector<RunFigures>& runs, reports::Combination& to) {
  std::vector<double> step_ms, bytes, peak, loss, recall;
  to.completed = true;
  to.end = "completed";
  to.repeats = runs.size();
  for (const RunFigures& run : runs) {
    if (!run.completed) {
      if (to.completed) to.end = run.end;
      to.completed = false;
      continue;
    }
    step_ms.push_back(run.step_ms);
    bytes.push_back(run.bytes_per_step);
    peak.push_back(run.peak_bytes);
    if (run.loss) loss.push_back(*run.loss);
    if (run.recall_at_1) recall.push_back(*run.recall_at_1);
  }
  to.step_ms = spread_of(step_ms);
  to.bytes_per_step = spread_of(bytes);
  to.peak_bytes = spread_of(peak);
  to.loss = spread_of(loss);
  to.recall_at_1 = spread_of(recall);
}

}  // namespace lockstep::runtime
