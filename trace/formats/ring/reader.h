// Reads ring files: of finished jobs, of killed ones, and of jobs that still run.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "trace/run.h"

namespace lockstep::trace {

// Reads the whole ring file as it is now. Records at its end that were reserved and not yet written
// (a thread is just recording, or was when the process died) are left out: what they say has not
// happened yet. Elsewhere, torn records and references to what is not in the table are counted as
// damaged and skipped. O(records). Never trusts a size or an offset in the file.
// Errors: not a ring file, an unknown version, or a file too short for what its header says.
Result<RankTrace> read_ring_file(const std::string& path, Tables& tables);

// The same from memory: `bytes` is the whole file, 8-byte aligned; `file` names it in errors.
Result<RankTrace> read_ring_trace(std::string_view bytes, const std::string& file, Tables& tables);

// True where the file begins like a ring file.
bool looks_like_ring_file(std::string_view first_bytes);

// Which run of a job wrote the file: greater in later runs. Empty: not known, or no ring file.
std::string ring_job(std::string_view bytes);

// A cheap look at a ring file that is being written: keeps it mapped, reads only the header and the
// newest records. Used to follow a running job.
class RingTail {
 public:
  static Result<RingTail> open(const std::string& path);
  RingTail(RingTail&&) noexcept;
  RingTail& operator=(RingTail&&) noexcept;
  ~RingTail();

  std::uint64_t written() const;  // records since the start
  End end() const;                // End::cut while it runs
  std::int64_t pid() const;       // of the rank's process, also when that is gone
  struct Progress {
    std::int64_t steps = 0;      // training steps finished: 1 + the number of the last one
    double loss = 0;             // of the last finished step; NaN: none
    Nanos last_event = kNoTime;  // CLOCK_MONOTONIC of the newest record
  };
  // Reads the records written since the last call; O(new records), at most the ring's capacity.
  Progress poll();

 private:
  struct Impl;
  explicit RingTail(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::trace
