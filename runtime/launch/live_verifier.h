// LiveVerifier: follows the traces of a running job, and proves a hang as soon as there is one.
//
// Following costs the reading of a few counters. Traces are read and judged only when no rank has
// recorded anything for a while, because a job that hangs is silent. Long computation is silent
// too, so the polls become rarer while the silence lasts, and never take more than a small share of
// the time.
//
// The ring files are read one after the other while the ranks may still write. That is safe: every
// reading is a prefix of what the rank will have recorded, and a live verification reports only
// what no continuation can fix.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trace/formats/ring/reader.h"
#include "trace/ids.h"
#include "verify/report.h"

namespace lockstep::runtime {

// How far the job is.
struct JobProgress {
  std::int64_t steps = 0;      // finished by every rank
  std::optional<double> loss;  // of the last step of the lowest rank that recorded one
  int started = 0;             // ranks whose trace has begun
  std::uint64_t records = 0;   // over all ranks
  trace::Nanos last_event = trace::kNoTime;  // CLOCK_MONOTONIC; the last event of any rank
};

class LiveVerifier {
 public:
  LiveVerifier(std::string folder, int ranks);

  // Reads what was recorded since the last call.
  const JobProgress& follow(trace::Nanos now);

  struct Proof {
    double seconds = 0;  // from the last movement to the proof
    verify::Report report;
  };
  // Judges the traces if a poll is due. `ended`: per rank, whether its process has ended. `now`:
  // CLOCK_MONOTONIC. Nothing if the job may still continue.
  std::optional<Proof> poll(trace::Nanos now, const std::vector<bool>& ended);
  // The same, whether a poll is due or not.
  std::optional<Proof> judge(trace::Nanos now);

  const JobProgress& progress() const { return progress_; }
  // Since when nothing was recorded, as of the last follow().
  trace::Nanos quiet_since() const { return quiet_since_; }

 private:
  bool due(trace::Nanos now, const std::vector<bool>& ended);

  std::string folder_;
  std::vector<std::optional<trace::RingTail>> tails_;  // by rank; empty until its file exists
  JobProgress progress_;
  trace::Nanos quiet_since_ = 0;
  trace::Nanos quiet_before_poll_ = 0;  // the silence after which the next poll is due
  std::vector<bool> ended_;             // as of the last call
};

}  // namespace lockstep::runtime
