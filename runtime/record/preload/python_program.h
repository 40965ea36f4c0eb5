// PythonProgram: what the Python that runs this process says of the program: the line that a call
// comes from, and the exception that ends it.
//
// Through functions of Python's C API that are the same from 3.10 on, found by name: the library
// is linked to no Python, and works in a process without one. Frames are read with Python's lock
// held. Taking it here is what LibTorch does itself in the same places, for communication hooks.
#pragma once

#include <functional>
#include <string>

namespace lockstep::runtime {

struct PythonApi;

class PythonProgram {
 public:
  // Null: this process runs no Python, or one without these functions.
  static PythonProgram* of_process();

  // The line, "train.py:33", is the innermost line on the calling thread that belongs to the
  // program; of a program that is all in installed packages, to one other than torch. Relative to
  // the folder in which the process was started. Empty: none, or a thread that Python does not
  // know.
  struct Place {
    std::string line;
    bool in_join = false;  // PyTorch's Join makes this call for itself, or for a rank's peers
  };
  Place place_of_call() const;

  // Calls `tell` for an exception that nobody catches, before Python prints it: "ValueError: no
  // image in the batch (train.py:33)". Only the first call has an effect.
  void on_uncaught(std::function<void(const std::string&)> tell);

  // Calls `act` when the program is over and Python about to end, without Python's lock. Only the
  // first call has an effect.
  void at_end(std::function<void()> act);

 private:
  explicit PythonProgram(const PythonApi& api);
  // The more of the program's own a file is, the higher.
  enum class Origin : int { none, torch, package, program };
  Origin origin_of(const std::string& file) const;
  std::string place(const std::string& file, long line) const;
  std::string line_of_traceback(void* traceback) const;
  static void* uncaught(void* self, void* arguments);
  static void* ends(void* self, void* arguments);

  const PythonApi& api_;
  std::string folder_, torch_folder_;  // with a slash at the end
  std::function<void(const std::string&)> tell_;
  void* hook_before_ = nullptr;  // sys.excepthook
  std::function<void()> act_at_end_;
};

}  // namespace lockstep::runtime
