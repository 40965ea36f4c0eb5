// Who waits at the end of the replay, as causes or as open questions.
#pragma once

#include <string>

#include "verify/causes.h"
#include "verify/context.h"
#include "verify/verdict.h"

namespace lockstep::verify {

// Adds each part of the wait-for graph below the cause that led to it, or as a cause of its own.
// What may just have been a moment of a running job becomes `undecided` instead. `late`: why the
// waits of dumps may end at the next moment (may_be_late); "" if they may not, or for other traces.
void add_wait_causes(const Context& context, const std::string& late, OpenQuestions& questions,
                     Causes& causes);

}  // namespace lockstep::verify
