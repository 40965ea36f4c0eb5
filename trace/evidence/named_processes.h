// Lines that name the process of the exception or end that follows, where no label or prefix does:
//
//   -- Process 5 terminated with the following error:         torch.multiprocessing.spawn
//   Process SpawnProcess-3:                                   multiprocessing
//   [2025-01-29 08:52:51 TP5] Scheduler hit an exception: Traceback …      SGLang
//
//   ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.
//           pid: 87687
//           name: WorkerDict_0:3
//           ip: 10.29.214.5
//   The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR …
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "trace/evidence/gpu_lines.h"
#include "trace/ids.h"

namespace lockstep::trace {

// "process 5", "SpawnProcess-3"; empty where the line names no process.
std::string process_named_by(std::string_view line);

// "TP5", "DP0 TP3": the place in parallel groups in the last bracket of what stands before a
// traceback; empty where there is none.
std::string place_named_by(std::string_view before);

// Reads what Ray says about an actor whose process died.
class DeadActor {
 public:
  struct Death {
    std::int64_t pid = kNone;
    std::string host;
    std::string text;
  };
  // Nothing, unless the line ends the message.
  std::optional<Death> take(std::string_view line);

  static constexpr std::string_view kBegin = "ActorDiedError";
  static constexpr std::string_view kEnd = "actor is dead because its worker process has died";
  static constexpr std::string_view kPid = "    pid: ";
  static constexpr std::string_view kName = "    name: ";
  static constexpr std::string_view kHost = "    ip: ";

 private:
  bool began_ = false;
  std::int64_t pid_ = kNone;
  std::string name_, host_;
};

}  // namespace lockstep::trace
