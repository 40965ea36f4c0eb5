// Format: a kind of file that holds recorded calls. The table of all formats is in format.cc. A new
// format needs a reader in this folder (`<name>.cc`), its declaration here, a row in the table,
// and a test with damaged input.
//
// A reader turns one file into the traces of the ranks that it holds. What only several files
// together tell (the members of a communicator) is filled in by `link`, once, after the last file.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "trace/run.h"

namespace lockstep::trace {

// A file's content, unpacked.
struct TraceFile {
  std::string_view bytes;
  std::string name;          // what errors call it: "dumps/rank_3", "dumps.tar:rank_3"
  std::optional<Rank> rank;  // from its name: for formats that do not record the rank
  // Also read what the rank computed, as spans, where the format records it: what a simulation
  // needs, and analyses of calls do not.
  bool work = false;
  Nanos written = kNoTime;  // Content::written
};

struct Format;

// The content of a file that stands for others (a digest).
struct Recording {
  const Format* format = nullptr;  // of the files that it stands for
  std::vector<RankTrace> traces;
  std::vector<Run::Unreadable> unreadable;  // those of them that could not be read
};

struct Format {
  std::string_view name;     // as `--format` takes it
  std::string_view summary;  // one line, for `--help`
  // Whether a file that begins with these bytes is of this format. Looks at the first few kilobytes
  // only, so that it is also true for files that were cut off after them.
  bool (*recognises)(std::string_view bytes);
  // Reads the traces in a file. Damaged records are counted in the trace and skipped.
  // Errors: the file cannot be used at all, with the location and the cause.
  Result<std::vector<RankTrace>> (*read)(const TraceFile& file, Tables& tables);
  // Completes each trace with what the others show; null: nothing to do. All traces are of this
  // format, in the order of the files' names.
  void (*link)(std::span<RankTrace> traces, Tables& tables) = nullptr;
  // What this format never records, one sentence each: listed in reports.
  std::span<const std::string_view> unknown = {};
  // For a digest, instead of `read`: the traces, and what of the original files they cannot hold.
  // Null for all other formats.
  Result<Recording> (*read_recording)(const TraceFile& file, Tables& tables) = nullptr;
  // The file is the output of processes, and may hold more than calls (trace/evidence).
  bool is_log = false;
};

// All formats, the richest first: of several recordings of one job, the first provides the calls.
std::span<const Format> all_formats();

// The format of a file, recognised by its content; null: none.
const Format* recognise(std::string_view bytes);
// The format with that name; null: none.
const Format* format_named(std::string_view name);

// The rank in a file's name (without folders): the number after the last "rank"
// ("host7_rank3_20240501.log"), otherwise the last number ("_dump_7", "r3.log.gz"). Nothing where
// there is no number, or where that number is part of a word ("hf_GPT2_et.json").
std::optional<Rank> rank_in_name(std::string_view file_name);

// Lockstep's own two forms, as rows of the table of formats.

Format ring_format();  // trace/formats/ring/reader.h
Format text_format();  // trace/formats/text/text_trace.h

// The formats of other tools, as rows of the table. Each <name>.cc describes what it reads at its
// top.

Format flight_recorder_format();
Format kineto_format();
Format nsys_format();
Format execution_trace_format();
Format chakra_format();
Format nccl_log_format();
Format clog_format();
Format detail_log_format();
Format watchdog_log_format();

// The most memory that reading a file takes, in bytes per byte of the file; a test holds each
// reader to it. Flight Recorder's is the largest because a pickle's shapes can share their parts.
inline constexpr std::size_t kFlightRecorderMemoryFactor = 160;
inline constexpr std::size_t kKinetoMemoryFactor = 12;
inline constexpr std::size_t kNsysMemoryFactor = 24;
inline constexpr std::size_t kNsysDatabaseMemoryFactor = 96;  // its smallest rows have ten bytes
inline constexpr std::size_t kExecutionTraceMemoryFactor = 12;
inline constexpr std::size_t kChakraMemoryFactor = 96;
inline constexpr std::size_t kNcclLogMemoryFactor = 24;
inline constexpr std::size_t kClogMemoryFactor = 40;
inline constexpr std::size_t kDetailLogMemoryFactor = 40;
inline constexpr std::size_t kWatchdogLogMemoryFactor = 40;

}  // namespace lockstep::trace
