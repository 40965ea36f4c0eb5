// The order in which a stage of the pipeline computes, sends and receives.
//
// There are two stages. The image stage encodes a micro-batch's images (forward), sends the
// features, receives their gradient and goes back through the encoder (backward). The text stage
// encodes the text, receives the features, computes the loss (forward), goes back (backward) and
// sends the features' gradient.
//
// GPipe (Huang et al., 2019, arXiv:1811.06965): all forwards, then all backwards; each stage keeps
// the activations of every micro-batch. 1F1B (Narayanan et al., 2019, PipeDream, section 3.2):
// after as many forwards as there are stages behind it, a stage does one forward and one backward
// in turn, then the backwards that are left; stage s of S keeps those of S - s micro-batches.
//
// Why it cannot get stuck: a send is only begun, and the stage goes on; that it arrived is waited
// for (settle) no sooner than something that the other stage did after taking it has come back, or
// at the end, when the other stage has nothing left to wait for. A stage that waited for every send
// at once would not do under 1F1B: both stages send at the same time there.
#pragma once

#include <cstdint>
#include <vector>

#include "job/scenario.h"

namespace lockstep {

enum class PipelineStage : std::uint8_t { image, text };
inline constexpr int kPipelineStages = 2;

struct PipelineOp {
  enum class Kind : std::uint8_t {
    forward,
    backward,
    receive,  // the other stage's message of this micro-batch; the next forward or backward uses it
    send,     // begin to send this stage's message of this micro-batch
    settle,   // wait until that message has been taken
  } kind;
  int micro_batch = 0;  // from 0

  friend bool operator==(const PipelineOp&, const PipelineOp&) = default;
};

// A step of `stage`: every micro-batch once forward and once backward, every message once sent and
// settled or received. Cost: O(micro_batches). micro_batches must be positive.
//
// With `crossed` (wrong on purpose) the two stages' orders close a circle, with three micro-batches
// or more. 1F1B: each stage waits for every send at once, and both send first. GPipe: the image
// stage follows 1F1B instead, and both stages wait to receive.
std::vector<PipelineOp> pipeline_schedule(PipelineStage stage, int micro_batches,
                                          Scenario::Strategy::Schedule schedule,
                                          bool crossed = false);

}  // namespace lockstep
