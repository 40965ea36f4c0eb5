// verify(): judges a run. The one entry to all analyses.
#pragma once

#include <optional>

#include "trace/run.h"
#include "verify/replay/semantics.h"
#include "verify/report.h"

namespace lockstep::verify {

struct VerifyOptions {
  // The ranks still run: a stream without end mark may continue, so only what no continuation can
  // fix is reported.
  bool live = false;
  // The job had hung: nothing moved any more when its ranks were killed, or dumped. So what a rank
  // waited for at the end never came, and all ranks' dumps show the same moment. Not with `live`.
  bool hung = false;
  // The rules by which calls block (docs/verify.md). Unless given, the traces' headers decide.
  std::optional<CallSemantics> semantics = std::nullopt;
};

// Judges a run. Never fails: what is wrong with the input becomes part of the report. The result
// does not depend on the order of files or of interning.
//
// O(events log events + findings), plus two bounded parts: the alignment of deviating streams works
// in a window around the first difference, and the search over the messages that receives from any
// source may take has a limit of its own (verify/schedules/search.h).
Report verify(const trace::Run& run, const VerifyOptions& options = {});

// Whether the report proves that ranks of the job can never continue, so that a launcher may end
// the job.
bool proves_stuck(const Report& report);

}  // namespace lockstep::verify
