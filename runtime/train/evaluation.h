// Evaluation: caption retrieval on items that the model was not trained on.
#pragma once

#include "runtime/models/contrastive.h"
#include "runtime/train/batch_source.h"
#include "runtime/train/result.h"

namespace lockstep::runtime {

// Caption retrieval over `items` held-out items that have an image and a text: how often an image's
// own sentence ranks first, in the first 5 and in the first 10, among all distinct sentences.
// Issues no collective, so one rank may run it alone. Leaves the model in training mode. Throws
// what reading the items throws.
Retrieval evaluate_retrieval(ContrastiveModel& model, const BatchSource& source, int items);

}  // namespace lockstep::runtime
