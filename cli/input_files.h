// Files that a command line names: those that come with the program, and "-".
//
// Examples, scenarios, machines and plans come with the program. They are next to it: in the
// repository, in an installed prefix or in a wheel.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/files/write_file.h"
#include "base/result.h"
#include "reports/exit_status.h"

namespace lockstep::cli {

// The folder "examples", "scenarios", "machines" or "plans"; nothing where there is none.
// `program`: the path of this program, /proc/self/exe.
std::optional<std::string> shipped_folder(const std::string& kind, const std::string& program);
std::optional<std::string> shipped_folder(const std::string& kind);

// The names of the YAML files in such a folder, without their ending, sorted: "dgx-h100".
std::vector<std::string> shipped_names(const std::string& kind);

// `given`, or the shipped file of that name where there is no such file: "dgx-h100" is
// …/machines/dgx-h100.yaml. Errors: a name, not a path, that is neither.
Result<std::string> shipped_or_own(const std::string& kind, const std::string& given);

// The same of a plan. An error of the name of a published model says what to do with it.
Result<std::string> plan_or_own(const std::string& given);

// "-" in place of a file. What comes on standard input is kept in a file while the command runs:
// a job's workers read it, too, and some commands read their file twice.
class StandardInput {
 public:
  // Where `path` is "-": reads standard input, at most 1 MiB, and sets `path` to the file, which
  // lives as long as this. Errors: it cannot be read or kept, it is empty.
  Status take(std::string& path);

  bool has(const std::string& path) const { return !file_.empty() && path == file_; }
  // "standard input" for that file; other files are called by their paths.
  std::string name_of(const std::string& path) const;
  FileNames names() const {
    return [this](const std::string& path) { return name_of(path); };
  }
  // Reports the error with that name.
  reports::ExitStatus fail(const Error& error,
                           reports::ExitStatus status = reports::ExitStatus::bad_usage) const {
    return reports::fail(renamed(error, names()), status);
  }

 private:
  std::optional<WorkFolder> folder_;
  std::string file_;  // empty: not read yet
};

}  // namespace lockstep::cli
