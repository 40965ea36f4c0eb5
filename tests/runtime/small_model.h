// The small encoders on batches of "shapes" (tests/support/shapes_batch.h), for tests.
#pragma once

#include "runtime/models/contrastive.h"
#include "tests/support/shapes_batch.h"

namespace lockstep::runtime {

inline InputSpec words_of_shapes() {
  return {.side = kImageSide,
          .vocabulary = kFirstWord + static_cast<std::int64_t>(caption_words().size()),
          .max_tokens = kMaxTokens,
          .pad = kPadToken,
          .end = kEndToken,
          .mask = kPadToken};
}

// With fresh weights from Torch's random numbers; embeddings are 16 wide.
inline ContrastiveModel small_model(
    Scenario::Model::Checkpointing checkpointing = Scenario::Model::Checkpointing::none) {
  Scenario::Model options;
  options.embed_dim = 16;
  options.activation_checkpointing = checkpointing;
  return ContrastiveModel(options, words_of_shapes());
}

// With the same weights each time.
inline ContrastiveModel seeded_model() {
  at::manual_seed(1);
  return small_model();
}

// … for ranks that are compared with one: its BatchNorm would see each rank's batch alone.
inline ContrastiveModel seeded_model_in_eval() {
  ContrastiveModel model = seeded_model();
  model->image_tower().module->eval();
  return model;
}

// Items of 64 that all have images, with them or without.
inline Batch items(std::int64_t from, std::int64_t count, bool with_images = true) {
  static const ShapesDataset data(64, 0.0, 1);
  std::vector<std::int64_t> indices;
  for (std::int64_t i = from; i < from + count; ++i) indices.push_back(i);
  static const Scenario::Data::Rule text_only{{}, {}, {Modality::text}};
  return make_batch(data, indices, with_images ? nullptr : &text_only);
}

}  // namespace lockstep::runtime
