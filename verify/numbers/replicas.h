// Replicas that nothing declares: data parallelism by hand, whose group a recorder does not know.
#pragma once

#include "trace/run.h"

namespace lockstep::verify {

// Whether all ranks hold the same model, as their values tell: no value is declared to be the same,
// every rank recorded the same parameters, and in the first step with gradients most of these,
// three quarters or more, are equal on all ranks to the last bit, and not zero. Ranks that train
// parts, or models of their own, get no equal gradients. False where ranks send each other messages
// or all-to-alls: they hold parts (stages, experts). O(marks).
bool are_undeclared_replicas(const trace::Run& run);

}  // namespace lockstep::verify
