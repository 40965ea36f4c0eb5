// Failures of the machine that CUDA, NCCL and LibTorch tell in their own words, and what to do.
#pragma once

#include <optional>
#include <string_view>

#include "base/result.h"

namespace lockstep::runtime {

// One sentence and a remedy for an exception's text; nothing where the text is none of these.
std::optional<Error> known_failure(std::string_view text);

// How the operating system lets a rank's threads have the processor.

// A thread that is woken no longer takes the processor from the one that woke it: Linux's
// SCHED_BATCH (sched(7)), for this thread and those that it starts from now on. Where somebody
// chose another policy than the usual one for this process (chrt), that stays.
//
// Why: Gloo's transport thread tries the lock of a connection and polls it again where another
// thread holds it. Woken by a thread that holds it, on the same core, it takes the core from that
// one and polls until its slice is over, which is milliseconds, at every hop of every call. Where
// ranks have fewer cores than threads, steps take three to six times as long for it
// (docs/runtime.md).
void keep_the_processor_when_waking();

}  // namespace lockstep::runtime
