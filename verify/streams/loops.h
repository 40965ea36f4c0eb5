// Loops of a program: equal rounds of calls in a row. A text is generated token by token until it
// ends, so that nothing in the calls shows how often such a loop should run.
#pragma once

#include <cstdint>

#include "trace/run.h"
#include "verify/replay/replay.h"
#include "verify/streams/agreement.h"

namespace lockstep::verify {

// Whether a loop ends or goes on with this call, and earlier runs of that loop do not show how long
// it is: a text is generated token by token until it ends, and each one has its own length. Then
// the past predicts nothing here. The loop has run twice or more, and the call either begins it
// again or is none of its calls.
//
//   t t t t e | t t e | t t t      nothing shows whether t or e comes next
//   t t t e | t t t e | t t        t does: runs of one length
//
// A length that came twice is no chance. Of the first run that comes after these calls, those that
// came after others show nothing where it is longer than they are:
//
//   t t e | t t e | s t t t t      nothing shows whether t or e comes next
//
// O(4096) comparisons.
bool is_at_end_of_varying_loop(const trace::Run& run, Agreement& agreement, CallRef call);

// The same for the first run of a loop, by its later ones: none of those that ended is as long.
bool is_first_run_of_varying_loop(const trace::Run& run, Agreement& agreement, CallRef call);

// After how many calls the loop repeats that ends or goes on with this call; 0: there is none.
// O(512) comparisons.
std::uint32_t loop_before(const trace::Run& run, Agreement& agreement, CallRef call);

// Whether a loop of such rounds may end before this call, which is none of it: whole rounds came
// before, two or more. O(4096) comparisons.
bool comes_after_whole_rounds(const trace::Run& run, Agreement& agreement, CallRef call);

// Whether the call begins another round of such a loop.
bool goes_on_with_loop(const trace::Run& run, Agreement& agreement, CallRef call);

}  // namespace lockstep::verify
