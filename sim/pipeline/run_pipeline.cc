#include "sim/pipeline/run_pipeline.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>

#include <fmt/core.h>

#include "base/check.h"

namespace lockstep::sim {
namespace {

constexpr std::int64_t kRange = std::numeric_limits<std::int64_t>::max();

std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

Picos cost_of(const PieceCost& cost, Work work) {
  switch (work) {
    case Work::forward:
      return cost.forward;
    case Work::backward:
      return cost.backward;
    case Work::weight:
      return cost.weight;
  }
  return Picos{0};
}

// Checks that no time can overflow: a path through the graph visits each task and each transfer at
// most once, so if their sum fits the clock, so does every time.
Status check_costs(const PipelineProgram& program, const PipelineCosts& costs) {
  const PipelineShape& shape = program.shape;
  const std::size_t each = at(shape.pieces()) * at(shape.micro_batches);
  const bool right = costs.unequal.empty() ? costs.pieces.size() == at(shape.pieces())
                                           : costs.unequal.size() == each;
  if (!right)
    return Error{fmt::format("there are costs for {} pieces of the model, and the pipeline has {}",
                             costs.pieces.size(), shape.pieces()),
                 {},
                 "give one cost for all, one per stage, or one per piece"};
  // Summed as doubles, which cannot overflow.
  double time = 2.0 * static_cast<double>(costs.send.value) * shape.pieces() * shape.micro_batches;
  double bytes = 0;
  bool negative = costs.send.value < 0;
  const std::int32_t times = costs.unequal.empty() ? shape.micro_batches : 1;
  for (const PieceCost& piece : costs.unequal.empty() ? costs.pieces : costs.unequal) {
    for (const Picos part : {piece.forward, piece.backward, piece.weight}) {
      negative = negative || part.value < 0;
      time += static_cast<double>(part.value) * times;
    }
    negative =
        negative || piece.kept_for_weight.value < 0 || piece.kept_for_weight > piece.activation;
    bytes += static_cast<double>(piece.activation.value) * times;
  }
  if (negative)
    return Error{
        "a time or size of the pipeline is negative, or more bytes wait for the weight "
        "part than the forward keeps",
        {},
        "give times and sizes of at least 0"};
  // A quarter of the range: rounding in `time` cannot hide an overflow.
  if (time > static_cast<double>(kRange) / 4)
    return Error{"the pipeline's tasks take longer together than the clock reaches (26 days)",
                 {},
                 "give shorter times or fewer micro-batches"};
  if (bytes > static_cast<double>(kRange) / 4)
    return Error{"the activations together exceed 2^61 bytes", {}, "give a smaller --activation"};
  return Status::ok();
}

class Runner {
 public:
  Runner(const PipelineProgram& program, const PipelineCosts& costs)
      : program_(program), costs_(costs), next_(program.tasks.size(), 0) {
    const std::size_t each = at(program.shape.pieces()) * at(program.shape.micro_batches);
    forward_end_.assign(each, kNotYet);
    backward_end_.assign(each, kNotYet);
    run_.spans.resize(program.tasks.size());
    for (std::size_t stage = 0; stage < program.tasks.size(); ++stage)
      run_.spans[stage].reserve(program.tasks[stage].size());
  }

  Result<PipelineRun> run() {
    // A stage is visited again when another one has done something that it may wait for: its
    // neighbours, and across the ends, as interleaved chunks go from the last stage to the first.
    // Starting with stage 0.
    std::vector<std::int32_t> to_look_at;
    std::vector<bool> queued(program_.tasks.size(), true);
    for (std::int32_t stage = program_.shape.stages; stage-- > 0;) to_look_at.push_back(stage);
    while (!to_look_at.empty()) {
      const std::int32_t stage = to_look_at.back();
      to_look_at.pop_back();
      queued[at(stage)] = false;
      if (!advance(stage)) continue;
      for (std::int32_t other :
           {stage - 1, stage + 1, stage == 0 ? program_.shape.stages - 1 : 0}) {
        if (other < 0 || other >= program_.shape.stages || queued[at(other)]) continue;
        queued[at(other)] = true;
        to_look_at.push_back(other);
      }
    }
    for (std::int32_t stage = 0; stage < program_.shape.stages; ++stage)
      if (next_[at(stage)] < program_.tasks[at(stage)].size()) return stuck(stage);
    finish();
    return std::move(run_);
  }

