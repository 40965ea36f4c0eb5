// The JSON twin of a Flight Recorder dump (`_dump_fr_trace_json`), as the same data as the pickle.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "trace/formats/flight_recorder/pickle.h"

namespace lockstep::trace {

// Whether the bytes begin a JSON object with keys of a dump among the first 4 KiB.
bool looks_like_json_dump(std::string_view bytes);

// Reads a JSON dump. The result owns its strings. Where the text is cut off or damaged, its whole
// entries and groups are read; a damaged entry between others is nothing (DataTree::none).
// O(bytes). Errors: not valid JSON, or nested deeper than any dump, and without one whole entry or
// group.
Result<Pickle> read_json_dump(std::string_view bytes, const std::string& file);

}  // namespace lockstep::trace
