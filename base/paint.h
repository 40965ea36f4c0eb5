// Paint: terminal colours, or nothing.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// Whoever writes to a terminal decides `on`; the text is the same either way.
struct Paint {
  bool on = false;

  std::string bold(std::string_view text) const { return wrapped(text, "1"); }
  std::string dim(std::string_view text) const { return wrapped(text, "2"); }
  std::string red(std::string_view text) const { return wrapped(text, "1;31"); }
  std::string yellow(std::string_view text) const { return wrapped(text, "1;33"); }
  std::string green(std::string_view text) const { return wrapped(text, "1;32"); }

 private:
  std::string wrapped(std::string_view text, std::string_view code) const {
    if (!on || text.empty()) return std::string(text);
    return "\x1b[" + std::string(code) + "m" + std::string(text) + "\x1b[0m";
  }
};

}  // namespace lockstep
