// The certificate of a recorded run: what check_certificate.py accepts or refuses.
//
// A recorded run is a program with a single execution: each rank does what its trace says, from its
// first event to its last. So it is a table of whole traces with one choice per rank, and
// verify/product proves the same as for a situation: all members issue the same calls on every
// channel, and there is an order of the calls that no rank's blocking contradicts.
// docs/certificates.md describes each key, and what a certificate does not state.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "trace/run.h"
#include "verify/replay/semantics.h"
#include "verify/report.h"

namespace lockstep::verify {

// Writes the certificate. `report`: verify()'s report on the run, unfiltered, with the same
// semantics. Errors: the report is not clean; a trace is missing, lost records or does not end
// cleanly; the traces record too little of some call; no single order fits all ranks.
// O(events + splits of all-to-alls).
Result<std::string> write_run_certificate(const trace::Run& run, const Report& report,
                                          CallSemantics semantics);

// Why the traces do not show all that their ranks did; nothing where they do.
std::optional<Error> incomplete(const trace::Run& run);

}  // namespace lockstep::verify
