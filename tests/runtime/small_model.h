// The small encoders on the words of "shapes", for tests.
#pragma once

#include "runtime/data/shapes.h"
#include "runtime/models/contrastive.h"

namespace lockstep {

inline InputSpec words_of_shapes() {
  return {.side = kImageSide,
          .vocabulary = static_cast<std::int64_t>(vocabulary().size()),
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
