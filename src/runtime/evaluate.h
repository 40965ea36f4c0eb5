// Caption retrieval: does the model find the sentence that belongs to a picture it never saw?
#pragma once

#include "runtime/data/shapes.h"
#include "runtime/models/contrastive.h"
#include "runtime/result.h"

namespace lockstep {

// For `items` held-out pictures, ranks the distinct captions among them by similarity; right where
// the picture's own caption comes first. Local: communicates with nobody. The model is in training
// mode again afterwards.
Retrieval evaluate_retrieval(ContrastiveModel& model, const ShapesDataset& data, int items);

}  // namespace lockstep
