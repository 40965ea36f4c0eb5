#include "reports/forecasts/pipeline.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/quantities.h"
#include "base/text.h"
#include "reports/table.h"

namespace lockstep::reports {
namespace {

constexpr std::size_t kMaxRows = 64;

// The idle share of all stages' periods together; 0 if nothing takes time.
double run_bubble(const sim::PipelineRun& run) {
  double idle = 0;
  for (const Picos stage : run.idle) idle += stage.seconds();
  const double all = run.period.seconds() * static_cast<double>(run.idle.size());
  return all > 0 ? idle / all : 0;
}

std::string stage_table(const PipelineAnswer& answer, std::size_t width) {
  const sim::PipelineRun& run = answer.run;
  std::vector<std::string> names = {"stage", "busy", "idle", "idle share", "in flight"};
  if (!answer.peak_bytes.empty()) names.emplace_back("activations");
  Table table(columns({}, names));
  const std::vector<std::int64_t> in_flight = sim::peak_in_flight(answer.program);
  const std::size_t shown = std::min(run.busy.size(), kMaxRows);
  for (std::size_t stage = 0; stage < shown; ++stage) {
    const double share =
        run.period.value > 0 ? run.idle[stage].seconds() / run.period.seconds() : 0;
    std::vector<std::string> cells = {std::to_string(stage), duration_text(run.busy[stage]),
                                      duration_text(run.idle[stage]), percent(share),
                                      std::to_string(in_flight[stage])};
    if (!answer.peak_bytes.empty()) cells.push_back(bytes_text(answer.peak_bytes[stage]));
    table.add(std::move(cells));
  }
  std::string out = table.text(width);
  if (shown < run.busy.size())
    out += fmt::format("and {} more (--output json has all)\n",
                       plural(run.busy.size() - shown, "stage"));
  return out;
}

nlohmann::json values(const std::vector<Picos>& times) {
  nlohmann::json out = nlohmann::json::array();
  for (const Picos time : times) out.push_back(time.value);
  return out;
}

}  // namespace

std::string pipeline_text(const PipelineAnswer& answer, std::size_t width) {
  const sim::PipelineRun& run = answer.run;
  const sim::PipelineShape& shape = answer.program.shape;
  std::string out = fmt::format(
      "{}, {}{}, {}: {}\n", sim::pipeline_schedule_name(answer.program.schedule),
      plural(shape.stages, "stage"),
      shape.chunks == 1 ? "" : fmt::format(" of {} chunks", shape.chunks),
      plural(shape.micro_batches, "micro-batch", "micro-batches"), duration_text(run.time));
  // With a flush, a step begins when the last has ended on all stages; without, each stage begins
  // its next step at once.
  if (run.period != run.time)
    out += fmt::format("without a barrier between them, steps follow one another every {}\n",
                       duration_text(run.period));
  out += fmt::format("bubble: {} of the stages' time\n\n", percent(run_bubble(run)));
  return fmt::format("{}{}\n{}", out, stage_table(answer, width),
                     pipeline_timeline(answer.program, run, width));
}

std::string pipeline_json(const PipelineAnswer& answer) {
  const sim::PipelineRun& run = answer.run;
  const sim::PipelineShape& shape = answer.program.shape;
  nlohmann::ordered_json out;
  out["schedule"] = sim::pipeline_schedule_name(answer.program.schedule);
  out["stages"] = shape.stages;
  out["micro_batches"] = shape.micro_batches;
  out["chunks"] = shape.chunks;
  out["time_ps"] = run.time.value;
  out["period_ps"] = run.period.value;
  out["bubble"] = run_bubble(run);
  out["busy_ps"] = values(run.busy);
  out["idle_ps"] = values(run.idle);
  out["peak_in_flight"] = sim::peak_in_flight(answer.program);
  for (const Bytes bytes : answer.peak_bytes) out["peak_bytes"].push_back(bytes.value);
  return fmt::format("{}\n", out.dump(2));
}

namespace {

// Only ten characters per kind: micro-batch 10 is shown as 0 again.
char letter(const sim::StepWork& task) {
  using Kind = sim::StepWork::Kind;
  const char first = task.kind == Kind::forward ? '0' : task.kind == Kind::backward ? 'a' : 'A';
  return static_cast<char>(first + task.micro_batch % 10);
}

// The largest time that divides every start and end; 1 if nothing takes time. Unit costs of 1 ms
// give columns of 1 ms.
std::int64_t unit_of(const sim::PipelineRun& run) {
  std::int64_t unit = 0;
  for (const std::vector<sim::StepInterval>& stage : run.tasks)
    for (const sim::StepInterval& task : stage)
      unit = std::gcd(unit, std::gcd(task.begin.value, task.end.value));
  return std::max<std::int64_t>(unit, 1);
}

// "0123a4b5c.d": a character for each column of time.
std::string lane(const std::vector<sim::StepInterval>& tasks, std::size_t columns,
                 double per_column) {
  std::string out;
  std::size_t task = 0;
  for (std::size_t column = 0; column < columns; ++column) {
    // A column shows what runs in its middle, so every column is one task or idle.
    const double middle = (static_cast<double>(column) + 0.5) * per_column;
    while (task < tasks.size() && static_cast<double>(tasks[task].end.value) <= middle) ++task;
    const bool at_work =
        task < tasks.size() && static_cast<double>(tasks[task].begin.value) <= middle;
    out += at_work ? letter(tasks[task].work) : '.';
  }
  return out;
}

}  // namespace

std::string pipeline_timeline(const sim::PipelineProgram& program, const sim::PipelineRun& run,
                              std::size_t width, std::size_t most_stages) {
  if (run.time.value == 0) return "nothing takes any time\n";
  const std::size_t stages = std::min(run.tasks.size(), most_stages);
  // "stage  7" and "stage 11": the lanes begin below each other.
  const std::size_t label = std::to_string(stages - 1).size();
  const std::size_t room = std::max<std::size_t>(width, 24) - (sizeof "stage " + label);
  const std::int64_t unit = unit_of(run);
  // Exact where every start and end falls on a column's edge, as with costs of 1 and 2 ms; else
  // columns of equal length, and what is shorter than half of one may be missing.
  const bool exact = run.time.value / unit <= static_cast<std::int64_t>(room);
  const std::size_t columns = exact ? static_cast<std::size_t>(run.time.value / unit) : room;
  const double per_column = exact ? static_cast<double>(unit)
                                  : static_cast<double>(run.time.value) / static_cast<double>(room);
  std::string out;
  for (std::size_t stage = 0; stage < stages; ++stage) {
    out +=
        fmt::format("stage {:>{}} {}\n", stage, label, lane(run.tasks[stage], columns, per_column));
  }
  if (stages < run.tasks.size())
    out += fmt::format("and {} more\n", plural(run.tasks.size() - stages, "stage"));
  out += fmt::format(
      "{}\n",
      wrap(fmt::format("One column is {}{}. 0-9: forward of micro-batch 0, 1, ..; a-j: its "
                       "backward{}; dots: idle.{}",
                       exact ? "" : "about ", duration_text(per_column * 1e-12),
                       program.split ? "; A-J: its weight part" : "",
                       program.shape.micro_batches > 10 ? " Micro-batch 10 is 0 again." : ""),
           width));
  return out;
}

}  // namespace lockstep::reports
