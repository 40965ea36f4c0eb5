// The dummy image: a blank picture sent through the image path of a text-only batch, so that every
// rank computes gradients for the same parameters.
#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/models/contrastive.h"

namespace lockstep {

enum class DummyBatchNorm {
  passed_by,  // evaluation mode: blank pictures must not enter the running statistics
  learns,     // training mode: they do, which is a mistake
};

// A scalar that depends on every parameter that a batch with images trains and a text-only batch
// does not, and whose value is 0: added to the loss, it gives these parameters gradients of 0. Not
// added, it changes nothing.
//
// The picture is one pixel: the encoders average over what is left of the picture, so they take any
// size (in training mode it is a whole one, of which BatchNorm needs more than one value). The
// value is 0 even where a feature is not finite. The encoder's mode is what it was afterwards.
at::Tensor dummy_image_term(ContrastiveModel& model, DummyBatchNorm batch_norm);

}  // namespace lockstep