 private:
  static constexpr std::int64_t kNotYet = -1;

  std::size_t slot(std::int32_t piece, std::int32_t micro_batch) const {
    return at(piece) * at(program_.shape.micro_batches) + at(micro_batch);
  }

  // When what the task needs has arrived at `stage`; kNotYet if it has not been computed. A weight
  // part needs the piece's own backward, which is the default below.
  std::int64_t ready(std::int32_t stage, const PipelineTask& task) const {
    const std::int32_t piece = program_.piece(stage, task.chunk);
    const std::int32_t last = program_.shape.pieces() - 1;
    std::int32_t from = piece;
    const std::vector<std::int64_t>* ends = &backward_end_;
    if (task.work == Work::forward) {
      if (piece == 0) return 0;
      from = piece - 1;
      ends = &forward_end_;
    } else if (task.work == Work::backward) {
      if (piece == last)
        ends = &forward_end_;
      else
        from = piece + 1;
    }
    const std::int64_t end = (*ends)[slot(from, task.micro_batch)];
    if (end == kNotYet) return kNotYet;
    return program_.stage_of(from) == stage ? end : end + costs_.send.value;
  }

  // Runs the tasks of `stage` until one is not ready; true if it ran any.
  bool advance(std::int32_t stage) {
    const std::vector<PipelineTask>& tasks = program_.tasks[at(stage)];
    std::vector<TaskSpan>& spans = run_.spans[at(stage)];
    const std::size_t before = next_[at(stage)];
    std::size_t& next = next_[at(stage)];
    for (; next < tasks.size(); ++next) {
      const PipelineTask& task = tasks[next];
      const std::int64_t arrived = ready(stage, task);
      if (arrived == kNotYet) break;
      const std::int32_t piece = program_.piece(stage, task.chunk);
      const std::int64_t start =
          std::max(arrived, spans.empty() ? std::int64_t{0} : spans.back().end.value);
      const std::int64_t end =
          start + cost_of(costs_.of(program_.shape, piece, task.micro_batch), task.work).value;
      spans.push_back({Picos{start}, Picos{end}});
      if (task.work == Work::forward) forward_end_[slot(piece, task.micro_batch)] = end;
      if (task.work == Work::backward) backward_end_[slot(piece, task.micro_batch)] = end;
    }
    return next != before;
  }

  Error stuck(std::int32_t stage) const {
    const PipelineTask& task = program_.tasks[at(stage)][next_[at(stage)]];
    const char* work = task.work == Work::forward    ? "forward"
                       : task.work == Work::backward ? "backward"
                                                     : "weight part";
    return Error{
        fmt::format("the pipeline cannot continue: stage {} waits for what the {} of micro-batch "
                    "{} (chunk {}) needs, which is never computed before it",
                    stage, work, task.micro_batch, task.chunk),
        {},
        "put the tasks into an order in which each follows what it needs"};
  }

  void finish() {
    std::int64_t last = 0;
    std::int64_t period = 0;
    for (std::int32_t stage = 0; stage < program_.shape.stages; ++stage) {
      const std::vector<TaskSpan>& spans = run_.spans[at(stage)];
      std::int64_t busy = 0;
      for (const TaskSpan& span : spans) busy += span.end.value - span.start.value;
      run_.busy.push_back(Picos{busy});
      if (!spans.empty()) {
        last = std::max(last, spans.back().end.value);
        period = std::max(period, spans.back().end.value - spans.front().start.value);
      }
      hold(stage);
    }
    run_.peak_in_flight = peak_in_flight(program_);
    run_.time = Picos{last};
    run_.period = Picos{period};
    for (const Picos busy : run_.busy) run_.idle.push_back(Picos{period - busy.value});
  }

