// Writing a whole file.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace lockstep {

// Makes or replaces the file. Errors: it cannot be opened, or not all of it can be written (a full
// disk); what is there of it then stays.
Status write_file(const std::string& path, std::string_view bytes);

}  // namespace lockstep
