// Finds data parallelism that no recorder declared: a program that averages gradients itself.
#pragma once

#include "trace/run.h"

namespace lockstep::verify {

// Whether the values show that all ranks hold the same model:
//   - no value is declared to be replicated, and every rank recorded the same parameters;
//   - in the first step with gradients, at least three quarters of these are equal on all ranks to
//     the last bit, and not zero. Ranks that train parts, or different models, get no equal ones.
//     Gradients that ranks hold under each other's names count, too: they were reduced crosswise.
//     Or all of a rank's gradients are the other ranks' times one number: it divided their sum by
//     another number than they did.
// False where ranks exchange messages or all-to-alls: they hold parts (stages, experts). O(marks).
bool are_undeclared_replicas(const trace::Run& run);

}  // namespace lockstep::verify
