// A Run from trace text written in the test: one string per rank, header lines added here.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/trace_lines.h"
#include "tests/support/trace_text.h"
#include "trace/run.h"

namespace lockstep::reports {

// `traces[r]` is rank r's file without its header and `world` group line; an empty string: no file.
inline trace::Run inline_run(const std::vector<std::string>& traces) {
  std::vector<std::string> files;
  for (std::size_t rank = 0; rank < traces.size(); ++rank) {
    if (traces[rank].empty()) continue;
    files.push_back(header_line(static_cast<int>(rank), traces.size()) + world_line(traces.size()) +
                    traces[rank]);
  }
  return run_from_text(files);
}

// An issue line of an all_reduce on `world`; `more` holds further keys, {{"async", true}} say.
inline std::string all_reduce(int id, const std::string& what, int elements,
                              const LineKeys& more = LineKeys::object()) {
  LineKeys keys = {{"in", {{elements}}}, {"dtype", "float32"}, {"what", {what}}};
  keys.update(more);
  return issue_line(id, "world", "all_reduce", keys);
}

inline std::string complete(int id) { return event_line("complete", id); }

inline const std::string kHung = end_line("hung");
inline const std::string kClean = end_line("clean");

inline std::vector<trace::Rank> ranks_of(const std::vector<std::int32_t>& numbers) {
  std::vector<trace::Rank> out;
  for (const std::int32_t number : numbers) out.emplace_back(number);
  return out;
}

// The longest line of `text`, in code points.
inline std::size_t widest_line(const std::string& text) {
  std::size_t widest = 0;
  std::size_t width = 0;
  for (const char c : text) {
    if (c == '\n')
      width = 0;
    else if ((static_cast<unsigned char>(c) & 0xC0U) != 0x80U)
      widest = std::max(widest, ++width);
  }
  return widest;
}

}  // namespace lockstep::reports
