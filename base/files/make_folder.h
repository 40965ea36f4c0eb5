// Making folders.
#pragma once

#include <string>

#include "base/result.h"

namespace lockstep {

// Makes the folder and those above it that are missing; one that is there is fine. Errors: what the
// system refuses, with the path.
Status make_folder(const std::string& path);

}  // namespace lockstep
