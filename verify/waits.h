// Who waits at the end of the replay, as causes or as open questions.
#pragma once

#include "verify/causes.h"
#include "verify/context.h"
#include "verify/verdict.h"

namespace lockstep::verify {

// Adds each part of the wait-for graph below the cause that led to it, or as a cause of its own.
// What may just have been a moment of a running job becomes `undecided` instead.
void add_wait_causes(const Context& context, OpenQuestions& questions, Causes& causes);

}  // namespace lockstep::verify
