// The version of the program that wrote a report.
#pragma once

#include <string_view>

namespace lockstep {

// "lockstep 0.1.0"; the number is the CMake project's.
std::string_view tool_version();

}  // namespace lockstep
