// The stages of a pipeline, and the order in which each computes, sends and receives.
//
// Stages form a tree that ends in the last one, which computes the loss. For each micro-batch, a
// stage receives the results of the stages before it, computes (forward), and sends its result on.
// Later it receives the answer, the gradient of what it sent, computes its backward, and answers
// the stages before it. First stages have no inputs, the last has no output.
//
//  two stages    image → text
//  four stages   image_front → image_back ↘
//                             text_front  → text_back
//
// The order of forwards and backwards is the simulator's (stage_order(), sim/pipeline/schedule.h);
// here are the messages around them. Under GPipe each stage keeps the activations of every
// micro-batch, under 1F1B a stage with d stages after it those of d + 1.
//
// Why it cannot deadlock: a send is only started, and the stage continues. The stage waits for the
// send (settle) only when something has come back that the other stage did after taking the
// message, or at the end, when the other stage waits for nothing more. Waiting for each send at
// once would deadlock under 1F1B, where neighbours send to each other at the same time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/job/scenario.h"

namespace lockstep::runtime {

struct PipelineStage {
  std::string name;
  std::vector<int> inputs;    // stages whose results it receives
  std::optional<int> output;  // the stage that receives its results; none: the last
  int stages_after = 0;       // stages after this one, along the outputs
};

// The stages of a replica of 2 or 4 ranks, in the order of the ranks.
const std::vector<PipelineStage>& pipeline_stages(int count);

struct PipelineOp {
  enum class Kind : std::uint8_t {
    forward,
    backward,
    receive,         // the inputs' results of this micro-batch, for its forward
    send,            // start to send this stage's result
    settle,          // wait until the result has been taken
    receive_answer,  // the gradient of the result, for the backward
    answer,          // start to send the gradients of the inputs' results
    settle_answer,   // wait until the gradients have been taken
  } kind;
  int micro_batch = 0;  // from 0

  friend bool operator==(const PipelineOp&, const PipelineOp&) = default;
};

// The operations of `stage` in one step: every micro-batch once forward and once backward, every
// message sent once and settled, or received once. Cost: O(micro_batches). micro_batches must be
// positive.
//
// With `crossed` (Fault::crossed_stages) the stages' orders form a cycle if there are at least
// three micro-batches. 1F1B: each stage waits for every send at once, and neighbours both send
// first. GPipe: the first stages follow 1F1B instead, and they and the next stage both wait to
// receive.
std::vector<PipelineOp> pipeline_schedule(const PipelineStage& stage, int micro_batches,
                                          Scenario::Strategy::Schedule schedule,
                                          bool crossed = false);

}  // namespace lockstep::runtime
