// A folder with what the commands of the documentation name: traces of healthy and of hung jobs,
// dumps, logs, profiles, digests, programs to decide for, jobs to run.
#pragma once

#include <string>

#include "tests/support/temp_dir.h"

namespace lockstep::docs {

class Sandbox {
 public:
  // `program_folder`: of lockstep, and where it was built of lockstep-worker.
  explicit Sandbox(std::string program_folder);

  void save(const std::string& file, const std::string& text) const { folder_.write(file, text); }

  // Runs `command` in the folder by /bin/sh, with /tmp and /shared of its own and `program_folder`
  // in PATH, for at most `seconds`: its exit status, 124 where it took longer; `output`: what it
  // printed.
  int run(const std::string& command, int seconds, std::string& output) const;

 private:
  void write_traces() const;
  void write_rings() const;
  void write_products() const;
  void write_foreign() const;

  TempDir folder_;
  std::string programs_;
};

}  // namespace lockstep::docs
