// Pipeline schedules as programs: for each stage the ordered list of its tasks.
//
//   Result<PipelineProgram> program = make_pipeline(PipelineSchedule::one_f_one_b, {4, 8, 1});
//   program->tasks[0];  // stage 0: F0 F1 F2 F3 B0 F4 B1 …
//
// A program says what is computed in which order, without times: sim/engine/step_program.h adds
// those. A model of `stages * chunks` pieces is distributed over the stages. Piece k feeds piece
// k + 1; a stage holds `chunks` pieces. schedule.cc gives the source of each order.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/quantities.h"
#include "base/result.h"

namespace lockstep::sim {

// `backward` is the whole backward pass if the schedule does not split it. If it does, `backward`
// computes the gradient of the input and `weight` that of the weights.
enum class Work : std::uint8_t { forward, backward, weight };

struct PipelineTask {
  Work work = Work::forward;
  std::int32_t micro_batch = 0;
  std::int32_t chunk = 0;  // index among the stage's pieces, in the model's order

  friend bool operator==(const PipelineTask&, const PipelineTask&) = default;
};

enum class PipelineSchedule : std::uint8_t { gpipe, one_f_one_b, interleaved, zb_h1, zb_h2, zbv };

struct PipelineShape {
  std::int32_t stages = 1;
  std::int32_t micro_batches = 1;
  std::int32_t chunks = 1;  // pieces of the model per stage

  std::int32_t pieces() const { return stages * chunks; }
};

struct PipelineProgram {
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;
  PipelineShape shape;
  bool vee = false;    // chunk 1 goes through the stages backwards, as in ZB-V
  bool split = false;  // the backward pass is in two parts
  std::vector<std::vector<PipelineTask>> tasks;  // by stage, in the order of execution

  // Index in the model, 0 … pieces() - 1, of the piece that `stage` holds as its `chunk`.
  std::int32_t piece(std::int32_t stage, std::int32_t chunk) const;
  // The stage that holds `piece`.
  std::int32_t stage_of(std::int32_t piece) const;
  // Its index among that stage's chunks.
  std::int32_t chunk_of(std::int32_t piece) const;
};

// The largest program, in tasks of all stages. It bounds memory: about 200 bytes per task, with the
// run.
inline constexpr std::int64_t kMaxPipelineTasks = std::int64_t{1} << 23U;

// The most stages. A stage has at least a layer, and no model has nearly as many.
inline constexpr std::int32_t kMaxPipelineStages = std::int32_t{1} << 16U;

// "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zbv".
std::string_view pipeline_schedule_name(PipelineSchedule schedule);
const std::vector<std::string>& pipeline_schedule_names();
Result<PipelineSchedule> parse_pipeline_schedule(std::string_view name);

// True if the schedule splits the backward pass.
bool splits_backward(PipelineSchedule schedule);

// By stage: the most forwards whose (last) backward part has not ended; each chunk counts. It
// follows from the order alone. O(tasks).
std::vector<std::int64_t> peak_in_flight(const PipelineProgram& program);

// What a micro-batch keeps of a piece of the model.
struct KeptBytes {
  Bytes activation;  // from the start of forward to the end of backward …
  Bytes for_weight;  // … of which this part stays to the end of weight, if the pass is split
};
// By stage: the most that it holds at once. `pieces`: in the model's order; the sum over all
// micro-batches is below 2^62. O(tasks).
std::vector<Bytes> peak_bytes(const PipelineProgram& program, const std::vector<KeptBytes>& pieces);

// The tasks of one stage, in order, under gpipe or one_f_one_b (a CHECK fails for the others).
// They depend on how many stages come after this one, and on nothing else of the pipeline: so this
// is also the order of a trainer whose stages form a tree that ends in the last one
// (runtime/strategies/pipeline_schedule.h). O(micro_batches), which must be positive.
std::vector<PipelineTask> stage_order(PipelineSchedule schedule, std::int32_t stages_after,
                                      std::int32_t micro_batches);

// The program of `schedule`. O(tasks). Errors, with the flag of `lockstep simulate pipeline` to
// change: a count below 1, more than kMaxPipelineStages, a program above kMaxPipelineTasks, chunks
// that the schedule does not have (1, except interleaved; zbv has exactly 2), interleaved
// micro-batches that are not a multiple of the stages.
Result<PipelineProgram> make_pipeline(PipelineSchedule schedule, PipelineShape shape);

}  // namespace lockstep::sim
