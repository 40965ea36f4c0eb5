// -o PATH or -o KIND=PATH, as all commands have it: which forms to write, and where to. Without a
// KIND the ending of the name chooses: report.html, findings.json.
//
//   Result<std::vector<OutputTarget>> targets = parse_output_targets(given, {"report", kinds});
//   Status written = write_targets(*targets, quiet, [&](const std::string& kind, bool to_stdout) {
//     return kind == "json" ? as_json(result) : as_text(result);
//   });
#pragma once

#include <cstddef>
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
  std::vector<std::string> kinds;  // includes "text", the form for people
};

// Errors: a kind that is not among `forms`, an ending that belongs to none of them, an empty path.
Result<OutputTarget> parse_output_target(const std::string& text, const OutputForms& forms);

// Parses several. Errors: as above; two targets on standard output.
Result<std::vector<OutputTarget>> parse_output_targets(const std::vector<std::string>& texts,
                                                       const OutputForms& forms);

// Whether the files of the targets could be written now (base/files/write_file.h), for commands
// that compute for long before they write. `made`: folders that the command makes itself; files in
// these are passed over. Errors: what write_targets() would find at the end, but for a full disk.
Status check_writable(const std::vector<OutputTarget>& targets,
                      const std::vector<std::string>& made = {});

// The content of a form, ending in a line break. Called once per target.
using OutputContent = std::function<std::string(const std::string& kind, bool to_stdout)>;

// Writes every file, then what goes to standard output: the target that asks for it, else "text"
// unless `quiet` is set. So a pipe that closes early loses no file. A file is written under another
// name and renamed, so it is complete or not there. Errors: what cannot be written.
Status write_targets(const std::vector<OutputTarget>& targets, bool quiet,
                     const OutputContent& content);

// How many columns a text for people may take: those of the terminal (stdout_columns()) where it
// goes to standard output, kReportColumns in a file.
std::size_t text_width(bool to_stdout);

// Prints on standard output. Errors: it cannot be written.
Status write_stdout(const std::string& text);

}  // namespace lockstep::reports
