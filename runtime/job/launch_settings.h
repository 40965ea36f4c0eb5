// Which rank a worker is, and where it finds the others: from its options, or from the variables of
// whoever launched it.
//
// Options go over the launcher's variables (base/launcher.h; MASTER_ADDR and MASTER_PORT are
// torchrun's) over a single process. Options that contradict the launcher are an error.
//
// Variables of our own:
//
//   LOCKSTEP_SHARE_GPUS    1: ranks on NCCL may share a GPU (`lockstep run --share-gpus` sets it)
//   LOCKSTEP_QUEUED_CALLS  for tests: on the CPU, calls are queued as NCCL queues them on a GPU
//                          (runtime/device/call_queue.h). per-group, or one-at-a-time, where the
//                          groups of a rank block each other
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/launcher.h"
#include "base/result.h"

namespace lockstep::runtime {

// What the options say; absent where they say nothing.
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

  // Where the ranks meet: a file, or (where it is empty) a TCPStore that rank 0 serves.
  std::string store_file;
  std::string master_host;
  int master_port = 0;
  bool store_is_served = false;  // torchrun's agent serves it already …
  int attempt = 0;               // … and has started the ranks so often before

  bool share_gpus = false;
  QueuedCalls queued = QueuedCalls::no;
};

// Errors: options that contradict the launcher's variables (both values are named), numbers that
// are none, a rank that is not below the number of ranks, several ranks without a place to meet, a
// variable of our own with a value that it does not have.
Result<LaunchSettings> find_launch_settings(const LaunchOptions& options, const Environment& get);

}  // namespace lockstep::runtime