  // The most that a stage holds at once: it follows from the order of its tasks, not from times.
  void hold(std::int32_t stage) {
    std::int64_t bytes = 0, most = 0;
    for (const PipelineTask& task : program_.tasks[at(stage)]) {
      const PieceCost& cost =
          costs_.of(program_.shape, program_.piece(stage, task.chunk), task.micro_batch);
      if (task.work == Work::forward)
        most = std::max(most, bytes += cost.activation.value);
      else if (task.work == Work::backward)
        // A split backward keeps part of the activations until its weight part.
        bytes -= cost.activation.value - (program_.split ? cost.kept_for_weight.value : 0);
      else
        bytes -= cost.kept_for_weight.value;
    }
    run_.peak_bytes.push_back(Bytes{most});
  }

  const PipelineProgram& program_;
  const PipelineCosts& costs_;
  std::vector<std::size_t> next_;  // by stage: the first task that has not run
  // By slot(): when it ended, in picoseconds.
  std::vector<std::int64_t> forward_end_, backward_end_;
  PipelineRun run_;
};

// The task whose result `task` of `stage` needs, as (stage, work, micro-batch, chunk). Empty: none.
struct Needed {
  std::int32_t stage;
  PipelineTask task;
};
std::optional<Needed> needed_by(const PipelineProgram& program, std::int32_t stage,
                                const PipelineTask& task) {
  const std::int32_t piece = program.piece(stage, task.chunk);
  const std::int32_t last = program.shape.pieces() - 1;
  if (task.work == Work::weight)
    return Needed{stage, {Work::backward, task.micro_batch, task.chunk}};
  if (task.work == Work::forward && piece == 0) return std::nullopt;
  const bool turns = task.work == Work::backward && piece == last;
  const std::int32_t from = turns ? piece : task.work == Work::forward ? piece - 1 : piece + 1;
  return Needed{program.stage_of(from),
                {turns ? Work::forward : task.work, task.micro_batch, program.chunk_of(from)}};
}

}  // namespace

std::vector<PipelineStep> longest_path(const PipelineProgram& program, const PipelineRun& run) {
  PipelineStep now;
  std::int64_t latest = -1;
  for (std::int32_t stage = 0; stage < program.shape.stages; ++stage) {
    const std::vector<TaskSpan>& spans = run.spans[at(stage)];
    if (spans.empty() || spans.back().end.value <= latest) continue;
    latest = spans.back().end.value;
    now = {stage, spans.size() - 1};
  }
  std::vector<PipelineStep> out;
  if (latest < 0) return out;
  for (;;) {
    out.push_back(now);
    const TaskSpan& span = run.spans[at(now.stage)][now.task];
    // Of equals the stage's own task: the chain stays on a stage where it can.
    if (now.task > 0 && run.spans[at(now.stage)][now.task - 1].end == span.start) {
      --now.task;
      continue;
    }
    const auto needed = needed_by(program, now.stage, program.tasks[at(now.stage)][now.task]);
    if (!needed) break;
    const std::vector<PipelineTask>& tasks = program.tasks[at(needed->stage)];
    now = {needed->stage, static_cast<std::size_t>(
                              std::find(tasks.begin(), tasks.end(), needed->task) - tasks.begin())};
  }
  std::reverse(out.begin(), out.end());
  return out;
}

Result<PipelineRun> run_pipeline(const PipelineProgram& program, const PipelineCosts& costs) {
  LOCKSTEP_CHECK(program.tasks.size() == at(program.shape.stages),
                 "a program has the tasks of every stage");
  if (const Status checked = check_costs(program, costs); !checked) return checked.error();
  return Runner(program, costs).run();
}

}  // namespace lockstep::sim
