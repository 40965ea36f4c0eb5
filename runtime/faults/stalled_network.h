// Deliberate failure of the network: Fault::stalled_network.
#pragma once

#include "runtime/groups/process_groups.h"
#include "runtime/job/fault.h"
#include "runtime/record/recorder.h"

namespace lockstep::runtime {

// With Fault::stalled_network: a transport that loses every reduce-scatter from step 1 on. All
// ranks make the call, and on none does it complete; what else they call goes on. Null without the
// fault, and for a rank that runs alone, which has no network. `recorder` must outlive the
// transport.
ProcessGroups::Transport transport_of(Fault fault, const ProcessGroups& groups, Recorder& recorder);

}  // namespace lockstep::runtime
