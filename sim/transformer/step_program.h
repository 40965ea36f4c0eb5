// A training step of a pipeline as a job for the engine (sim/engine/program.h), as a scenario is
// one: one data-parallel replica, in which a rank stands for the GPUs that hold one stage.
//
//   host        the stage's tasks, in the order of its schedule; then the update of the parameters
//   messages    a task's result is sent when the task ends. What a stage receives is posted ahead,
//               so that messages overlap with its tasks. Those in one direction between two stages
//               follow one another.
//   exchange    over the data-parallel ranks, who do the same at the same time. Either all at once,
//               while the host waits; or in buckets, beside the tasks: parameters are gathered
//               before the first micro-batch's forward needs them, gradients reduced when the last
//               micro-batch's backward has computed them.
//               What that slows the tasks down is one stretch after the last of them, which delays
//               no other stage: trainers make the calls of all stages at the same time, so that
//               all are slowed at once (Megatron-LM's align_grad_reduce).
//   meeting     of all stages before the update: the norm for clipping is one number
//
// So what hides what, and who waits for whom, is told by the engine and not by formulas. The times
// are the caller's (sim/transformer/predict.h).
#pragma once

#include <cstdint>
#include <vector>

#include "sim/engine/executor.h"
#include "sim/pipeline/run_pipeline.h"

namespace lockstep::sim {

// The largest step that is simulated, in tasks of all stages: each takes about 400 bytes.
inline constexpr std::int64_t kMostStepTasks = std::int64_t{1} << 21U;

struct StepExchange {
  Picos gather, reduce;  // of one bucket; 0: there is none
  // Of each chunk; 0: there is one of all, with nothing beside it.
  std::int32_t buckets = 0;
  double slowdown = 0;  // share of a hidden bucket's time that the tasks beside it take longer
};

// What a step of a stage's program is for.
struct StepWork {
  enum class Kind : std::uint8_t {
    forward,
    backward,
    weight,
    message,  // a call, or the wait for it
    gather,   // parameters; a call, or the wait for it
    reduce,   // gradients; the same
    slowed,   // what the tasks take longer because of the exchange beside them
    meeting,
    update,
  };
  Kind kind = Kind::forward;
  std::int32_t micro_batch = 0, chunk = 0;  // of tasks and their messages
};

struct StepProgram {
  ProgramJob job;                           // rank r and its program r are stage r
  std::vector<Picos> call_times;            // by index in job.calls
  std::vector<std::vector<StepWork>> work;  // by stage, and step of its program
};

// The program of a step with this order of tasks, their times and the time of a message
// (`costs.send`). `costs` is of the order's shape. O(tasks): at most four steps a task, and the
// buckets.
StepProgram make_step_program(const PipelineProgram& order, const PipelineCosts& costs,
                              const StepExchange& exchange, Picos update);

// Runs it. Not stuck: make_pipeline()'s orders have no cycle. O(steps).
ExecutionResult execute_step(const StepProgram& step, bool record_issues = false);

// What a stage's host does, from 0 to the end of the step without gaps: a task or the update, or it
// waits for a call of that kind.
struct StepStretch {
  Picos begin, end;
  StepWork work;
};
// Of one stage; stretches of no length are left out. `outcome`: the stage's, of execute_step().
std::vector<StepStretch> stretches(const StepProgram& step, std::size_t stage,
                                   const RankOutcome& outcome);

}  // namespace lockstep::sim
