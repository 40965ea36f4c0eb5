// PyTorch Flight Recorder dumps, as PyTorch 2.4 to 2.15 write them, of NCCL and Gloo process
// groups: the pickle, its JSON twin, and the pages of the debug server, which hold the JSON of all
// ranks. dump_reader.cc says what a dump holds, link_dumps.h what only all dumps together show.

#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/result.h"
#include "trace/formats/flight_recorder/dump_page.h"
#include "trace/formats/flight_recorder/dump_reader.h"
#include "trace/formats/flight_recorder/json.h"
#include "trace/formats/flight_recorder/link_dumps.h"
#include "trace/formats/flight_recorder/names.h"
#include "trace/formats/flight_recorder/pickle.h"
#include "trace/formats/format.h"

namespace lockstep::trace {

namespace {

Result<std::vector<RankTrace>> read_dump(const TraceFile& given, Tables& tables);

// Reads the dumps of all ranks on one page of PyTorch's debug server; skips unreadable ones.
Result<std::vector<RankTrace>> read_page(const TraceFile& file, Tables& tables) {
  std::vector<RankTrace> out;
  Error first{"no Flight Recorder dump on this page", {file.name}, "no rank could be reached"};
  for (const DumpOnPage& dump : dumps_on_page(file.bytes)) {
    Result<std::vector<RankTrace>> read = read_dump(
        {.bytes = dump.json, .name = file.name, .rank = dump.rank, .written = file.written},
        tables);
    if (!read) {
      if (out.empty()) first = read.error();
      continue;
    }
    for (RankTrace& trace : *read) {
      if (trace.host.empty()) trace.host = dump.host;
      out.push_back(std::move(trace));
    }
  }
  if (out.empty()) return first;
  return out;
}

// Reads a dump of any of the three forms: pickle, JSON, page.
Result<std::vector<RankTrace>> read_dump(const TraceFile& given, Tables& tables) {
  if (looks_like_dump_page(given.bytes)) return read_page(given, tables);
  Result<Pickle> dump = looks_like_pickle(given.bytes) ? read_pickle(given.bytes, given.name)
                                                       : read_json_dump(given.bytes, given.name);
  if (!dump) return dump.error();
  TraceFile file = given;
  if (!file.rank) file.rank = rank_in_dump(dump->tree);
  if (!file.rank) {
    return Error{"neither this Flight Recorder dump nor its name says which rank wrote it",
                 {file.name},
                 "name it …_rank_<r>, or say where the rank is with --rank-pattern"};
  }
  Result<RankTrace> trace = read_dump_tree(dump->tree, file, tables);
  if (!trace) return trace.error();
  // A dump that was cut off: the rank went on after the last entry that was read.
  if (!dump->damage.empty()) {
    trace->add_damage(fmt::format("{} (byte {})", dump->damage, dump->damage_at));
    trace->damaged_at_end = true;
    trace->end = End::cut;
    trace->open_ended = true;
  }
  std::vector<RankTrace> out;
  out.push_back(std::move(*trace));
  return out;
}

bool is_dump(std::string_view bytes) {
  return looks_like_pickle(bytes) || looks_like_json_dump(bytes) || looks_like_dump_page(bytes);
}

constexpr std::array<std::string_view, 3> kUnknownInDump = {
    "reduce operation and root: not recorded by Flight Recorder",
    "splits of all-to-all: not recorded by Flight Recorder, only totals are compared",
    "training steps and modalities: not recorded by Flight Recorder",
};

}  // namespace

Format flight_recorder_format() {
  return {.name = "flight-recorder",
          .summary = "PyTorch Flight Recorder dumps (pickle or JSON)",
          .recognises = is_dump,
          .read = read_dump,
          .link = link_dumps,
          .unknown = kUnknownInDump};
}

}  // namespace lockstep::trace