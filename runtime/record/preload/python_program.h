// PythonProgram: asks the Python interpreter of this process for the line that makes a call and for
// the exception that ends the program.
//
// It uses functions of Python's C API that are the same from 3.10 on, found by name at run time:
// the library is not linked to Python and works in a process without it. Frames are read with the
// GIL held. Taking the GIL here is safe: LibTorch takes it in the same places, for communication
// hooks.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::runtime {

struct PythonApi;

class PythonProgram {
 public:
  // Null: this process runs no Python, or one without these functions.
  static PythonProgram* of_process();

  // Where the calling thread makes a call.
  struct CallSite {
    // The innermost line of the program, "train.py:33", relative to the folder in which the process
    // was started. Where no frame is the program's (`python -m package`), the innermost line of an
    // installed package other than torch; on a thread that torch started, the outermost line of
    // torch, "torch/distributed/checkpoint/state_dict_saver.py:360". Empty: not a Python thread.
    std::string line;
    bool in_join = false;  // PyTorch's Join makes this call for itself, or for a rank's peers
    bool functional =
        false;  // a functional collective makes it, whose result waits when it is used
  };
  CallSite call_site() const;

  // Imports a module for what it does then. False: it cannot be imported; Python has printed why.
  bool import(const char* module) const;

  // Calls `report` for an exception that nobody catches, before Python prints it: "ValueError: no
  // image in the batch (train.py:33)". Where it was raised from another one, as
  // torch.distributed.pipelining does, the one that began it follows: "…; caused by KeyError: …".
  // What torch brings from a DataLoader's worker is told as it was raised there: "OSError:
  // truncated JPEG (data.py:12), in DataLoader worker process 0 (train.py:33)".
  // Also for what ends a process of Python's multiprocessing that is started from then on, such as
  // one of torch.multiprocessing.spawn. Only the first call has an effect.
  void on_uncaught(std::function<void(const std::string&)> report);

  // Writes the stacks of the program's threads to the file, in py-spy's form, with the ranks of the
  // process group that a thread is creating. Waits for the GIL, so call it on a thread of its own:
  // one of pthread_create(), which Python may end, without objects that have destructors. Nothing
  // is written where it fails. `path` must stay valid until the process ends.
  void write_stacks(const char* path) const;

  // Calls `act` when the program has ended and before Python exits, without the GIL. Only the first
  // call has an effect.
  void at_end(std::function<void()> act);

 private:
  explicit PythonProgram(const PythonApi& api);
  // Whose code a file is. Ascending: a line of a higher origin says more about the program.
  enum class Origin : int { none, torch, package, program };
  Origin origin_of(const std::string& file) const;
  std::string location(const std::string& file, long line) const;
  std::string line_of_traceback(void* traceback) const;
  // The innermost of these frames (file, line) that is the program's, or else a package's.
  std::string line_of_frames(const std::vector<std::pair<std::string, long>>& frames) const;
  std::string words_of_exception(void* type, void* value, void* traceback) const;
  void report(void* arguments) const;
  static void* uncaught(void* self, void* arguments);
  static void* raised_in_process(void* self, void* arguments);
  static int follow_processes(void* program);
  static void* ends(void* self, void* arguments);

  const PythonApi& api_;
  std::string folder_, torch_folder_;  // with a slash at the end
  std::function<void(const std::string&)> report_;
  void* previous_hook_ = nullptr;  // sys.excepthook
  std::function<void()> act_at_end_;
};

}  // namespace lockstep::runtime
