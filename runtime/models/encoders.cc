#include "runtime/models/encoders.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <ATen/ATen.h>

#include "base/check.h"
#include "base/text.h"
#include "runtime/data/shapes.h"
#include "runtime/data/wordpiece.h"
#include "runtime/models/bert.h"
#include "runtime/models/parameters.h"
#include "runtime/models/resnet.h"
#include "runtime/models/small_encoders.h"

namespace lockstep::runtime {
namespace {

// Both small encoders end in features of this width, so that their projections have one shape: with
// all else frozen, only their names distinguish their gradients.
constexpr int kSmallWidth = 64;

// Fills in what every image encoder with front() and back() offers.
template <class Model>
ImageTower image_tower(Model model, std::int64_t width, WeightNames names) {
  ImageTower tower;
  tower.module = model.ptr();
  tower.width = width;
  tower.names = std::move(names);
  tower.encode = [model](const at::Tensor& images) mutable { return model(images); };
  tower.front = [model](const at::Tensor& images) mutable { return model->front(images); };
  tower.back = [model](const at::Tensor& inner) mutable { return model->back(inner); };
  tower.in_front = [model](std::string_view parameter) { return model->in_front(parameter); };
  return tower;
}

// The same of a text encoder.
template <class Model>
TextTower text_tower(Model model, std::int64_t width, WeightNames names) {
  TextTower tower;
  tower.module = model.ptr();
  tower.width = width;
  tower.names = std::move(names);
  tower.encode = [model](const at::Tensor& ids, const at::Tensor& mask) mutable {
    return model(ids, mask);
  };
  tower.front = [model](const at::Tensor& ids, const at::Tensor& mask) mutable {
    return model->front(ids, mask);
  };
  tower.back = [model](const at::Tensor& inner, const at::Tensor& mask) mutable {
    return model->back(inner, mask);
  };
  tower.in_front = [model](std::string_view parameter) { return model->in_front(parameter); };
  return tower;
}

// The next four create an encoder with random weights.

ImageTower tower_of(const ResNetOptions& options) {
  return image_tower(ResNet(options), options.feature_width(), WeightNames::torchvision());
}

ImageTower small_image_tower() { return image_tower(ImageEncoder(kSmallWidth), kSmallWidth, {}); }

// `input` gives the vocabulary's size, and the smallest number of positions.
TextTower tower_of(BertOptions options, const InputSpec& input) {
  options.vocabulary = input.vocabulary;
  options.positions = std::max(options.positions, input.max_tokens);
  BertEncoder model(options);
  freeze(*model, {"pooler."});  // unused here: it would get no gradient, and stop DDP
  return text_tower(model, options.width, WeightNames::hugging_face());
}

TextTower small_text_tower(const InputSpec& input) {
  TextEncoder model(static_cast<int>(input.vocabulary), static_cast<int>(input.max_tokens),
                    kSmallWidth);
  TextTower tower = text_tower(model, kSmallWidth, {});
  tower.causal = true;
  return tower;
}

struct ImageEntry {
  std::string_view name;
  int side;  // of the pictures that it was made for
  ImageTower (*make)();
};
constexpr std::array kImageEncoders = {
    ImageEntry{"resnet-50", 224, [] { return tower_of(ResNetOptions::resnet50()); }},
    ImageEntry{"resnet-18", 224, [] { return tower_of(ResNetOptions::resnet18()); }},
    ImageEntry{"resnet-tiny", 32, [] { return tower_of(ResNetOptions::resnet_tiny()); }},
    ImageEntry{"resnet-small", kImageSide, small_image_tower},
};

struct TextEntry {
  std::string_view name;
  int tokens;      // of the items that it was made for
  bool of_shapes;  // made for the vocabulary of "shapes" and short texts; else for BERT's 30522
  TextTower (*make)(const InputSpec& input);
};
constexpr int kPublishedTokens = static_cast<int>(kDefaultMaxLength);
constexpr std::array kTextEncoders = {
    TextEntry{"bert-base", kPublishedTokens, false,
              [](const InputSpec& in) { return tower_of(BertOptions::bert_base(), in); }},
    TextEntry{"bert-tiny", kPublishedTokens, false,
              [](const InputSpec& in) { return tower_of(BertOptions::bert_tiny(), in); }},
    TextEntry{"minilm", kPublishedTokens, false,
              [](const InputSpec& in) { return tower_of(BertOptions::minilm(), in); }},
    TextEntry{"bert-small", 32, true, small_text_tower},
};

// Null where there is none.
template <class Entries>
auto catalog_entry(const Entries& entries, const std::string& name) -> decltype(entries.data()) {
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&](const auto& entry) { return entry.name == name; });
  return found == entries.end() ? nullptr : &*found;
}

