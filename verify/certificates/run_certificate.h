// The certificate of a recorded run: the witness that check_run_certificate() accepts or refuses.
//
// A recorded run is a program with a single way: each rank does what its trace says, from its first
// event to its last. So it is a table of whole traces, one choice a rank, and what
// verify/product shows of a situation is shown of the run: all members make the same calls on every
// channel, and there is an order of the meetings that nobody's blocking contradicts.
// docs/certificates.md says what each line means and what a certificate does not say.
#pragma once

#include <string>

#include "base/result.h"
#include "trace/run.h"
#include "verify/replay/semantics.h"
#include "verify/report.h"

namespace lockstep::verify {

// `report`: what verify() says of the run, unfiltered, by these rules of blocking. Errors: the
// report is not clean; a trace is missing, lost records, or does not end cleanly; calls of which
// the traces do not tell enough; no one order suits all ranks. O(events + splits of exchanges).
Result<std::string> write_run_certificate(const trace::Run& run, const Report& report,
                                          CallSemantics semantics);

}  // namespace lockstep::verify
