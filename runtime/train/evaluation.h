// What the trained model can do, measured on items that it was not trained on.
#pragma once

#include "runtime/models/contrastive.h"
#include "runtime/train/batch_source.h"
#include "runtime/train/result.h"

namespace lockstep::runtime {

// Caption retrieval over `items` held-out items that have an image and a text: how often an image
// finds its own sentence first, and among the first 5 and 10, of all different sentences. Computes
// alone, without any collective, so one rank may do it while the others do not. The model is in
// training mode afterwards. Throws what reading the items throws.
Retrieval evaluate_retrieval(ContrastiveModel& model, const BatchSource& source, int items);

}  // namespace lockstep::runtime
