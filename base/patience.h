// Patience: tells somebody at a terminal that a command still works, once it takes long.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace lockstep {

// From its construction to its destruction; after a second of silence a line on standard error
// counts the seconds, and goes away at the end. Does nothing where standard error is no terminal.
class Patience {
 public:
  explicit Patience(std::string doing);
  ~Patience();
  Patience(const Patience&) = delete;
  Patience& operator=(const Patience&) = delete;

 private:
  void show();

  std::string doing_;  // "reading traces"
  std::mutex mutex_;
  std::condition_variable ended_;
  bool over_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace lockstep
