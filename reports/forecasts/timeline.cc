#include "reports/forecasts/timeline.h"

#include <algorithm>
#include <numeric>

#include "base/text.h"

namespace lockstep::sim {
namespace {

char letter(const PipelineTask& task) {
  const auto digit = static_cast<char>(task.micro_batch % 10);
  switch (task.work) {
    case Work::forward:
      return static_cast<char>('0' + digit);
    case Work::backward:
      return static_cast<char>('a' + digit);
    case Work::weight:
      return static_cast<char>('A' + digit);
  }
  return '?';
}

// The largest unit of which every start and end is a multiple; 1 where nothing takes time.
std::int64_t unit_of(const PipelineRun& run) {
  std::int64_t unit = 0;
  for (const std::vector<TaskSpan>& stage : run.spans)
    for (const TaskSpan& span : stage)
      unit = std::gcd(unit, std::gcd(span.start.value, span.end.value));
  return std::max<std::int64_t>(unit, 1);
}

std::string lane(const std::vector<PipelineTask>& tasks, const std::vector<TaskSpan>& spans,
                 std::size_t columns, double per_column) {
  std::string out;
  std::size_t task = 0;
  for (std::size_t column = 0; column < columns; ++column) {
    const double middle = (static_cast<double>(column) + 0.5) * per_column;
    while (task < spans.size() && static_cast<double>(spans[task].end.value) <= middle) ++task;
    const bool at_work =
        task < spans.size() && static_cast<double>(spans[task].start.value) <= middle;
    out += at_work ? letter(tasks[task]) : '.';
  }
  return out;
}

}  // namespace

std::string pipeline_timeline(const PipelineProgram& program, const PipelineRun& run,
                              std::size_t width, std::size_t most_stages) {
  if (run.time.value == 0) return "nothing takes any time\n";
  const std::size_t stages = std::min(run.spans.size(), most_stages);
  const std::size_t label = std::to_string(stages - 1).size();
  const std::size_t room = std::max<std::size_t>(width, 24) - (sizeof "stage " + label);
  const std::int64_t unit = unit_of(run);
  const bool exact = run.time.value / unit <= static_cast<std::int64_t>(room);
  const std::size_t columns = exact ? static_cast<std::size_t>(run.time.value / unit) : room;
  const double per_column = exact ? static_cast<double>(unit)
                                  : static_cast<double>(run.time.value) / static_cast<double>(room);
  std::string out;
  for (std::size_t stage = 0; stage < stages; ++stage) {
    const std::string number = std::to_string(stage);
    out += "stage " + std::string(label - number.size(), ' ') + number + " " +
           lane(program.tasks[stage], run.spans[stage], columns, per_column) + "\n";
  }
  if (stages < run.spans.size())
    out += "and " + plural(run.spans.size() - stages, "stage") + " more\n";
  out += wrap(std::string("One column is ") + (exact ? "" : "about ") +
                  to_string(Picos{static_cast<std::int64_t>(per_column)}) +
                  ". 0-9: forward of micro-batch 0, 1, ..; a-j: its backward" +
                  (program.split ? "; A-J: its weight part" : "") + "; dots: idle." +
                  (program.shape.micro_batches > 10 ? " Micro-batch 10 is 0 again." : ""),
              width) +
         "\n";
  return out;
}

}  // namespace lockstep::sim
