// Batches made of "shapes" by hand, without files, loader and tokenizer: for tests of what trains
// on them.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "runtime/data/shapes.h"
#include "runtime/job/scenario.h"
#include "runtime/models/batch.h"

namespace lockstep {

// Token ids. A sentence is [start, words…, end, pad…]; the first of caption_words() is kFirstWord.
inline constexpr std::int64_t kPadToken = 0;
inline constexpr std::int64_t kStartToken = 1;
inline constexpr std::int64_t kEndToken = 2;
inline constexpr std::int64_t kFirstWord = 3;

std::array<std::int64_t, runtime::kMaxTokens> tokens(const runtime::Picture& picture);

// `rule` (may be null) overrides which modalities the items have: with image, all of them show
// theirs, also those that the data set keeps as text only; without, none does.
runtime::Batch make_batch(const runtime::ShapesDataset& data,
                          const std::vector<std::int64_t>& indices,
                          const runtime::Scenario::Data::Rule* rule);

}  // namespace lockstep
