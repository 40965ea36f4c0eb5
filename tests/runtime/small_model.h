// The small encoders on batches of "shapes" (support/shapes_batch.h), for tests.
#pragma once

#include "runtime/models/contrastive.h"
#include "support/shapes_batch.h"

namespace lockstep {

inline InputSpec words_of_shapes() {
  return {.side = kImageSide,
          .vocabulary = kFirstWord + static_cast<std::int64_t>(caption_words().size()),
          .max_tokens = kMaxTokens,
          .pad = kPadToken,
          .end = kEndToken,
          .mask = kPadToken};
}

// With fresh weights from Torch's random numbers; embeddings are 16 wide.
inline ContrastiveModel small_model() {
  Scenario::Model options;
  options.embed_dim = 16;
  return ContrastiveModel(options, words_of_shapes());
}

}  // namespace lockstep
