// Machine failures that CUDA, NCCL and LibTorch report in their own words, and their fixes.
#pragma once

#include <optional>
#include <string_view>

#include "base/result.h"

namespace lockstep::runtime {

// A sentence and a fix for an exception's text; nothing if the text is unknown.
std::optional<Error> known_failure(std::string_view text);

// Scheduling of a rank's threads.

// After this, a thread that wakes up does not preempt the thread that woke it: Linux's SCHED_BATCH
// (sched(7)), for this thread and those that it starts from now on. If this process has a policy
// other than the default (chrt), it is kept.
//
// Why: Gloo's transport thread tries a connection's lock, and polls again while another thread
// holds it. Woken on the same core by a thread that holds the lock, it would preempt that thread
// and poll until its time slice is over, which takes milliseconds, at every hop of every call. If
// ranks have fewer cores than threads, steps would take three to six times as long
// (docs/runtime.md).
void use_batch_scheduling();

}  // namespace lockstep::runtime
