// What the operating system refuses, as an Error: with its words, and what to do about it.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace lockstep {

// "<doing>: <the system's words>" about `path`; `code` is an errno. Never without a fix.
Error system_error(std::string_view doing, int code, const std::string& path);

}  // namespace lockstep
