// Failures of the machine that CUDA, NCCL and LibTorch tell in their own words, and what to do.
#pragma once

#include <optional>
#include <string_view>

#include "base/result.h"

namespace lockstep {

// One sentence and a remedy for an exception's text; nothing where the text is none of these.
std::optional<Error> known_failure(std::string_view text);

}  // namespace lockstep
