// The JSON twin of a Flight Recorder dump (`_dump_fr_trace_json`), as the same data as the pickle.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "trace/formats/flight_recorder/pickle.h"
#include "trace/ids.h"

namespace lockstep::trace {

// Whether the bytes begin a JSON object with keys of a dump among the first 4 KiB.
bool looks_like_json_dump(std::string_view bytes);

// Reads a JSON dump. The result owns its strings. O(bytes).
// Errors: not valid JSON (also where it is cut off), or nested deeper than any dump.
Result<Pickle> read_json_dump(std::string_view bytes, const std::string& file);

// Pages of PyTorch's debug server (torch.distributed.debug) with the dumps of all ranks:
// /fr_trace_json and /fr_trace_nccl_json, saved as HTML. Internal to the reader of that format.
//
//   <h2>Rank 0: host:port</h2> <pre>{&#34;version&#34;: …}</pre>

bool looks_like_dump_page(std::string_view bytes);

struct DumpOnPage {
  Rank rank;
  std::string host;
  std::string json;    // as the rank sent it
  bool whole = false;  // false: the page ends within it
};
// The dumps in the order of the page. Ranks that the server could not reach are left out. O(bytes).
std::vector<DumpOnPage> dumps_on_page(std::string_view bytes);

}  // namespace lockstep::trace
