// Frames of stacks, as several sources write them.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::trace {

// Whether a file is of Python or of a library: what is in it is not what the user wrote.
bool of_a_library(std::string_view file);

// "all_reduce (torch/distributed/distributed_c10d.py:1700), called from train (train.py:88)", from
// the innermost frame of a call's stack and the first one of the user's code. PyTorch writes a
// frame as "train from /app/train.py:88" (its watchdog) or "train at /app/train.py:88" (its
// analyses of dumps).
class CalledFrom {
 public:
  // Takes a line; false: it is no such frame.
  bool take(std::string_view line);
  bool empty() const { return innermost_.empty(); }
  std::string words() const;

 private:
  std::string innermost_, users_;
};

}  // namespace lockstep::trace
