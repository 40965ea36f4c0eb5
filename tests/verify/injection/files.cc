#include "tests/verify/injection/files.h"

#include <utility>

#include "trace/formats/format.h"
#include "trace/load.h"

namespace lockstep::injection {

Files trace_files(const std::vector<std::string>& texts) {
  Files out;
  for (std::size_t r = 0; r < texts.size(); ++r) {
    out["rank_" + std::to_string(r) + ".trace.jsonl"] = texts[r];
  }
  return out;
}

Run read_files(const Files& files) {
  Tables tables;
  std::vector<RankTrace> traces;
  std::vector<Run::Unreadable> unreadable;
  const Format* used = nullptr;
  for (const auto& [name, bytes] : files) {
    const Format* const format = recognise(bytes);
    if (format == nullptr) {
      unreadable.push_back({Error{"of no known form", {name}, ""}, rank_in_name(name)});
      continue;
    }
    Result<std::vector<RankTrace>> read = format->read({bytes, name, rank_in_name(name)}, tables);
    if (!read) {
      unreadable.push_back({read.error(), rank_in_name(name)});
      continue;
    }
    for (RankTrace& trace : *read) traces.push_back(std::move(trace));
    used = format;
  }
  if (used != nullptr && used->link != nullptr) used->link(traces, tables);
  Run run = assemble_run(std::move(tables), std::move(traces));
  run.unreadable = std::move(unreadable);
  return run;
}

}  // namespace lockstep::injection
