// Writing a file so that nobody ever sees half of it.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace lockstep {

// Writes `bytes` beside `path` and renames the result into place. Follows a link at `path`; what is
// no regular file (/dev/null, a pipe) is written to directly.
// Errors: the folder does not exist or may not be written, no space; the old file then stays.
Status write_file(const std::string& path, std::string_view bytes);

// Making folders.

// Makes the folder and those above it that are missing; one that is there is fine. Errors: what the
// system refuses, with the path.
Status make_folder(const std::string& path);

// The folder that a command works in.

// A new folder of the system's for temporary files, removed at the end; or the one that the user
// names, which is kept.
class WorkFolder {
 public:
  // `named` empty: a temporary one, whose name begins with `prefix`.
  WorkFolder(const std::string& named, const std::string& prefix);
  ~WorkFolder();
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;

  // Whether it is there, and was empty.
  bool usable() const { return made_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool kept_;
  bool made_ = false;
};

}  // namespace lockstep
