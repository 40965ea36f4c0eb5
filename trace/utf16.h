// Text in UTF-16, as PowerShell's redirections write it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lockstep::trace {

// The text in UTF-8, where the bytes begin with the byte order mark of UTF-16; otherwise nothing.
// What is no character becomes U+FFFD; half a character at the end is left out. O(bytes).
std::optional<std::string> utf8_of_utf16(std::string_view bytes);

}  // namespace lockstep::trace
