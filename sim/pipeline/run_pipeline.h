// Runs a pipeline's program: when each task starts and ends, how long each stage waits, and what it
// holds.
//
// The time is the longest path through the graph of tasks and their dependencies, found by running
// it; there is no formula per schedule. So unequal stages, transfer times and custom orders are as
// exact as the textbook cases, whose closed forms are tests.
//
// A stage runs one task at a time, in its order. A task also waits for what it needs:
//
//   forward of piece k    the forward of piece k - 1 (for k > 0)
//   backward of piece k   the backward of piece k + 1, or the piece's own forward if k is last
//   weight of piece k     the piece's own backward
//
// A result of another stage arrives `send` after it is done; transfers overlap with computing and
// with each other. Averaging of gradients and the optimizer are outside: one step is what is run.
#pragma once

#include <cstdint>
#include <vector>

#include "base/quantities.h"
#include "base/result.h"
#include "sim/pipeline/schedule.h"

namespace lockstep::sim {

// The cost of one piece of the model for one micro-batch.
struct PieceCost {
  Picos forward{0};
  Picos backward{0};         // the whole backward pass if the program does not split it
  Picos weight{0};           // 0 if it does not
  Bytes activation{0};       // held from the start of forward to the end of backward …
  Bytes kept_for_weight{0};  // … of which this part stays to the end of weight
};

struct PipelineCosts {
  std::vector<PieceCost> pieces;  // in the model's order, shape.pieces() of them
  Picos send{0};                  // from one stage to another, in either direction
  // Where micro-batches differ: instead of `pieces`, the cost of micro-batch m on piece k at
  // k x micro_batches + m. Empty: they are alike.
  std::vector<PieceCost> unequal = {};

  const PieceCost& of(const PipelineShape& shape, std::int32_t piece,
                      std::int32_t micro_batch) const {
    if (unequal.empty()) return pieces[static_cast<std::size_t>(piece)];
    return unequal[static_cast<std::size_t>(piece) * static_cast<std::size_t>(shape.micro_batches) +
                   static_cast<std::size_t>(micro_batch)];
  }
};

struct TaskSpan {
  Picos start{0}, end{0};
};

struct PipelineRun {
  // From the first start to the last end.
  Picos time{0};
  // The longest time that any stage takes from the start of its first task to the end of its last.
  // Without a barrier between steps this is the cost of a step, as measured in arXiv 2401.10241. It
  // equals `time` if the stage that starts first also ends last, as in all schedules that do not
  // split the backward pass.
  Picos period{0};
  std::vector<Picos> busy;                   // by stage: the sum of its tasks' times
  std::vector<Picos> idle;                   // period - busy
  std::vector<std::int64_t> peak_in_flight;  // by stage: peak_in_flight() of the program
  std::vector<Bytes> peak_bytes;             // by stage: the most activations held at once
  std::vector<std::vector<TaskSpan>> spans;  // by stage, as the program's tasks
};

// The tasks on the longest path, from the first to the last: each starts when the one before it
// ends, or when what that one sent arrives. O(length of the path x tasks of a stage).
struct PipelineStep {
  std::int32_t stage = 0;
  std::size_t task = 0;  // index in program.tasks[stage]
};
std::vector<PipelineStep> longest_path(const PipelineProgram& program, const PipelineRun& run);

// Runs the program. O(tasks) time and memory. Errors: costs for another number of pieces, a
// negative cost, times or bytes whose sum is out of range, or a program whose tasks wait for each
// other in a cycle (never one of make_pipeline()'s); the message names the stage and its task.
Result<PipelineRun> run_pipeline(const PipelineProgram& program, const PipelineCosts& costs);

}  // namespace lockstep::sim
