// Text as people pass it on: quoted in a mail or a thread ("> " before each line), with bold lines
// ("**…**") or the colours of a terminal, copied out of a web page with its no-break spaces and
// entities ("&gt;").
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lockstep::trace {

// The text without these, line by line, so that numbers of lines stay; nothing where there is none
// of them in the head or the tail that are looked at, or where the bytes are no text. O(bytes).
std::optional<std::string> without_wrapping(std::string_view bytes);

}  // namespace lockstep::trace
