// Finds out which rank a worker is, and where it meets the others: from its options, or from the
// launcher's variables.
//
// Options come before the launcher's variables (base/launcher.h; MASTER_ADDR and MASTER_PORT are
// torchrun's); without both it is a single process. Options that contradict the launcher are an
// error.
//
// Our own variables:
//
//  LOCKSTEP_SHARE_GPUS    1: ranks on NCCL may share a GPU (`lockstep run --share-gpus` sets it)
//  LOCKSTEP_QUEUED_CALLS  for tests: calls on the CPU are queued, as NCCL queues them on a GPU
//                         (runtime/device/queued_calls.h). per-group, or one-at-a-time, where the
//                         groups of a rank block each other
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/launcher.h"
#include "base/result.h"

namespace lockstep::runtime {

// The options; empty if not given.
struct LaunchOptions {
  std::optional<int> rank;
  std::optional<int> world_size;
  std::string store;   // a file; empty: none
  std::string master;  // HOST:PORT; empty: none
};

inline constexpr const char* kShareGpusVariable = "LOCKSTEP_SHARE_GPUS";
inline constexpr const char* kQueuedCallsVariable = "LOCKSTEP_QUEUED_CALLS";
enum class QueuedCalls : std::uint8_t { no, per_group, one_at_a_time };

struct LaunchSettings {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;    // among the processes of this machine
  std::string launcher;  // "options", "torchrun", "Slurm", "MPI", "a single process"

  // The rendezvous: a file or, if it is empty, a TCPStore that rank 0 serves.
  std::string store_file;
  std::string master_host;
  int master_port = 0;
  bool store_is_served = false;  // torchrun's agent serves the TCPStore …
  int attempt = 0;               // … and has restarted the ranks this many times

  bool share_gpus = false;
  QueuedCalls queued = QueuedCalls::no;
};

// Errors: options that contradict the launcher's variables (the message names both values), invalid
// numbers, a rank that is not less than the world size, several ranks without a rendezvous, an
// invalid value of our own variables.
Result<LaunchSettings> find_launch_settings(const LaunchOptions& options, const Environment& get);

}  // namespace lockstep::runtime
