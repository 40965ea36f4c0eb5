// Pages of PyTorch's debug server (torch.distributed.debug) with the Flight Recorders of all ranks:
// /fr_trace_json and /fr_trace_nccl_json, saved as HTML. Internal to the reader of that format.
//
//   <h2>Rank 0: host:port</h2> <pre>{&#34;version&#34;: …}</pre>
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trace/ids.h"

namespace lockstep {

bool looks_like_dump_page(std::string_view bytes);

struct DumpOnPage {
  Rank rank;
  std::string host;
  std::string json;    // as the rank sent it
  bool whole = false;  // the page does not end in it
};
// In the order of the page; ranks that could not be reached are left out. O(bytes).
std::vector<DumpOnPage> dumps_on_page(std::string_view bytes);

}  // namespace lockstep
