// The JSON twin of a Flight Recorder dump (`_dump_fr_trace_json`), as the same data as the pickle.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "trace/formats/flight_recorder/pickle.h"

namespace lockstep {

// An object with one of a dump's own keys near its beginning or its end.
bool looks_like_json_dump(std::string_view bytes);

// The strings of the result are its own. O(bytes).
// Errors: not valid JSON (a dump that was cut off is not), or nested deeper than any dump.
Result<Pickle> read_json_dump(std::string_view bytes, const std::string& file);

}  // namespace lockstep
