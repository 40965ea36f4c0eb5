// Lockstep's own two forms, as rows of the table of formats.
#pragma once

#include "trace/formats/format.h"

namespace lockstep {

Format ring_format();  // trace/ring_reader.h
Format text_format();  // trace/text_format.h

}  // namespace lockstep
