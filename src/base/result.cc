#include "base/result.h"

namespace lockstep {

std::string Place::str() const {
  std::string out = file;
  if (line > 0) out += (out.empty() ? "line " : ":") + std::to_string(line);
  if (line > 0 && column > 0) out += ":" + std::to_string(column);
  return out;
}

std::string Error::str() const {
  std::string out = place.str();
  if (!out.empty()) out += ": ";
  out += "error: " + message;
  if (!fix.empty()) out += "\n  fix: " + fix;
  return out;
}

}  // namespace lockstep
