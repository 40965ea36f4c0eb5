// Runs a pipeline's program: when each task starts and ends, what each stage waits and holds.
//
// The time is the longest path through the graph of the program and of what the tasks need of each
// other, found by running it; no formula of any schedule stands behind it. So unequal stages, a
// transfer time and an order of one's own come out as right as the textbook cases, whose closed
// forms are tests.
//
// A stage does one task at a time, in its order. A task also waits for what it needs:
//   forward of piece k    the forward of piece k - 1 (for k > 0)
//   backward of piece k   the backward of piece k + 1, or the piece's own forward where k is last
//   weight of piece k     the piece's own backward
// What another stage computed arrives `send` after it is done; transfers overlap with computing and
// with each other. Weights are updated and gradients averaged outside: one step is what is run.
#pragma once

#include <cstdint>
#include <vector>

#include "base/quantities.h"
#include "base/result.h"
#include "sim/pipeline/schedule.h"

namespace lockstep::sim {

// Of one piece of the model, for one micro-batch.
struct PieceCost {
  Picos forward{0};
  Picos backward{0};         // the whole of it where the program does not split
  Picos weight{0};           // 0 where it does not
  Bytes activation{0};       // held from the start of forward to the end of backward …
  Bytes kept_for_weight{0};  // … of which so much stays to the end of weight
};

struct PipelineCosts {
  std::vector<PieceCost> pieces;  // in the model's order, shape.pieces() of them
  Picos send{0};                  // from one stage to another, either way
};

struct TaskSpan {
  Picos start{0}, end{0};
};

struct PipelineRun {
  // From the first start to the last end.
  Picos time{0};
  // The longest that any stage is at work, from its first task's start to its last one's end. Steps
  // without a barrier between them follow one another so: it is the step's cost by the measure of
  // arXiv 2401.10241. Equal to `time` where the stage that starts first also ends last, as in all
  // schedules that do not split the backward pass.
  Picos period{0};
  std::vector<Picos> busy;                   // by stage: its tasks' times together
  std::vector<Picos> idle;                   // period - busy
  std::vector<std::int64_t> peak_in_flight;  // forwards begun whose (last) backward part has not
                                             // ended, at most; chunks count one by one
  std::vector<Bytes> peak_bytes;             // activations held at once, at most
  std::vector<std::vector<TaskSpan>> spans;  // by stage, as the program's tasks
};

// Costs O(tasks) time and memory.
// Errors: costs that are not `pieces()` many, a negative one, times that together leave the clock's
// range, bytes that leave that of 64 bits, or a program whose tasks wait for each other in a circle
// (never one of make_pipeline's): the message says which stage stands where.
Result<PipelineRun> run_pipeline(const PipelineProgram& program, const PipelineCosts& costs);

}  // namespace lockstep::sim
