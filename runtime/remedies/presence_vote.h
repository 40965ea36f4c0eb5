// PresenceVote: the ranks ask each other whether all of them have images. Where one has not, all of
// them train on text alone in this step, so that they compute gradients for the same parameters. It
// costs an all-reduce of one number in each step, and the images of that step.
#pragma once

#include "runtime/remedies/remedy.h"

namespace lockstep {

class PresenceVote : public Remedy {
 public:
  using Remedy::Remedy;
  void before_step(std::vector<Batch>& batches) override;
};

}  // namespace lockstep
