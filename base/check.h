// CHECK: for our own bugs. Bad input is a Result, a defect in a user's program is a finding. Aborts
// with file, line and message, in every build type.
#pragma once

#include <string_view>

namespace lockstep {

// Prints "file:line: check failed: condition: message" to stderr and aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               std::string_view message);

}  // namespace lockstep

#define LOCKSTEP_CHECK(condition, message)                               \
  do {                                                                   \
    if (!(condition)) [[unlikely]]                                       \
      ::lockstep::check_failed(__FILE__, __LINE__, #condition, message); \
  } while (false)
