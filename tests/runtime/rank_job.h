// A rank's surroundings for tests that fork: a ring file, a recorder and process groups in a
// folder.
#pragma once

#include <functional>
#include <vector>

#include "runtime/groups/process_groups.h"
#include "runtime/job/scenario.h"
#include "runtime/record/recorder.h"
#include "tests/runtime/spawn.h"
#include "tests/support/temp_dir.h"

namespace lockstep::runtime {

// Runs `body` on each of `ranks` processes, and gives their exit statuses. The traces lie in
// `folder`; where `body` returns 0, they end clean, once what it called is complete.
std::vector<ExitStatus> run_ranks(
    int ranks, const TempDir& folder,
    const std::function<ExitStatus(ProcessGroups& groups, Recorder& recorder)>& body,
    QueuedCalls queued = QueuedCalls::no);

// Trains `s` on so many ranks, and gives rank 0's losses. The traces lie in `folder`.
std::vector<double> losses(const Scenario& s, const TempDir& folder, int ranks = 2,
                           QueuedCalls queued = QueuedCalls::no);

}  // namespace lockstep::runtime
