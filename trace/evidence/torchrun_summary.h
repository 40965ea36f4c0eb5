// torchrun's summary of the ranks that failed, which ends its output:
//
//   ============================================================
//   train.py FAILED
//   ------------------------------------------------------------
//   Failures:
//   [1]:
//     time      : 2025-07-09_17:05:38
//     host      : node4
//     rank      : 5 (local_rank: 1)
//     exitcode  : -6 (pid: 72)
//     …
//   Root Cause (first observed failure):
//   [0]:
//     …
//
// Launchers may write labels in front of its lines.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trace/evidence/gpu_lines.h"
#include "trace/ids.h"
#include "trace/run.h"

namespace lockstep::trace {

class TorchrunSummary {
 public:
  // A rank that failed.
  struct Failure {
    RankNote::Kind kind = RankNote::Kind::ended;
    Rank rank{kNone};
    std::int64_t local_rank = kNone;  // its number on its node
    std::int64_t pid = kNone;
    std::string host, text;
    bool first = false;  // of its node
    std::string time;    // in torchrun's words; empty: it says none
  };
  struct Taken {
    bool part = false;                 // the line is part of a summary
    const Failure* failure = nullptr;  // that it completes, until the next one; null: none
  };
  Taken take(std::string_view line);

  // Whether there is a summary, with ranks.
  bool present() const { return present_; }
  // The rank that failed first, if it ended with an exception; else kNone.
  Rank raised_first() const { return raised_first_; }
  // The ranks that ended with SIGABRT, in the summary's order.
  const std::vector<Rank>& aborted() const { return aborted_; }

 private:
  Rank rank_{kNone};  // whose block is being read
  std::int64_t local_rank_ = kNone;
  std::string time_, host_;
  Failure failure_;  // the last one
  Rank raised_first_{kNone};
  std::vector<Rank> aborted_;
  bool present_ = false;  // its root cause is being read, or was
};

}  // namespace lockstep::trace
