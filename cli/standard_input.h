// "-" in place of a file. What comes on standard input is kept in a file while the command runs:
// a job's workers read it, too, and some commands read their file twice.
#pragma once

#include <optional>
#include <string>

#include "base/files/write_file.h"
#include "base/result.h"

namespace lockstep::cli {

class StandardInput {
 public:
  // Where `path` is "-": reads standard input, at most 1 MiB, and sets `path` to the file, which
  // lives as long as this. Errors: it cannot be read or kept, it is empty.
  Status take(std::string& path);

 private:
  std::optional<WorkFolder> folder_;
  std::string file_;  // empty: not read yet
};

}  // namespace lockstep::cli
