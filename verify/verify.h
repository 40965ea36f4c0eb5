// verify(): judges a run. The one entry to all analyses.
#pragma once

#include <optional>

#include "trace/run.h"
#include "verify/replay/semantics.h"
#include "verify/report.h"

namespace lockstep::verify {

struct VerifyOptions {
  // The ranks still run: a stream without end mark may go on, so that only what no continuation can
  // mend is said.
  bool live = false;
  // By which rules calls block (docs/verify.md); what the traces' headers say unless given.
  std::optional<CallSemantics> semantics = std::nullopt;
};

// O(events log events + findings), apart from the alignment of deviating streams, which is bounded
// by a window around the first difference, and from the search over what receives from any source
// may take, which has a bound of its own (verify/schedules/search.h). The result does not depend on
// the order of files or interning.
Report verify(const trace::Run& run, const VerifyOptions& options = {});

// True where the report proves that ranks of the job can never go on: worth ending it now.
bool proves_stuck(const Report& report);

}  // namespace lockstep::verify
