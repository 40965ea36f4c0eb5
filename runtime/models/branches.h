// Which part of the model a parameter belongs to, by its name.
#pragma once

#include <string_view>

namespace lockstep {

enum class Branch {
  image,   // image.*, image_proj.*, logit_scale: without an image in the batch, no gradient
  text,    // text.*, text_proj.*, text_head.*
  fusion,  // fusion.*: needs both
};

inline Branch branch_of(std::string_view parameter) {
  if (parameter.starts_with("image.") || parameter.starts_with("image_proj.") ||
      parameter == "logit_scale") {
    return Branch::image;
  }
  return parameter.starts_with("fusion.") ? Branch::fusion : Branch::text;
}

// Whether a batch without images leaves the parameter without a gradient.
inline bool needs_images(std::string_view parameter) {
  return branch_of(parameter) != Branch::text;
}

}  // namespace lockstep
