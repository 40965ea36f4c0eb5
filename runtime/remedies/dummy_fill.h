// DummyFill: a batch without images gets a dummy image, so that its rank computes gradients (of 0)
// for the image path, too. What then becomes of these gradients is the option's:
//
//   dummy-image    they are averaged like any others: over the world, which dilutes the image
//   path's
//                  gradient by the ranks that had none, or over the contributors.
//   gradient-mask  what a dummy gives is replaced by exact zeros before it meets the others'
//                  (a dummy's own gradient may be NaN where weights are infinite), and where no
//                  rank had an image the gradients are taken away, so that neither weight decay nor
//                  momentum moves the image path.
#pragma once

#include "runtime/remedies/remedy.h"

namespace lockstep {

class DummyFill : public Remedy {
 public:
  DummyFill(const Scenario::Remedy& options, RemedyParts parts);

  void before_step(std::vector<Batch>& batches) override;
  at::Tensor loss(const Batch& batch) override;
  void after_sync() override;

 private:
  bool masks() const;

  Scenario::Remedy options_;
  std::vector<at::Tensor> image_path_;  // what is optimised of the parameters that need images
  std::int64_t passes_ = 0;             // micro-batches of this step, on this rank
  std::int64_t contributions_ = 0;      // … that had images
  bool in_dummy_pass_ = false;
};

}  // namespace lockstep
