// Lines in which a launcher, or the node that a job runs on, says how its processes ended:
//
//   srun: error: node7: tasks 0-2,5: Out Of Memory           SLURM
//   slurmstepd: error: *** STEP 12.0 ON node1 CANCELLED AT 2025-01-01T00:00:00 DUE TO TIME LIMIT
//   *** mpirun noticed that process rank 3 with PID 71 on node node7 exited on signal 9 (Killed).
//     Process name: [[4711,1],3]                              mpirun, then the exit code
//     Exit code:    1
//   MPI_ABORT was invoked on rank 3 in communicator …       Open MPI: the program called MPI_Abort
//   application called MPI_Abort(MPI_COMM_WORLD, 1) - process 3                           MPICH
//   … failed (exitcode: -9) local_rank: 3 (pid: 71) of binary: …       torchrun
//   … ['python', …, '--local_rank=3'] exits with return code = -9      DeepSpeed
//   [rank: 1] Child process with PID 71 terminated with code 1. Forcefully …       Lightning
//   run.sh: line 12:    71 Killed                  python train.py              the shell
//   [node7:71 :0:5704] Caught signal 7 (Bus error: …)      UCX
//   [node7:00071] Signal: Segmentation fault (11)          Open MPI
//   (raylet) A worker died or was killed … Worker PID: 71 … SYSTEM_ERROR      Ray
//   … Worker proc VllmWorker-2 died unexpectedly, shutting down executor.     vLLM
//   … Out of memory: Killed process 71 (python) …                      the kernel
//
// Shared by the reader of ranks' output and its recognition.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "trace/ids.h"
#include "trace/run.h"

namespace lockstep::trace {

struct LauncherLine {
  // Processes by the launcher's number: their ranks, unless each process started several ranks.
  std::vector<Rank> tasks;
  std::int64_t pid = kNone;
  std::string_view host = {};
  // How they ended, by themselves. A launcher ends the rest when one process failed, so of its
  // lines only the first is taken at its word (ends_others).
  RankNote::Kind kind = RankNote::Kind::killed;
  bool ends_others = false;
  std::optional<std::int64_t> exit_code;  // of a process that ended with one: it says why elsewhere
  std::string_view text;                  // the message, without what stands before it
};

// Nothing where the line is none of these. The views are into `line`.
std::optional<LauncherLine> parse_launcher_line(std::string_view line);

// What each of these lines holds.
std::span<const std::string_view> launcher_signs();

}  // namespace lockstep::trace
