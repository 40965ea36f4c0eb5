// The folder that a command works in.
#pragma once

#include <string>

namespace lockstep {

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
