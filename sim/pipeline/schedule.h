// Pipeline schedules as programs: for each stage the ordered list of what it computes.
//
//   Result<PipelineProgram> program = make_pipeline(PipelineSchedule::one_f_one_b, {4, 8, 1});
//   program->tasks[0];  // stage 0: F0 F1 F2 F3 B0 F4 B1 …
//
// The program says what is computed in which order, and nothing of time: run_pipeline.h does that.
// A model of `stages * chunks` pieces is laid over the stages. Piece k feeds piece k + 1; a stage
// holds `chunks` pieces. Sources of the orders: schedules.cc and schedule.cc, beside each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lockstep::sim {

// `backward` is the whole backward pass where a schedule does not split it; where it does, the part
// that gives the gradient of the input, and `weight` the part that gives that of the weights.
enum class Work : std::uint8_t { forward, backward, weight };

struct PipelineTask {
  Work work = Work::forward;
  std::int32_t micro_batch = 0;
  std::int32_t chunk = 0;  // which of the stage's pieces, in the model's order

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
  bool vee = false;    // chunk 1 runs through the stages backwards, as in ZB-V
  bool split = false;  // the backward pass is in two parts
  std::vector<std::vector<PipelineTask>> tasks;  // by stage, in the order of execution

  // Where in the model the piece stands that `stage` holds as its `chunk`: 0 … pieces() - 1.
  std::int32_t piece(std::int32_t stage, std::int32_t chunk) const;
  // The stage that holds `piece`.
  std::int32_t stage_of(std::int32_t piece) const;
  // Which of that stage's chunks it is.
  std::int32_t chunk_of(std::int32_t piece) const;
};

// The largest program that is made: tasks of all stages together. It bounds memory (some 40 bytes a
// task, run included).
inline constexpr std::int64_t kMostPipelineTasks = std::int64_t{1} << 23U;

// "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zbv".
std::string_view pipeline_schedule_name(PipelineSchedule schedule);
const std::vector<std::string>& pipeline_schedule_names();
Result<PipelineSchedule> parse_pipeline_schedule(std::string_view name);

// True where the schedule runs the backward pass in two parts.
bool splits_backward(PipelineSchedule schedule);

// The program of `schedule`. Costs O(tasks).
// Errors, with the flag of `lockstep simulate pipeline` that is to be changed: a count below 1, a
// program above kMostPipelineTasks, chunks that the schedule does not know (it is given 1 unless
// interleaved; zbv has exactly 2), interleaved micro-batches that are no multiple of the stages.
Result<PipelineProgram> make_pipeline(PipelineSchedule schedule, PipelineShape shape);

}  // namespace lockstep::sim
