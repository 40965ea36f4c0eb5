// A training step of a pipeline as a job for the engine (program.h). The job has one replica for
// each kind of data-parallel replica; in it, a rank stands for the GPUs that hold one stage.
//
//   host        the stage's tasks, in the order of its schedule; then the update of the parameters.
//               The work of encoders on every GPU comes before the first task and after the last.
//   messages    a task's result is sent when the task ends. Receives are posted ahead, so that
//               messages overlap with tasks. Messages in one direction between two stages follow
//               one another.
//   exchange    of parameters and gradients over the data-parallel ranks of a stage, for each tower
//               that it holds. Either all at once, while the host waits; or in buckets that overlap
//               the tasks: parameters are gathered before the first micro-batch's forward needs
//               them, gradients are reduced when the last micro-batch's backward has computed them,
//               or each micro-batch's own.
//               Each tower's calls are in a stream of their own.
//               The overlap slows the tasks down. That time is added once, after the last task, and
//               delays no other stage: trainers make the calls of all stages at the same time, so
//               all are slowed at once (Megatron-LM's align_grad_reduce).
//   norm        an all-reduce over all ranks before the update: clipping needs one norm
//
// The engine, not a formula per schedule, determines what overlaps and who waits for whom. So
// unequal stages and micro-batches are as exact as the textbook cases, whose closed forms are
// tests. The caller gives the times (sim/transformer/predict.h, sim/multimodal).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/result.h"
#include "sim/engine/executor.h"
#include "sim/engine/shared_links.h"
#include "sim/pipeline/schedule.h"

namespace lockstep::sim {

// Larger steps of a plan are not simulated, in tasks of all stages: each takes up to 400 bytes.
inline constexpr std::int64_t kMaxStepTasks = std::int64_t{1} << 21U;

// Rounded; forever() if the clock cannot represent it. `seconds` is not negative.
Picos picos_of_seconds(double seconds);

// The time of one piece of the model for one micro-batch.
struct PieceCost {
  Picos forward{0};
  Picos backward{0};  // the whole backward pass, or if the program splits it, without `weight`
  Picos weight{0};    // the gradients of the weights; 0 if the program does not split it
  // The encoders' share: the beginning of the forward, the end of the backward.
  Picos encode_forward{0}, encode_backward{0};
};

struct PipelineCosts {
  std::vector<PieceCost> pieces;  // in the model's order, shape.pieces() of them
  Picos send{0};                  // from one stage to another, in either direction
  // Where micro-batches differ: instead of `pieces`, the cost of micro-batch m on piece k at
  // k x micro_batches + m. Empty: they are equal.
  std::vector<PieceCost> unequal = {};

