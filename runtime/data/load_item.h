// One item, ready for the model: its image decoded and transformed, its text as token ids.
#pragma once

#include <span>
#include <vector>

#include "runtime/data/manifest.h"
#include "runtime/data/transform.h"
#include "runtime/data/wordpiece.h"

namespace lockstep {

// What is read of each item. All of it must outlive who reads.
struct ItemRecipe {
  const Manifest* data = nullptr;
  const WordPiece* tokenizer = nullptr;  // null: texts are not made into tokens
  ImageTransform image;
  std::size_t max_length = kDefaultMaxLength;  // tokens
};

struct LoadedItem {
  SampleKey key;
  bool has_image = false;
  bool has_text = false;
  std::vector<TokenId> tokens;  // without padding; empty without text or tokenizer
  std::string damage;           // what the image's decoder read over; empty for a sound one
};

// `pixels` takes the image, where the item has one: recipe.image.floats() of them.
// Errors: the item has a problem, its image cannot be read or decoded. Any thread may call it.
Result<LoadedItem> load_item(const ItemRecipe& recipe, std::int64_t index, std::span<float> pixels);

}  // namespace lockstep
