// torchcomms' collective log ("clog", version 1): one text file per rank.
//
//   V|1|base_timestamp=1714234567.890
//   new_comm|comm=world|rank=0|world_size=8
//   C1|sig|all_reduce|in_count=1024|out_count=1024|dtype=f32|red_op=sum|async_op=f|comm=world
//   C1|Q|work_id=1|+0.001            enqueued; then started, ended, waited for
//   C1|S|+0.002
//   C1|E|+0.005
//   split|parent=world|child=tp|ranks=0,1
//
// Source: torchcomms comms/torchcomms/hooks/clog (ClogHook.cpp, AI_TOOL_INSTRUCTIONS_V1.md). S and
// E name a signature and not a call: they are of the oldest call with it that has none yet. Ranks
// of roots and peers are those of the communicator; "ranks" of a split are global ones.
//
// A log is a look at a process that may still run. Where lifecycle events are off (Q alone), it
// tells what was called and not what completed.
#pragma once

#include <cstddef>

#include "trace/formats/format.h"

namespace lockstep::trace {

inline constexpr std::size_t kClogMemoryFactor = 40;

Format clog_format();

}  // namespace lockstep::trace