  const PieceCost& of(const PipelineShape& shape, std::int32_t piece,
                      std::int32_t micro_batch) const {
    if (unequal.empty()) return pieces[static_cast<std::size_t>(piece)];
    return unequal[static_cast<std::size_t>(piece) * static_cast<std::size_t>(shape.micro_batches) +
                   static_cast<std::size_t>(micro_batch)];
  }
};

// The work of one replica. All replicas have the same `costs.send`.
struct StepReplica {
  PipelineCosts costs;
  Picos before{0}, after{0};  // of encoders on every GPU, before and after each stage's tasks
};

// An exchange of parameters and gradients over the data-parallel ranks of a stage: of all or of
// some of its parameters.
struct StepExchange {
  Picos gather, reduce;  // of one bucket; 0: there is none
  // For each chunk; 0: one exchange of everything, which overlaps nothing.
  std::int32_t buckets = 0;
  double slowdown = 0;  // share of a hidden bucket's time that the overlapped tasks take longer
  // The work that needs the parameters and computes the gradients.
  enum class Of : std::uint8_t {
    tasks,     // whole tasks
    model,     // tasks without their encoder part
    encoders,  // the encoder part of the tasks of the first chunk
    around,    // StepReplica::before and after; one call of the ranks of all stages that have it
  };
  Of of = Of::tasks;
  // Gradients are reduced in the backward of every micro-batch, not summed until the last one's;
  // and whether the host waits for the last bucket of each. Needs buckets, and is not for `around`.
  bool each_micro_batch = false, waits = false;
};
// The exchanges of one stage, in the order in which their gradients are complete: the model's, the
// encoders', those of `around`. Stages that have some of `around` have equally many.
using StageExchange = std::vector<StepExchange>;

// The purpose of a step of a stage's program.
struct StepWork {
  enum class Kind : std::uint8_t {
    encode,  // the encoder part of a task, or the encoders' work before or after the tasks
    forward,
    backward,
    weight,
    message,  // a call, or the wait for it
    gather,   // parameters; a call, or the wait for it
    reduce,   // gradients; the same
    slowed,   // the additional time of the tasks that the exchange overlaps
    norm,     // an all-reduce over all stages, which clipping needs; a call, or the wait for it
    update,
  };
  Kind kind = Kind::forward;
  std::int32_t micro_batch = 0, chunk = 0;  // of tasks and their messages
};

// Indices in ProgramJob::groups and calls.
inline constexpr std::uint32_t kMessageCall = 0;  // a message between stages
struct ExchangeIndex {
  std::uint32_t group = 0, gather = 0, reduce = 0;
};

// The links that the calls of a step share (sim/engine/shared_links.h). Uses are in bytes, those of
// all GPUs that make a call together.
struct StepLinks {
  std::vector<double> capacities;
  std::vector<CallTraffic> kinds;
  // By group and call of the job; others share nothing.
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> kind_of;
};

struct StepProgram {
  ProgramJob job;                           // rank and its program: replica x stages + stage
  std::vector<Picos> call_times;            // by index in job.calls
  std::vector<std::vector<StepWork>> work;  // by rank, and step of its program
  std::optional<StepLinks> links;           // empty: no call slows another down
  std::vector<std::vector<ExchangeIndex>> exchanges;  // by stage, as its StageExchange
  std::uint32_t first_channel = 0;  // groups from here on are channels from one stage to another
  // By rank: the step that ends its last task, and when that is if the step ran.
  std::vector<std::uint32_t> last_task;
  Picos tasks_end(std::size_t rank, const ExecutionResult& result) const {
    return result.classes[rank].ended[last_task[rank]];
  }
};

// The program of a step with this order of tasks. `exchange`: by stage. The replicas are of the
// order's shape. O(tasks): at most four steps a task, two more where encoders are, and the buckets.
StepProgram make_step_program(const PipelineProgram& order,
                              const std::vector<StepReplica>& replicas,
                              const std::vector<StageExchange>& exchange, Picos update);

// Runs it. Not stuck: make_pipeline()'s orders have no cycle. `record_issues`: so that draw_step()
// can follow. O(steps). Errors: a step beyond the clock.
Result<ExecutionResult> execute_step(const StepProgram& step, bool record_issues = false);

// What a rank's host does, from 0 to the end of the step without gaps: a task or the update, or it
// waits for a call of that kind.
struct StepInterval {
  Picos begin, end;
  StepWork work;
};
// The intervals of one rank; those without length are left out. `outcome`: the rank's, of
// execute_step().
std::vector<StepInterval> intervals(const StepProgram& step, std::size_t rank,
                                    const RankOutcome& outcome);

// One pipeline alone, without exchange and update.
struct PipelineRun {
  Picos time;  // from the first start to the last end
  // The longest time that any stage takes from the start of its first task to the end of its last.
  // Without a barrier between steps this is the cost of a step, as measured in arXiv 2401.10241. It
  // equals `time` if the stage that starts first also ends last, as in all schedules that do not
  // split the backward pass.
  Picos period;
  std::vector<Picos> busy;                       // by stage: the sum of its tasks' times
  std::vector<Picos> idle;                       // period - busy
  std::vector<std::vector<StepInterval>> tasks;  // by stage; those that take time
};
// Errors: execute_step()'s.
Result<PipelineRun> run_pipeline(const PipelineProgram& order, const PipelineCosts& costs);

}  // namespace lockstep::sim
