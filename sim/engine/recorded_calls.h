// Compares a recording with its simulation: how long its calls took, and how long its ranks took.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/quantities.h"
#include "sim/engine/executor.h"
#include "sim/engine/from_run.h"
#include "trace/run.h"

namespace lockstep::sim {

// A call takes, from its last member's arrival, what the member took whose device was in it for the
// shortest time: the others were there before, and waited.
struct RecordedCalls {
  // By group of the job, and number in it; kUnknown: no member recorded begin and end.
  std::vector<std::vector<Picos>> times;
  std::uint64_t known = 0, unknown = 0;
  static constexpr Picos kUnknown{-1};

  // The time of a call, times `factor`; 0 for one without a recorded time. forever(): beyond the
  // range of the clock.
  Picos time(std::uint32_t group, std::uint32_t number, double factor) const;
};

// `program`: of `run`. O(events).
RecordedCalls recorded_calls(const trace::Run& run, const RunProgram& program);

// From the first event of a rank to its last one, as recorded, spans and calls included; nothing
// for a rank whose times were not recorded. As the simulation counts it: a rank that began late
// (a span before everything else) counts from the job's begin.
std::optional<Picos> recorded_time(const trace::RankTrace& rank);

}  // namespace lockstep::sim
