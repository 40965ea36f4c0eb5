// Features of all ranks' batches, for a contrastive loss over all of them.
//
// Source of the idea and of its gradient: "loss local, features global" of OpenCLIP
// (Cherti et al., 2023, arXiv:2212.07143; gather_features with local_loss and gather_with_grad):
// each rank computes the rows of its own pairs against all columns; the gradient of a gathered row
// is the sum over the ranks that used it, so a reduce-scatter. The mean of the ranks' gradients is
// then that of the whole batch's loss.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "runtime/record/recorder.h"

namespace lockstep {

class FeatureGather {
 public:
  // `with_gradient` false: what other ranks do with this rank's features trains nothing, which is
  // wrong. `recorder` must outlive it.
  FeatureGather(c10::intrusive_ptr<c10d::ProcessGroup> group, Recorder& recorder,
                bool with_gradient)
      : group_(std::move(group)), recorder_(recorder), with_gradient_(with_gradient) {}

  struct Gathered {
    at::Tensor all;       // [sum of all ranks' rows, width]
    std::int64_t offset;  // of this rank's first row
  };
  // [rows, width] of this rank; ranks may have different numbers of rows, none included.
  // Collective; the backward of `all` is collective too, wherever it is reached. `name` is what the
  // trace calls the features. Throws what c10d throws.
  Gathered gather(const at::Tensor& features, const std::string& name);

 private:
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  Recorder& recorder_;
  bool with_gradient_;
};

}  // namespace lockstep
