#include "reports/csv_field.h"

#include "base/text.h"

namespace lockstep::reports {

std::string csv_field(std::string_view text) {
  constexpr std::string_view kFormula = "=+-@";
  std::string out = printable(text);
  if (!out.empty() && kFormula.find(out.front()) != std::string_view::npos) out = "'" + out;
  if (out.find_first_of(",\"'") == std::string::npos) return out;
  std::string quoted = "\"";
  for (const char c : out) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

}  // namespace lockstep::reports
