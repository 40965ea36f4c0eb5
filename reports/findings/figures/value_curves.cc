#include "reports/findings/figures/value_curves.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "verify/numbers/value_table.h"

namespace lockstep {
namespace {

constexpr std::size_t kMostCurves = 4;

std::string_view words(Phase phase) {
  switch (phase) {
    case Phase::leftover:
      return "gradient before backward";
    case Phase::local_grad:
      return "gradient before synchronisation";
    case Phase::synced_grad:
      return "gradient after synchronisation";
    case Phase::other_grad:
      return "gradient";
    case Phase::optim:
      return "optimizer state";
    case Phase::param:
      return "parameter";
    case Phase::buffer:
      return "buffer";
  }
  return "";
}

bool ought_to_agree(const ValueRow& row) {
  return row.phase != Phase::leftover && row.phase != Phase::local_grad && !row.sharded();
}

// Ranks that both recorded a hash are compared by it, others by the norm.
bool differ(const ValueRow& row) {
  const StateMark& first = *row.readings.front().mark;
  return std::any_of(row.readings.begin(), row.readings.end(), [&](const Reading& reading) {
    const StateMark& mark = *reading.mark;
    if (first.hash && mark.hash) return *first.hash != *mark.hash;
    return first.norm && mark.norm && *first.norm != *mark.norm;
  });
}

std::optional<std::int64_t> first_difference(const Series& series) {
  for (const ValueRow* row : series.rows)
    if (ought_to_agree(*row) && differ(*row)) return row->n;
  return std::nullopt;
}

using Points = std::vector<std::pair<std::int64_t, double>>;

// Equal curves once, those of most ranks first.
void fold_curves(const std::map<Rank, Points>& of_rank, ValueCurves& out) {
  std::map<Points, std::vector<Rank>> folded;
  for (const auto& [rank, points] : of_rank) folded[points].push_back(rank);
  for (const auto& [points, ranks] : folded) {
    Curve& curve = out.curves.emplace_back();
    curve.ranks = ranks;
    for (const auto& [n, value] : points) curve.points.push_back({n, value});
  }
  std::stable_sort(out.curves.begin(), out.curves.end(), [](const Curve& a, const Curve& b) {
    return std::tuple(b.ranks.size(), a.ranks.front()) <
           std::tuple(a.ranks.size(), b.ranks.front());
  });
  if (out.curves.size() <= kMostCurves) return;
  out.curves_left_out = out.curves.size() - kMostCurves;
  out.curves.resize(kMostCurves);
}

ValueCurves curves_of(const Series& series, const Run& run) {
  ValueCurves out;
  out.name = run.tables.str(series.name);
  out.kind = words(series.phase);
  std::map<Rank, Points> of_rank;
  for (const ValueRow* row : series.rows) {
    for (const Reading& reading : row->readings)
      if (reading.mark->norm && std::isfinite(*reading.mark->norm))
        of_rank[run.ranks[reading.rank].rank].emplace_back(row->n, *reading.mark->norm);
    if (row->readings.size() > 1 && ought_to_agree(*row))
      out.agreement.push_back({row->n, !differ(*row)});
  }
  fold_curves(of_rank, out);
  out.first_difference = first_difference(series);
  return out;
}

std::optional<ValueCurves> loss_of(const Run& run) {
  struct Sum {
    double sum = 0;
    std::size_t count = 0;
  };
  std::map<std::int64_t, Sum> steps;
  Curve curve;
  for (const RankTrace& trace : run.ranks) {
    bool any = false;
    for (const StepMark& step : trace.steps) {
      if (!step.loss || !std::isfinite(*step.loss)) continue;
      any = true;
      steps[step.n].sum += *step.loss;
      ++steps[step.n].count;
    }
    if (any) curve.ranks.push_back(trace.rank);
  }
  if (steps.empty()) return std::nullopt;
  for (const auto& [n, step] : steps)
    curve.points.push_back({n, step.sum / static_cast<double>(step.count)});
  return ValueCurves{"loss", "mean over the ranks", {std::move(curve)}, 0, {}, std::nullopt};
}

std::set<std::string> named_by(const Report& report) {
  std::set<std::string> out;
  for (const Finding& finding : report.findings)
    if (rule(finding.rule).family == "numbers")
      out.insert(finding.what.begin(), finding.what.end());
  return out;
}

}  // namespace

std::vector<ValueCurves> value_curves(const Report& report, const Run& run, std::size_t most) {
  std::vector<ValueCurves> out;
  if (std::optional<ValueCurves> loss = loss_of(run)) out.push_back(std::move(*loss));
  const ValueTable table(run);
  const std::set<std::string> named = named_by(report);
  // Named first, then by the first step in which they differ, then in the table's order.
  using Key = std::tuple<bool, std::int64_t, std::size_t>;
  std::vector<std::pair<Key, const Series*>> order;
  for (const Series& series : table.series()) {
    const bool is_named = named.contains(run.tables.str(series.name));
    order.push_back(
        {{!is_named, first_difference(series).value_or(INT64_MAX), order.size()}, &series});
  }
  std::sort(order.begin(), order.end());
  for (std::size_t i = 0; i < std::min(most, order.size()); ++i)
    out.push_back(curves_of(*order[i].second, run));
  return out;
}

}  // namespace lockstep
