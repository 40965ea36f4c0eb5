#include "runtime/train/shape_batches.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "runtime/data/shapes_files.h"
#include "runtime/data/vocabulary.h"
#include "runtime/train/batch_source.h"

namespace lockstep {

Result<ShapeBatches> ShapeBatches::open(const Scenario& scenario, int rank) {
  const Result<Vocabulary> vocabulary = scenario.data.source == "shapes"
                                            ? Vocabulary::parse(shapes_pieces(), "shapes")
                                            : Vocabulary::open(scenario.data.vocab);
  if (!vocabulary) return vocabulary.error();
  return ShapeBatches(scenario, rank, input_of(scenario, *vocabulary));
}

std::vector<Batch> ShapeBatches::step(std::int64_t step) const {
  const Scenario::Data::Rule* rule = scenario_.rule_for(rank_, step);
  const bool images = rule == nullptr || std::find(rule->has.begin(), rule->has.end(),
                                                   Modality::image) != rule->has.end();
  const std::int64_t items = scenario_.train.batch_size;
  const auto numbers = at::TensorOptions().device(at::kMeta).dtype(at::kLong);
  const auto one = [&] {
    Batch batch;
    batch.tokens = at::empty({items, input_.max_tokens}, numbers);
    if (images) {
      batch.images = at::empty({items, 3, input_.side, input_.side}, at::device(at::kMeta));
      batch.image_rows = at::empty({items}, numbers);
    }
    return batch;
  };
  // Each with storages of its own, as they would have.
  std::vector<Batch> out;
  for (int i = 0; i < scenario_.micro_batches(rank_); ++i) out.push_back(one());
  return out;
}

}  // namespace lockstep
