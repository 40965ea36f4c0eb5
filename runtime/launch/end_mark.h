// Completes the trace of a process that is gone and could not say so itself.
#pragma once

#include <string>

#include "base/result.h"

namespace lockstep {

// Writes the end mark `killed` into a ring file that has none. The process that wrote the file must
// have ended. A file that has a mark keeps it. Errors: no ring file, or it cannot be written.
Status mark_killed(const std::string& ring_file);

}  // namespace lockstep
