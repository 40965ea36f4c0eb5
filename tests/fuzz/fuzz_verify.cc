// Any bytes as the traces of several ranks, separated by blank lines: whatever was read can be
// judged and reported, finished or live, and the order of ranks does not matter.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "reports/json_report.h"
#include "reports/text_report.h"
#include "trace/load.h"
#include "trace/text_format.h"
#include "verify/verify.h"

namespace {

using namespace lockstep;  // NOLINT: a test program of one file

Run read_ranks(const std::vector<std::string_view>& texts) {
  Tables tables;
  std::vector<RankTrace> traces;
  for (const std::string_view text : texts) {
    Result<RankTrace> trace = read_text_trace(text, "fuzz", tables);
    if (trace) traces.push_back(std::move(*trace));
  }
  return assemble_run(std::move(tables), std::move(traces));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  std::vector<std::string_view> texts;
  while (!rest.empty() && texts.size() < 8) {
    const std::size_t end = std::min(rest.find("\n\n"), rest.size());
    texts.push_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 2, rest.size()));
  }
  const Run run = read_ranks(texts);
  if (run.world_size > 1024) return 0;  // a long list of missing ranks, and nothing else
  const Report report = verify(run);
  verify(run, {.live = true});
  text_report(report, run, {});
  LOCKSTEP_CHECK(!json_report(report).empty(), "every report can be written");
  return 0;
}
