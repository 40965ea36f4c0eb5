// Pages of PyTorch's debug server (torch.distributed.debug) with the dumps of all ranks:
// /fr_trace_json and /fr_trace_nccl_json, saved as HTML.
//
//   <h2>Rank 0: host:port</h2> <pre>{&#34;version&#34;: …}</pre>
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trace/ids.h"

namespace lockstep::trace {

bool looks_like_dump_page(std::string_view bytes);

struct DumpOnPage {
  Rank rank;
  std::string host;
  std::string json;  // as the rank sent it; cut off where the page is
};
// The dumps in the order of the page. Ranks that the server could not reach are left out. O(bytes).
std::vector<DumpOnPage> dumps_on_page(std::string_view bytes);

}  // namespace lockstep::trace
