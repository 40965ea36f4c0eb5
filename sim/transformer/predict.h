// Predicts a training step: kernels, launches and collectives become the times of its tasks, and
// the engine runs them (sim/engine/step_program.h).
#pragma once

#include <vector>

#include "base/quantities.h"
#include "sim/engine/step_program.h"
#include "sim/transformer/calibration.h"
#include "sim/transformer/kernel_time.h"
#include "sim/transformer/layer_time.h"
#include "sim/transformer/memory.h"
#include "sim/transformer/transformer.h"
#include "trace/signature.h"

namespace lockstep::sim {

// Where a step's time goes, in seconds: means over the GPUs, which sum up to the step.
struct StepParts {
  double layers = 0;     // kernels of the layers, forward and backward
  double recompute = 0;  // … of the parts of the forward pass that are computed again
  double logits = 0;     // embedding lookup, logits and loss
  double host = 0;       // the GPU waits for kernels that the host has not issued yet
  double tensor = 0;     // collectives of tensor parallelism
  double context = 0;    // … of context parallelism
  double expert = 0;     // … of expert parallelism
  double data = 0;  // exposed collectives of parameters and gradients over the data-parallel ranks
  double handover = 0;   // activations and their gradients between pipeline stages
  double bubble = 0;     // a stage waits for another
  double optimizer = 0;  // clipping, update and copy of the parameters
  double overhead = 0;   // a constant per step
  double total() const {
    return layers + recompute + logits + host + tensor + context + expert + data + handover +
           bubble + optimizer + overhead;
  }
};

// Adds the parts of tasks, `times` times: not bubble, optimizer and overhead, which a step has
// once.
void add_times(StepParts& sum, const StepParts& more, double times);

// A piece of the model for one micro-batch: its time, and the parts of both directions together.
// `weight`: the part of `backward` that computes the weights' gradients, on which nobody waits, so
// that schedules which split the backward pass can put it off: the products alone, without
// attention and without collectives (arXiv 2401.10241, table 1).
struct PieceTime {
  double forward = 0, backward = 0, weight = 0;
  StepParts parts;
};

// Seconds in which a zero3 plan without a pipeline gathers a layer before it runs, each way, and
// scatters its gradients after its backward; 0 in other plans, also those of pipelines, whose
// stages keep what they gathered over all micro-batches: planned_exchanges(). The same for every
// micro-batch, and with a network costly to price.
struct LayerExchange {
  double gather = 0, scatter = 0;
};
LayerExchange layer_exchange(const Transformer& model, const TrainingPlan& plan,
                             const CostParameters& cost);
// `layers` layers with the times `one` on a pipeline stage, the host and `exchange` included.
PieceTime piece_time(const TrainingPlan& plan, const CostParameters& cost, const LayerTimes& one,
                     const LayerExchange& exchange, double layers);
// The embedding lookup of the first piece, and its all-reduce over the tensor ranks.
PieceTime embedding_time(const Transformer& model, const TrainingPlan& plan,
                         const CostParameters& cost);
// The logits and the loss of the last piece.
PieceTime logits_time(const Transformer& model, const TrainingPlan& plan,
                      const CostParameters& cost);
// A result that goes from one pipeline stage to another; both 0 without a pipeline.
struct Handover {
  double occupies = 0;  // seconds that a send and a receive take of a stage's own time
  double message = 0;   // seconds on its way while the stages go on; 0 if they do not
};
Handover handover(const Transformer& model, const TrainingPlan& plan, const CostParameters& cost);
// Its bytes: activations go between stages in pieces, one per tensor rank (arXiv 2104.04473,
// section 4.1).
double message_bytes(const Transformer& model, const TrainingPlan& plan);

// The calls that exchange parameters of a rank and their gradients over the data-parallel ranks and
// the context ranks, once a step. `gather`: the parameters, before the step's first forward;
// `reduce`: the gradients, after its last backward. A call without bytes is not made.
struct ExchangeCalls {
  struct One {
    trace::Op op = trace::Op::all_reduce;
    double bytes = 0;
  };
  Group group;
  One gather, reduce;
};

// The exchanges of parameters of a rank, of `layers` layers of its stage, in a step's program.
// Overlapped it has a bucket for each layer, or for as many layers as have a million parameters for
// each rank (Megatron-LM's bucket_size); where stages have several chunks, one for each chunk,
// which is started as a whole (Megatron-LM's grad_sync_func; NeMo's documentation, "Communication
// overlap"). Its times are those of calls that share no links: step_links() says which they use.
struct PlannedExchange {
  StepExchange step;
  ExchangeCalls calls;
};
// One for dense parameters, and one for experts, if there are any.
std::vector<PlannedExchange> planned_exchanges(const TrainingPlan& plan, const CostParameters& cost,
                                               const RankParameters& count, double layers,
                                               bool overlapped);

// How many of these parameters a rank updates: from zero1 on, its own shard only.
double updated(const RankParameters& count, const TrainingPlan& plan);

struct StepPrediction {
  double seconds = 0;
  double pipeline_seconds = 0;  // from the first task to the last: forward and backward
  double bubble_share = 0;      // of it: when a stage computes nothing, mean over the stages
  double exchange_seconds = 0;  // exchange over the data-parallel ranks before and after them
  double update_seconds = 0;    // optimizer, and the constant per step
  StepParts parts;              // sums up to `seconds`, except for rounding to picoseconds
  StepMemory memory;
  double memory_bytes = 0;  // all memory, with what libraries reserve
};

// A step that the engine ran. Where GPUs are slow (CostParameters::slow), replicas differ: costs,
// parts and intervals are of the most numerous ones.
struct SimulatedStep {
  PipelineProgram order;
  PipelineCosts costs;
  StepParts parts;       // of the tasks of one micro-batch, summed over all stages of a replica
  double optimizer = 0;  // seconds, of the slowest GPU
  Picos update;
  StepProgram program;
  ExecutionResult result;
  std::vector<std::vector<StepInterval>> intervals;  // by stage of that replica
};

// Prices a step's tasks and calls and runs them. `for_path`: so that critical_path() can follow.
// O(micro-batches x stages x chunks). Errors: check_workload()'s, those of the schedule, more than
// kMaxStepTasks, a micro-batch that takes a stage longer than kLongestPiece, a step beyond the
// clock.
Result<SimulatedStep> simulate_step(const Transformer& model, const TrainingPlan& plan,
                                    const CostParameters& cost, bool for_path = false);

// Predicts a step: runs it, and says where its time goes. Errors: simulate_step()'s.
Result<StepPrediction> predict_step(const Transformer& model, const TrainingPlan& plan,
                                    const CostParameters& cost);

}  // namespace lockstep::sim
