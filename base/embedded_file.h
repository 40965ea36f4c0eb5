// A file of the repository that is part of the program, so that no file is needed at run time.
// lockstep_embed (cmake/LockstepTargets.cmake) makes the function that gives it.
#pragma once

#include <string_view>

namespace lockstep {

struct EmbeddedFile {
  std::string_view path;  // from the top of the repository; both are literals,
  std::string_view text;  // so that a '\0' follows them
};

}  // namespace lockstep
