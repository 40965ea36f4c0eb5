// Writing a file so that nobody ever sees half of it.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace lockstep {

// Writes `bytes` beside `path` and renames the result into place. Follows a link at `path`; what is
// no regular file (/dev/null, a pipe) is written to directly.
// Errors: the folder does not exist or may not be written, no space; the old file then stays.
Status write_file(const std::string& path, std::string_view bytes);

}  // namespace lockstep
