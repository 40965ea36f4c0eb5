// --output KIND=PATH, as all commands have it: which forms are wanted, and where they go.
//
//   Result<std::vector<OutputTarget>> targets = parse_output_targets(given, {"report", kinds});
//   Status written = write_targets(*targets, quiet, [&](const std::string& kind, bool to_stdout) {
//     return kind == "json" ? as_json(result) : as_text(result);
//   });
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace lockstep::reports {

struct OutputTarget {
  std::string kind;
  std::string path;  // "-": standard output

  bool to_stdout() const { return path == "-"; }
};

// What a command can write.
struct OutputForms {
  std::string noun;                // "report", "result"; for messages
  std::vector<std::string> kinds;  // "text" is among them: it is what people read
};

// Errors: no "=", a kind that is not among `forms`, an empty path.
Result<OutputTarget> parse_output_target(const std::string& text, const OutputForms& forms);

// All of them. Errors: as above, and two that take standard output.
Result<std::vector<OutputTarget>> parse_output_targets(const std::vector<std::string>& texts,
                                                       const OutputForms& forms);

// The content of one form; asked for once per target. Ends with a line break.
using OutputContent = std::function<std::string(const std::string& kind, bool to_stdout)>;

// Prints "text" on standard output, unless `quiet` or a target takes standard output for itself;
// then writes every target. A file is complete or not there: it is written beside its place and
// renamed.
// Errors: what cannot be written.
Status write_targets(const std::vector<OutputTarget>& targets, bool quiet,
                     const OutputContent& content);

}  // namespace lockstep::reports
