// Where the training steps of a simulated job lie in its programs and on its clock.
//
// Between two steps a job may save a checkpoint, and after the last one evaluate the model. Neither
// belongs to a step: a step begins where what comes after the one before it is over.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/engine/executor.h"
#include "sim/engine/from_run.h"
#include "trace/run.h"

namespace lockstep::sim {

// The places of the program's steps that end a part of the training: the spans that timed_run()
// puts in for that.
struct StepMarks {
  std::vector<std::uint32_t> ends;  // of each training step
  std::vector<std::uint32_t> over;  // … and of the checkpoint saved after it; none: the same
  std::optional<std::uint32_t> evaluated;  // after the last step

  // Where the program of training step `s` begins.
  std::uint32_t begin(std::size_t s) const { return s == 0 ? 0 : over[s - 1] + 1; }
};

// `events`: RunProgram::events of the rank's program; `tables`: of the trace's run.
StepMarks step_marks(const trace::Tables& tables, const trace::RankTrace& trace,
                     const std::vector<std::uint32_t>& events);

// The same of the rank that stands for a class of the folding.
StepMarks step_marks(const trace::Run& run, const RunProgram& program, const Folding& folding,
                     std::uint32_t rank_class);

// When the last rank ended each step that all ranks ended.
class StepTimes {
 public:
  // Of one more of the ranks; `ended`: by step of its program.
  void add(const StepMarks& marks, const std::vector<Picos>& ended);

  const std::vector<Picos>& ends() const { return ends_; }
  std::size_t size() const { return ends_.size(); }
  // When the last rank had ended the step before and saved the checkpoint after it.
  Picos begin(std::size_t s) const { return s == 0 ? Picos{} : over_[s - 1]; }
  Picos of(std::size_t s) const { return ends_[s] - begin(s); }
  // From the step's end until the last rank had saved a checkpoint; 0: none was saved.
  Picos after(std::size_t s) const { return over_[s] - ends_[s]; }
  // From when all that belongs to the last step was over; nothing: the model was not evaluated.
  std::optional<Picos> evaluation() const;

 private:
  bool is_first_ = true;
  std::vector<Picos> ends_, over_;
  std::optional<Picos> evaluated_;
};

StepTimes step_times(const trace::Run& run, const RunProgram& program, const Folding& folding,
                     const ExecutionResult& result);

// The median over the steps but the first, which arranges buffers; of one step its own; of none 0.
Picos step_time(const StepTimes& times);

// The steps that figures are of: all but the first, where there are several.
struct MeasuredSteps {
  std::size_t first = 0, count = 0;
  Picos begin, end;  // with the checkpoints between the steps
  Picos in_steps;    // without them

  double seconds() const { return in_steps.seconds(); }
};
MeasuredSteps measured_steps(const StepTimes& times);

}  // namespace lockstep::sim
