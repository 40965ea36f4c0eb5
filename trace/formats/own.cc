#include "trace/formats/own.h"

#include <utility>

#include "trace/communicators.h"
#include "trace/formats/ring/ring_reader.h"
#include "trace/formats/text/text_trace.h"

namespace lockstep {

namespace {

Result<std::vector<RankTrace>> one(Result<RankTrace> trace) {
  if (!trace) return trace.error();
  std::vector<RankTrace> out;
  out.push_back(std::move(*trace));
  return out;
}

// A line `{"header":1,…` first; also for a file that is cut off within it.
bool looks_like_text(std::string_view bytes) {
  if (bytes.starts_with("\xEF\xBB\xBF")) bytes.remove_prefix(3);
  const auto skip_blanks = [&] {
    const std::size_t first = bytes.find_first_not_of(" \t\r\n");
    bytes.remove_prefix(first == std::string_view::npos ? bytes.size() : first);
  };
  skip_blanks();
  if (!bytes.starts_with('{')) return false;
  bytes.remove_prefix(1);
  skip_blanks();
  constexpr std::string_view kKey = "\"header\"";
  return bytes.substr(0, kKey.size()) == kKey.substr(0, bytes.size());
}

// What sees NCCL's calls alone knows no members of communicators, and nobody's wait. Where it saw
// that a rank hangs, its trace is a look at a process that stands there.
void link_own(std::span<RankTrace> traces, Tables& tables) {
  for (RankTrace& trace : traces)
    if (has_unlinked(trace, tables)) trace.snapshot = trace.end == End::hung;
  link_communicators(traces, tables);
}

}  // namespace

Format ring_format() {
  return {
      .name = "ring",
      .summary = "lockstep's ring files (*.ring)",
      .recognises = looks_like_ring_file,
      .read = [](const TraceFile& file,
                 Tables& tables) { return one(read_ring_trace(file.bytes, file.name, tables)); },
      .link = link_own};
}

Format text_format() {
  return {
      .name = "text",
      .summary = "lockstep's text form (*.trace.jsonl)",
      .recognises = looks_like_text,
      .read = [](const TraceFile& file,
                 Tables& tables) { return one(read_text_trace(file.bytes, file.name, tables)); },
      .link = link_own};
}

}  // namespace lockstep