CatalogModel to_try(const ImageEntry& entry) {
  const ImageTower tower = entry.make();
  return {tower.module, tower.names, c10::str("a 3x", entry.side, "x", entry.side, " picture"),
          [tower, side = entry.side](std::int64_t batch) {
            return tower.encode(at::randn({batch, 3, side, side}));
          }};
}

CatalogModel to_try(const TextEntry& entry) {
  InputSpec input;
  input.vocabulary = entry.of_shapes
                         ? static_cast<std::int64_t>(kSpecialPieces.size() + caption_words().size())
                         : BertOptions::bert_base().vocabulary;
  input.max_tokens = entry.of_shapes ? kMaxTokens : entry.tokens;
  const TextTower tower = entry.make(input);
  return {
      tower.module, tower.names, c10::str(input.max_tokens, " tokens"),
      [tower, input](std::int64_t batch) {
        const at::Tensor ids = at::randint(input.vocabulary, {batch, input.max_tokens}, at::kLong);
        const at::Tensor mask = at::ones_like(ids);
        return mean_of_tokens(tower.encode(ids, mask), mask);
      }};
}

}  // namespace

const std::vector<std::string>& model_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const ImageEntry& entry : kImageEncoders) all.emplace_back(entry.name);
    for (const TextEntry& entry : kTextEncoders) all.emplace_back(entry.name);
    return all;
  }();
  return names;
}

ImageTower make_image_tower(const std::string& name) {
  const ImageEntry* entry = catalog_entry(kImageEncoders, name);
  LOCKSTEP_CHECK(entry != nullptr, "an image encoder without an implementation");
  return entry->make();
}

TextTower make_text_tower(const std::string& name, const InputSpec& input) {
  const TextEntry* entry = catalog_entry(kTextEncoders, name);
  LOCKSTEP_CHECK(entry != nullptr, "a text encoder without an implementation");
  return entry->make(input);
}

int picture_side(const std::string& image_encoder) {
  const ImageEntry* entry = catalog_entry(kImageEncoders, image_encoder);
  LOCKSTEP_CHECK(entry != nullptr, "an image encoder of the catalog");
  return entry->side;
}

int text_length(const std::string& text_encoder, bool of_shapes) {
  const TextEntry* entry = catalog_entry(kTextEncoders, text_encoder);
  LOCKSTEP_CHECK(entry != nullptr, "a text encoder of the catalog");
  return of_shapes && entry->of_shapes ? kMaxTokens : entry->tokens;
}

Result<CatalogModel> build_model(const std::string& name) {
  if (const ImageEntry* entry = catalog_entry(kImageEncoders, name)) return to_try(*entry);
  if (const TextEntry* entry = catalog_entry(kTextEncoders, name)) return to_try(*entry);
  return Error{c10::str("no model is called \"", printable(name), "\""),
               {},
               did_you_mean(name, model_names(), "choose " + join_and(model_names()))};
}

std::vector<TensorRow> parameters_of(const torch::nn::Module& module) {
  std::vector<TensorRow> rows;
  for (const auto& entry : module.named_parameters()) {
    const at::Tensor& tensor = entry.value();
    const auto type = stored_type_of(tensor.scalar_type());
    rows.push_back({entry.key(), type ? std::string(name_of(*type)) : "?", tensor.sizes().vec(),
                    static_cast<std::uint64_t>(tensor.numel()), tensor.nbytes()});
  }
  return rows;
}

}  // namespace lockstep::runtime
