// The stages of a pipeline, and the order in which each computes, sends and receives.
//
// Stages form a tree that ends in the last one, which computes the loss. A stage receives what the
// stages before it computed of a micro-batch, computes (forward), and sends the result on. Later it
// receives the answer, the gradient of what it sent, goes back through its part (backward), and
// answers the stages before it. The first stages have nobody before them, the last nobody behind.
//
//   two stages    image → text
//   four stages   image_front → image_back ↘
//                              text_front  → text_back
//
// GPipe (Huang et al., 2019, arXiv:1811.06965): all forwards, then all backwards; each stage keeps
// the activations of every micro-batch. 1F1B (Narayanan et al., 2019, PipeDream, section 3.2):
// after as many forwards as there are stages behind it, a stage does one forward and one backward
// in turn, then the backwards that are left; with d stages behind it, it keeps those of d + 1
// micro-batches.
//
// Why it cannot get stuck: a send is only begun, and the stage goes on; that it arrived is waited
// for (settle) no sooner than something that the other stage did after taking it has come back, or
// at the end, when the other stage has nothing left to wait for. A stage that waited for every send
// at once would not do under 1F1B: neighbours send to each other at the same time there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/job/scenario.h"

namespace lockstep::runtime {

struct PipelineStage {
  std::string name;
  std::vector<int> inputs;    // stages whose results it takes
  std::optional<int> output;  // the stage that takes its results; none: the last
  int behind = 0;             // stages from here to the last one, along the outputs
};

// The stages of a replica of 2 or 4 ranks, in the order of the ranks.
const std::vector<PipelineStage>& pipeline_stages(int count);

struct PipelineOp {
  enum class Kind : std::uint8_t {
    forward,
    backward,
    receive,         // the inputs' results of this micro-batch; its forward uses them
    send,            // begin to send this stage's result
    settle,          // wait until it has been taken
    receive_answer,  // its gradient; the backward uses it
    answer,          // begin to send the gradients of the inputs' results
    settle_answer,   // wait until they have been taken
  } kind;
  int micro_batch = 0;  // from 0

  friend bool operator==(const PipelineOp&, const PipelineOp&) = default;
};

// A step of `stage`: every micro-batch once forward and once backward, every message once sent and
// settled or received. Cost: O(micro_batches). micro_batches must be positive.
//
// With `crossed` (Fault::crossed_stages) the stages' orders form a cycle, with three micro-batches
// or more. 1F1B: each stage waits for every send at once, and neighbours both send first. GPipe:
// the first stages follow 1F1B instead, and they and the next both wait to receive.
std::vector<PipelineOp> pipeline_schedule(const PipelineStage& stage, int micro_batches,
                                          Scenario::Strategy::Schedule schedule,
                                          bool crossed = false);

}  // namespace lockstep::runtime
