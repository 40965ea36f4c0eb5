// Whether the ranks of dumps may still have been moving when the dumps were written.
#pragma once

#include <optional>

#include "trace/run.h"

namespace lockstep::verify {

// How long calls were open when the files were written, and how long others of the job took.
struct ShortWaits {
  trace::Nanos open = 0;
  trace::Nanos completed = trace::kNoTime;  // kNoTime: no dump holds a call that completed
};

// Nothing where some call had been open for longer than others took, so that the job stands, or
// where the times of the files do not tell. O(calls) where no call completed, else O(ranks).
std::optional<ShortWaits> short_waits(const trace::Run& run);

}  // namespace lockstep::verify
