// ShapeBatches: a rank's batches as meta tensors, of the shapes that the scenario's data set would
// give, without reading any of it.
#pragma once

#include <vector>

#include "base/result.h"
#include "runtime/job/scenario.h"
#include "runtime/models/batch.h"
#include "runtime/models/input_spec.h"

namespace lockstep {

class ShapeBatches {
 public:
  // Reads the vocabulary of a manifest, for its size. Keeps a reference to `scenario`, whose
  // modality rules say for every step of the rank what its batch holds; where none fits, it has
  // images. Errors: those of the vocabulary.
  static Result<ShapeBatches> open(const Scenario& scenario, int rank);

  const InputSpec& input() const { return input_; }

  // The micro-batches of a step; without indices: they are of no items.
  std::vector<Batch> step(std::int64_t step) const;

 private:
  ShapeBatches(const Scenario& scenario, int rank, InputSpec input)
      : scenario_(scenario), rank_(rank), input_(input) {}

  const Scenario& scenario_;
  int rank_;
  InputSpec input_;
};

}  // namespace lockstep
