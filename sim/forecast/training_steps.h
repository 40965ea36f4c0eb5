// The training steps of a simulated job, in its programs and on its clock.
//
// A job may save a checkpoint between two steps and evaluate the model after the last one. Neither
// belongs to a step: a step begins when whatever follows the step before it is over.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/engine/executor.h"
#include "sim/engine/from_run.h"
#include "trace/run.h"

namespace lockstep::sim {

// Indices of the program steps that end a part of the training: the spans that timed_run() adds for
// that.
struct StepMarks {
  std::vector<std::uint32_t> ends;  // by training step
  std::vector<std::uint32_t> over;  // … and of the checkpoint after it; the same if there is none
  std::optional<std::uint32_t> evaluated;  // after the last step

  // The first program step of training step `s`.
  std::uint32_t begin(std::size_t s) const { return s == 0 ? 0 : over[s - 1] + 1; }
};

// `events`: RunProgram::events of the rank's program; `tables`: of the trace's run.
StepMarks step_marks(const trace::Tables& tables, const trace::RankTrace& trace,
                     const std::vector<std::uint32_t>& events);

// The same for the rank that represents a class of the folding.
StepMarks step_marks(const trace::Run& run, const RunProgram& program, const Folding& folding,
                     std::uint32_t rank_class);

// When the last rank ended each step, for the steps that all ranks ended.
class StepTimes {
 public:
  // Adds a rank. `ended`: by step of its program.
  void add(const StepMarks& marks, const std::vector<Picos>& ended);

  const std::vector<Picos>& ends() const { return ends_; }
  std::size_t size() const { return ends_.size(); }
  // When the last rank had ended the step before and saved the checkpoint after it.
  Picos begin(std::size_t s) const { return s == 0 ? Picos{} : over_[s - 1]; }
  Picos of(std::size_t s) const { return ends_[s] - begin(s); }
  // How long the checkpoint after the step took, until the last rank had saved it; 0: none.
  Picos after(std::size_t s) const { return over_[s] - ends_[s]; }
  // How long the evaluation took, from the end of everything before it; empty: none.
  std::optional<Picos> evaluation() const;

 private:
  bool is_first_ = true;
  std::vector<Picos> ends_, over_;
  std::optional<Picos> evaluated_;
};

// The step times of a job that ran: `result` is what the folded `program` of the run did.
// O(steps of all classes).
StepTimes step_times(const trace::Run& run, const RunProgram& program, const Folding& folding,
                     const ExecutionResult& result);

// The median over all steps except the first, which arranges buffers. A single step counts itself;
// no steps give 0.
Picos step_time(const StepTimes& times);

// The steps that figures describe: all except the first, where there are several.
struct MeasuredSteps {
  std::size_t first = 0, count = 0;
  Picos begin, end;  // with the checkpoints between the steps
  Picos in_steps;    // without them

  double seconds() const { return in_steps.seconds(); }
};
MeasuredSteps measured_steps(const StepTimes& times);

}  // namespace lockstep::sim
