// What the targets of the two formats of pictures share.
#pragma once

#include "runtime/data/image.h"

namespace lockstep {

// A decoder's result: an error that says what is wrong and what to do, or a picture whose pixels
// are there, and that can be transformed.
void check_picture(const Result<runtime::RgbImage>& picture);

}  // namespace lockstep
