#include "reports/forecasts/simulate_pipeline_result.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/amount.h"
#include "base/columns.h"
#include "base/quantities.h"
#include "base/text.h"
#include "reports/forecasts/timeline.h"

namespace lockstep {
namespace {

constexpr std::size_t kMostRows = 64;

// The idle share of all stages' periods together; 0 where nothing takes time.
double run_bubble(const sim::PipelineRun& run) {
  double idle = 0;
  for (const sim::Picos stage : run.idle) idle += stage.seconds();
  const double all = run.period.seconds() * static_cast<double>(run.idle.size());
  return all > 0 ? idle / all : 0;
}

std::string aligned_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (const std::vector<std::string>& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], columns_of(row[i]));
  std::string out;
  for (const std::vector<std::string>& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i)
      out += (i == 0 ? "" : "  ") + std::string(widths[i] - columns_of(row[i]), ' ') + row[i];
    out += "\n";
  }
  return out;
}

std::string stage_table(const PipelineAnswer& answer) {
  const sim::PipelineRun& run = answer.run;
  std::vector<std::vector<std::string>> rows = {
      {"stage", "busy", "idle", "idle share", "in flight"}};
  if (answer.sized) rows[0].emplace_back("activations");
  const std::size_t shown = std::min(run.busy.size(), kMostRows);
  for (std::size_t stage = 0; stage < shown; ++stage) {
    const double share =
        run.period.value > 0 ? run.idle[stage].seconds() / run.period.seconds() : 0;
    rows.push_back({std::to_string(stage), to_string(run.busy[stage]), to_string(run.idle[stage]),
                    percent(share), std::to_string(run.peak_in_flight[stage])});
    if (answer.sized)
      rows.back().push_back(
          bytes_in_words(static_cast<std::uint64_t>(run.peak_bytes[stage].value)));
  }
  std::string out = aligned_table(rows);
  if (shown < run.busy.size())
    out += "and " + plural(run.busy.size() - shown, "stage") + " more (--output json has all)\n";
  return out;
}

nlohmann::json values(const std::vector<sim::Picos>& times) {
  nlohmann::json out = nlohmann::json::array();
  for (const sim::Picos time : times) out.push_back(time.value);
  return out;
}

}  // namespace

std::string pipeline_text(const PipelineAnswer& answer) {
  const sim::PipelineRun& run = answer.run;
  const sim::PipelineShape& shape = answer.program.shape;
  std::string out =
      std::string(pipeline_schedule_name(answer.program.schedule)) + ", " +
      plural(static_cast<std::uint64_t>(shape.stages), "stage") +
      (shape.chunks == 1 ? "" : " of " + std::to_string(shape.chunks) + " chunks") + ", " +
      plural(static_cast<std::uint64_t>(shape.micro_batches), "micro-batch", "micro-batches") +
      ": " + to_string(run.time) + "\n";
  if (run.period != run.time)
    out += "each stage is at work for " + to_string(run.period) +
           " at most: steps without a barrier follow so\n";
  out += "bubble: " + percent(run_bubble(run)) + " of the stages' time\n\n";
  return out + stage_table(answer) + "\n" + pipeline_timeline(answer.program, run);
}

std::string pipeline_json(const PipelineAnswer& answer) {
  const sim::PipelineRun& run = answer.run;
  const sim::PipelineShape& shape = answer.program.shape;
  nlohmann::ordered_json out;
  out["schedule"] = pipeline_schedule_name(answer.program.schedule);
  out["stages"] = shape.stages;
  out["micro_batches"] = shape.micro_batches;
  out["chunks"] = shape.chunks;
  out["time_ps"] = run.time.value;
  out["period_ps"] = run.period.value;
  out["bubble"] = run_bubble(run);
  out["busy_ps"] = values(run.busy);
  out["idle_ps"] = values(run.idle);
  out["peak_in_flight"] = run.peak_in_flight;
  if (answer.sized) {
    out["peak_bytes"] = nlohmann::json::array();
    for (const sim::Bytes bytes : run.peak_bytes) out["peak_bytes"].push_back(bytes.value);
  }
  return out.dump(2) + "\n";
}

}  // namespace lockstep
