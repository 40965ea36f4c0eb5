// Writing files, so that no reader ever sees half of one; and making folders.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace lockstep {

// Writes `bytes` to a temporary file next to `path` and renames it. Follows a link at `path`. What
// is not a regular file (/dev/null, a pipe) is written directly. Errors: the folder does not exist
// or is not writable, no space; the old file then stays.
Status write_file(const std::string& path, std::string_view bytes);

// Whether write_file() could write there now; nothing is changed. For commands that compute for
// long before they write. Errors: write_file()'s, but for a full disk.
Status check_writable(const std::string& path);

// Makes the folder and its missing parents; an existing one is fine. Errors: what the system
// refuses, with the path.
Status make_folder(const std::string& path);

// WorkFolder: a new folder in the system's temporary folder, removed at the end; or one that the
// user names, which is kept.
class WorkFolder {
 public:
  // `named` empty: a temporary one whose name begins with `prefix`.
  WorkFolder(const std::string& named, const std::string& prefix);
  ~WorkFolder();
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;

  // True if it exists and was empty.
  bool usable() const { return made_; }
  const std::string& path() const { return path_; }

  // The error for the user, who has to change `input`: one about a copy of it here, any YAML file,
  // names it instead, and so does one about any file of a temporary folder, which is gone when the
  // error is read. Without a line, which is of a changed copy. `input` empty: names nothing.
  Error for_user(Error error, const std::string& input) const;

 private:
  std::string path_;
  bool kept_;
  bool made_ = false;
};

}  // namespace lockstep
