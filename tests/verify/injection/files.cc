#include "tests/verify/injection/files.h"

#include <utility>

#include "trace/formats/format.h"
#include "trace/load.h"

namespace lockstep::verify::injection {

Files trace_files(const std::vector<std::string>& texts) {
  Files out;
  for (std::size_t r = 0; r < texts.size(); ++r) {
    out["rank_" + std::to_string(r) + ".trace.jsonl"] = texts[r];
  }
  return out;
}

trace::Run read_files(const Files& files, trace::Nanos written) {
  trace::Tables tables;
  std::vector<trace::RankTrace> traces;
  std::vector<trace::Run::Unreadable> unreadable;
  const trace::Format* used = nullptr;
  for (const auto& [name, bytes] : files) {
    const trace::Format* const format = trace::recognise(bytes);
    if (format == nullptr) {
      unreadable.push_back({Error{"of no known form", {name}, ""}, trace::rank_in_name(name)});
      continue;
    }
    Result<std::vector<trace::RankTrace>> read = format->read(
        {.bytes = bytes, .name = name, .rank = trace::rank_in_name(name), .written = written},
        tables);
    if (!read) {
      unreadable.push_back({read.error(), trace::rank_in_name(name)});
      continue;
    }
    for (trace::RankTrace& trace : *read) traces.push_back(std::move(trace));
    used = format;
  }
  if (used != nullptr && used->link != nullptr) used->link(traces, tables);
  trace::Run run = trace::assemble_run(std::move(tables), std::move(traces));
  run.unreadable = std::move(unreadable);
  return run;
}

}  // namespace lockstep::verify::injection
