// For a job that left only logs: the report that most likely explains the others.
//
// Most lines about a failed job are consequences: watchdogs give up, connections close, launchers
// end the rest. So notes are ranked by what they can be: a defective GPU, then memory, crashes and
// exceptions, then a signal from outside, then what NCCL warns of; and only then those that follow
// from another rank's end, which still tell whom they waited for. Among equal notes, the first in
// its file counts.
#pragma once

#include "verify/report.h"

namespace lockstep::trace {
struct Run;
}

namespace lockstep::verify {

// Gives the report a headline, where no finding has one and none names a cause: to the finding that
// shows the note that explains most. O(notes · findings).
void tell_first_cause(const trace::Run& run, Report& report);

}  // namespace lockstep::verify
