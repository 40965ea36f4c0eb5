// The dummy image: a blank picture sent through the image path of a text-only batch, so that every
// rank computes gradients for the same parameters.
#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/models/contrastive.h"

namespace lockstep {

// A scalar that depends on every parameter that a batch with images trains and a text-only batch
// does not, and whose value is 0: added to the loss, it gives these parameters gradients of 0. Not
// added, it changes nothing, which is the mistake that `dummy_image_outside_graph` makes.
//
// The picture goes through BatchNorm in evaluation mode: blank pictures must not enter the running
// statistics. The encoder is in training mode again afterwards if it was before.
at::Tensor dummy_image_term(ContrastiveModel& model);

}  // namespace lockstep
