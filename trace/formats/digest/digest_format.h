// Digests (trace/digest.h) as a format: what they hold is read as the format that they were made
// from would have been.
#pragma once

#include "trace/formats/format.h"

namespace lockstep {

Format digest_format();

}  // namespace lockstep
