#include "runtime/data/load_item.h"

namespace lockstep {

Result<LoadedItem> load_item(const ItemRecipe& recipe, std::int64_t index,
                             std::span<float> pixels) {
  const Manifest& data = *recipe.data;
  if (index < 0 || index >= data.size()) {
    return Error{"the data set has no item " + std::to_string(index), {}, ""};
  }
  const ManifestItem& item = data.item(index);
  if (!item.problem.empty()) return Error{item.problem, item.place, ""};
  LoadedItem out;
  if (item.image) {
    const Result<std::string> bytes = data.read_image(index);
    if (!bytes) return bytes.error();
    const bool in_archive = item.image->size >= 0;
    Result<RgbImage> image = decode_image(
        *bytes, in_archive ? item.image->file + ":" + item.image->name : item.image->file);
    if (!image) return image.error();
    transform_image(*image, recipe.image, pixels);
    out.damage = std::move(image->damage);
    out.has_image = true;
  }
  if (item.text) {
    out.has_text = true;
    if (recipe.tokenizer != nullptr) {
      out.tokens = recipe.tokenizer->encode(*item.text, recipe.max_length);
    }
  }
  out.key = data.key(index);
  return out;
}

}  // namespace lockstep
