// Exceptions in the output of a process, as Python and C++ write them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "trace/ids.h"
#include "trace/run.h"

namespace lockstep::trace {

// By mentions_a_peer() and mentions_memory(): peer_lost, out_of_memory or exception. For a
// process that multiprocessing says ended: killed, crashed or ended, by its signal.
RankNote::Kind kind_of_exception(std::string_view exception);

// True for lines that processes and libraries write while they end, and for the further lines of a
// long message. Any other line after an exception shows that the rank continued.
bool is_written_at_end(std::string_view line);

// Finds the exceptions in one process' output, line by line.
//
//   Traceback (most recent call last):                    Python; also drawn as a box (rich)
//     File "train.py", line 12, in <module>
//   ValueError: no more batches
//   ray.exceptions.RayTaskError(ValueError): ray::f() (pid=7, ip=10.0.0.3)      of another process:
//     …                                                   its traceback follows
//   Traceback (most recent call last): (RANK 3)           of another rank: CheckpointException
//     …
//   terminate called after throwing an instance of 'X'    C++
//     what():  …
//   [Rank 3 Error Snippet]:                               of another rank, as Ray Train's driver
//     File "train.py", line 12, in <module>               tells it: the end of its traceback
class ExceptionReader {
 public:
  struct Taken {
    bool part = false;  // the line is part of what tells an exception
    // The exception that it completes, unless Python ignores it.
    std::optional<std::string> raised = {};
    bool in_thread = false;    // which a thread raised
    bool aborts = false;       // nobody caught it in C++: the process ends with SIGABRT
    std::string of_task = {};  // the line in which Ray names the process that raised it
    // "(RANK 3)" behind the first line: another rank raised it, and this one tells.
    Rank of_rank{kNone};
    // "/app/model.py:17": the innermost frame of the traceback in the user's code, else the
    // innermost; empty: it has none.
    std::string at = {};
    bool at_users = false;  // that frame is in the user's code
    // "all_gather, called from gather (accelerate/utils/operations.py:439)": the innermost frame's
    // function, and the innermost frame of a library other than torch that the user's code called.
    std::string in = {};
    // It was raised because of the one before it, or while that one was handled. Python writes the
    // frames of the user's code, which did not catch the first one, with the last one only.
    bool chained = false;
  };
  Taken take(std::string_view line);

  // Whether nothing that began goes on in the next line, whatever that is.
  bool idle() const { return !in_traceback_ && !in_terminate_; }

  // What begins the above.
  static constexpr std::string_view kTraceback = "Traceback (most recent call last)";
  static constexpr std::string_view kTerminate = "terminate called after throwing an instance of '";
  static constexpr std::string_view kIgnored = "Exception ignored in";
  static constexpr std::string_view kSnippet = " Error Snippet]";
  static constexpr std::string_view kInThread = "Exception in thread";
  static constexpr std::string_view kCauses = "The above exception was the direct cause of";
  static constexpr std::string_view kHandled = "During handling of the above exception";

 private:
  bool begins(std::string_view line);
  Taken take_terminate(std::string_view line);
  Taken take_traceback(std::string_view line);

  void take_frame(std::string_view line);
  std::string where_in() const;

  bool in_traceback_ = false;
  std::string at_, users_at_;  // the newest frame, and the newest of the user's code
  // The newest frame's function, and the newest frame of a library that the user's code called.
  std::string function_, library_;
  bool boxed_ = false;         // it is drawn as a box
  std::string of_task_;        // it is of that task of Ray
  Rank of_rank_{kNone};        // it is of that rank
  bool ignored_ = false;       // it is of an exception that Python ignores
  bool in_thread_ = false;     // it is of a thread
  bool chained_ = false;       // the next one is of the same chain
  bool in_terminate_ = false;  // the next line is what() of a C++ exception
  std::string terminated_by_;  // its type
};

}  // namespace lockstep::trace
