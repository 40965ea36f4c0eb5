#include "runtime/models/fusion_shapes.h"

#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"
#include "runtime/models/safetensors_header.h"

namespace lockstep::runtime {
namespace {

using Shape = std::span<const std::int64_t>;

std::string words(Shape shape) {
  return shape_in_words(std::vector<std::int64_t>(shape.begin(), shape.end()));
}

Error width_error(const std::string& side, std::int64_t got, std::int64_t expected) {
  return {fmt::format("the fusion's {} projection takes features of width {} and got width {}",
                      side, expected, got),
          {},
          fmt::format("set the fusion's {} width to {}, or use the {} encoder that gives {}", side,
                      got, side, expected)};
}

Error swapped(const std::string& what) {
  return {fmt::format("{}: batch and sequence are swapped", what),
          {},
          "transpose the first two dimensions"};
}

}  // namespace

Status check_fusion_options(const FusionOptions& o) {
  const std::pair<const char*, std::int64_t> sizes[] = {{"image width", o.image_width},
                                                        {"text width", o.text_width},
                                                        {"width", o.width},
                                                        {"number of heads", o.heads},
                                                        {"number of layers", o.layers},
                                                        {"feed-forward width", o.feed_forward},
                                                        {"number of outputs", o.outputs}};
  constexpr std::int64_t kLargest = 1'000'000;
  for (const auto& [name, size] : sizes) {
    if (size < 1 || size > kLargest) {
      return Error{fmt::format("the fusion's {} is {}", name, size), {}, "use 1 to a million"};
    }
  }
  if (o.width % o.heads != 0) {
    return Error{
        fmt::format("the fusion's width of {} cannot be shared by {} heads", o.width, o.heads),
        {},
        "choose a width that is a multiple of the heads"};
  }
  if (!(o.dropout >= 0 && o.dropout < 1)) {
    return Error{fmt::format("the fusion's dropout is {}, not a share from 0 to below 1",
                             fixed(o.dropout, 2)),
                 {},
                 "0.1 is usual, 0 turns it off"};
  }
  return Status::ok();
}

Status check_fusion_widths(const FusionOptions& options, std::int64_t image_width,
                           std::int64_t text_width) {
  if (image_width != options.image_width) {
    return width_error("image", image_width, options.image_width);
  }
  if (text_width != options.text_width) return width_error("text", text_width, options.text_width);
  return Status::ok();
}

Status check_fusion_shapes(const FusionOptions& options, Shape image, Shape text, Shape mask) {
  if (image.size() != 2 && image.size() != 3) {
    return Error{
        fmt::format("the fusion takes image features [n, width] or [n, regions, width] and got {}",
                    words(image)),
        {},
        "pool or flatten the picture's height and width into regions"};
  }
  if (text.size() != 3 || mask.size() != 2) {
    return Error{
        fmt::format("the fusion takes text [n, t, width] with a mask [n, t] and got {} with {}",
                    words(text), words(mask)),
        {},
        "give it the hidden states of all tokens, not a pooled sentence"};
  }
  if (const Status fit = check_fusion_widths(options, image.back(), text.back()); !fit) return fit;
  const std::int64_t items = image[0];
  if (text[0] != mask[0] || text[1] != mask[1]) {
    const std::string what =
        fmt::format("the text {} does not fit its mask {}", words(text), words(mask));
    if (text[0] == mask[1] && text[1] == mask[0]) return swapped(what);
    return Error{what, {}, "give both for the same items and tokens"};
  }
  if (text[0] != items) {
    const std::string what = fmt::format("the image features {} are of {}, the text {} of {}",
                                         words(image), plural(items, "item"), words(text), text[0]);
    if (text[1] == items || (image.size() == 3 && image[1] == text[0])) return swapped(what);
    return Error{what, {}, "give an image for each text"};
  }
  if (text[1] == 0 || (image.size() == 3 && image[1] == 0)) {
    return Error{fmt::format("the fusion got nothing to attend to: image {}, text {}", words(image),
                             words(text)),
                 {},
                 "leave items without tokens or regions out"};
  }
  return Status::ok();
}

}  // namespace lockstep::runtime
