#include "base/result.h"

#include <string_view>

#include "base/text.h"

namespace lockstep {

namespace {

std::string printable_lines(std::string_view text) {
  std::string out;
  for (std::size_t end; (end = text.find('\n')) != std::string_view::npos;) {
    out += printable(text.substr(0, end)) + "\n";
    text.remove_prefix(end + 1);
  }
  return out + printable(text);
}

}  // namespace

std::string Place::str() const {
  std::string out = file;
  if (line > 0) out += (out.empty() ? "line " : ":") + std::to_string(line);
  if (line > 0 && column > 0) out += ":" + std::to_string(column);
  return out;
}

std::string Error::str() const {
  std::string out = printable(place.str());
  if (!out.empty()) out += ": ";
  out += "error: " + printable_lines(message);
  if (!fix.empty()) out += "\n  fix: " + printable_lines(fix);
  return out;
}

std::string Error::summary() const {
  std::string out = printable(place.str());
  if (!out.empty()) out += ": ";
  return out + printable(message);
}

}  // namespace lockstep
