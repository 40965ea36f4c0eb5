// Any bytes as up to four files of a foreign format, separated by two record separators (0x1E):
// whatever is read can be linked, dumped (which follows every index and id) and judged.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/trace_dump.h"
#include "trace/formats/format.h"
#include "trace/load.h"
#include "verify/verify.h"

namespace lockstep {

inline int fuzz_format(const Format& format, const std::uint8_t* data, std::size_t size) {
  constexpr std::string_view kSeparator = "\x1e\x1e";
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  Tables tables;
  std::vector<RankTrace> traces;
  for (std::int32_t rank = 0; rank < 4 && !rest.empty(); ++rank) {
    const std::size_t length = rest.find(kSeparator);
    // A copy of that size: reading behind its end is seen.
    const std::string bytes(rest.substr(0, length));
    rest.remove_prefix(length == std::string_view::npos ? rest.size() : length + kSeparator.size());
    format.recognises(bytes);
    auto read = format.read({bytes, "fuzz_rank_" + std::to_string(rank), Rank(rank)}, tables);
    if (!read) continue;
    for (RankTrace& trace : *read) traces.push_back(std::move(trace));
  }
  if (format.link != nullptr) format.link(traces, tables);
  std::int32_t world = 0;
  for (const RankTrace& trace : traces) {
    dump(trace, tables);
    world = std::max(world, trace.world_size);
  }
  // Judging a world costs what its size is, which is one number in a file.
  if (world > 4096) return 0;
  verify(assemble_run(std::move(tables), std::move(traces)));
  return 0;
}

}  // namespace lockstep
