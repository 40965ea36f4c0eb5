// DummyFill: a batch without images gets a dummy image, so that its rank computes gradients (of 0)
// for the image path, too. The option decides what happens to these gradients:
//
//  dummy-image    They are averaged like any others: over the world, which dilutes the gradient
//                 of the image path by the ranks without images, or over the contributors.
//  gradient-mask  A dummy's gradient is replaced by exact zeros before it is reduced (it may be NaN
//                 where weights are infinite). If no rank had an image, the gradients are removed,
//                 so that neither weight decay nor momentum moves the image path.
//  empty-image    As dummy-image, with a tensor of no images: cheaper, where all layers take one.
#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/models/contrastive.h"
#include "runtime/remedies/remedy.h"

namespace lockstep::runtime {

enum class DummyBatchNorm {
  passed_by,  // evaluation mode: blank pictures do not enter the running statistics
  learns,     // training mode: they do (Fault::dummy_in_batchnorm)
};

class DummyFill : public Remedy {
 public:
  DummyFill(const Scenario::Remedy& options, RemedyParts parts);

  void before_step(std::vector<Batch>& batches) override;
  at::Tensor loss(const Batch& batch) override;
  void after_sync() override;

 protected:
  // Overridden by runtime/faults/ to make a deliberate mistake.
  // A term of the loss that depends on the image path.
  virtual at::Tensor dummy();
  virtual DummyBatchNorm batch_norm() const { return DummyBatchNorm::passed_by; }
  virtual at::Tensor joined(const at::Tensor& loss, const at::Tensor& dummy) const {
    return loss + dummy;
  }
  // Whether parameters to which no rank contributed lose their gradients and so stay unchanged.
  virtual bool leaves_unused() const { return masks(); }
  virtual bool averages_over_contributors() const {
    return options_.average == Scenario::Remedy::Average::contributors;
  }

 private:
  bool masks() const { return options_.kind == Scenario::Remedy::Kind::gradient_mask; }

  Scenario::Remedy options_;
  std::vector<at::Tensor> image_path_;  // the optimised parameters that need images
  std::int64_t passes_ = 0;             // micro-batches of this step, on this rank
  std::int64_t contributions_ = 0;      // … that had images
  bool in_dummy_pass_ = false;
};

// The dummy image: a blank picture sent through the image path for a text-only batch, so that every
// rank computes gradients for the same parameters.

// A scalar with the value 0 that depends on every parameter that a batch with images trains and a
// text-only batch does not. Added to the loss, it gives these parameters gradients of 0; if it is
// not added, nothing changes.
//
// The picture is one pixel: the encoders average over the picture at the end, so they take any
// size. In training mode it is full-sized, because BatchNorm needs more than one value. The value
// is 0 even if a feature is not finite. The encoder's mode is restored. `images` 0: a tensor
// without pictures, which the layers still pass on and differentiate.
at::Tensor dummy_image_term(ContrastiveModel& model, DummyBatchNorm batch_norm,
                            std::int64_t images = 1);

}  // namespace lockstep::runtime
