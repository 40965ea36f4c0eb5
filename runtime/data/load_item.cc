#include "runtime/data/load_item.h"

#include "base/text.h"

namespace lockstep {
namespace {

// Errors say where in the manifest the image stands.
Result<RgbImage> read_picture(const Manifest& data, std::int64_t index) {
  const ManifestItem& item = data.item(index);
  const auto of_item = [&](const Error& error) {
    return Error{"image \"" + printable(item.image->name) + "\": " + error.message, item.place,
                 error.fix};
  };
  const Result<std::string> bytes = data.read_image(index);
  if (!bytes) return of_item(bytes.error());
  Result<RgbImage> image = decode_image(*bytes, item.image->name);
  if (!image) return of_item(image.error());
  return image;
}

}  // namespace

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
    Result<RgbImage> image = read_picture(data, index);
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
