// The text form of a trace: one JSON object per line, a file per rank (docs/trace-format.md).
#pragma once

#include <ostream>
#include <string>
#include <string_view>

#include "base/result.h"
#include "trace/run.h"

namespace lockstep::trace {

// What is said of a line that the text ends in: its writer died in it, or still writes.
inline constexpr std::string_view kCutOffLine = "the line was cut off";

// Reads one rank's trace from memory. `file` names it in errors. Damaged lines are counted, with
// file and line, and skipped; so is a line that was cut off at the end of the text. Blank lines
// are ignored. O(bytes).
// Errors: no usable header (then nothing can be said whose trace it is), or a version that this
// reader does not know.
Result<RankTrace> read_text_trace(std::string_view text, const std::string& file, Tables& tables);

// Writes one rank's trace: the keys of docs/trace-format.md in their order, and no others. What was
// not recorded is left out. Reading it back gives an equal trace.
void write_text_trace(std::ostream& out, const RankTrace& trace, const Tables& tables);

}  // namespace lockstep::trace
