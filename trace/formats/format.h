// Format: one kind of file that recorded calls come in. The table of all of them stands in
// format.cc; a new one is a file beside this (`<name>.cc`) that is declared here, a row there, and
// a test with damaged input.
//
// A reader turns one file into the traces of the ranks that it holds. What only several files
// together tell (the members of a communicator, say) is filled in by `link`, once, after the last.
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
  std::optional<Rank> rank;  // by its name: for formats that do not say whose trace it is
};

struct Format;

// What a file holds that stands for others.
struct Recording {
  const Format* format = nullptr;  // of the files that it stands for
  std::vector<RankTrace> traces;
  std::vector<Run::Unreadable> unreadable;  // those of them that could not be read
};

struct Format {
  std::string_view name;     // as `--format` takes it
  std::string_view summary;  // one line, for `--help`
  // Whether a file with these bytes is of this format; looks at the first few kilobytes only, and
  // is true for files that were cut off behind them.
  bool (*recognises)(std::string_view bytes);
  // The traces in a file. Damaged records are counted in the trace and skipped.
  // Errors: nothing can be made of it, with the place and the cause.
  Result<std::vector<RankTrace>> (*read)(const TraceFile& file, Tables& tables);
  // Completes traces by what the others tell; null: nothing to do. All are of this format; their
  // order is that of the files' names.
  void (*link)(std::span<RankTrace> traces, Tables& tables) = nullptr;
  // What this format never records, a sentence each: listed in reports.
  std::span<const std::string_view> unknown = {};
  // For files that stand for others: the same as `read`, and what of these the traces cannot hold.
  // Null: the file is its own.
  Result<Recording> (*read_recording)(const TraceFile& file, Tables& tables) = nullptr;
  // The file is the output of processes, which may say more than their calls (trace/evidence).
  bool is_log = false;
};

// Every format, the richest first: of several recordings of one job the first is read as its calls.
std::span<const Format> all_formats();

// The format of a file by its content; null: none.
const Format* recognise(std::string_view bytes);
// The format with that name; null: none.
const Format* format_named(std::string_view name);

// The rank in a file's name (without folders): the last number of "rank_3", "trace_rank_12.json",
// "_dump_7", "r3.log.gz", …. Nothing where there is no number.
std::optional<Rank> rank_in_name(std::string_view file_name);

// Lockstep's own two forms, as rows of the table of formats.

Format ring_format();  // trace/formats/ring/reader.h
Format text_format();  // trace/formats/text/text_trace.h

// The formats that others write, as rows of the table: each <name>.cc opens with what it reads.

Format flight_recorder_format();
Format kineto_format();
Format execution_trace_format();
Format chakra_format();
Format nccl_log_format();
Format clog_format();
Format detail_log_format();
Format watchdog_log_format();

// Memory that reading a file takes at most, in bytes per byte of the file.
// Of a Flight Recorder dump tensors' shapes that share their parts are what costs most.
inline constexpr std::size_t kFlightRecorderMemoryFactor = 160;
inline constexpr std::size_t kKinetoMemoryFactor = 12;
inline constexpr std::size_t kExecutionTraceMemoryFactor = 12;
inline constexpr std::size_t kChakraMemoryFactor = 96;
inline constexpr std::size_t kNcclLogMemoryFactor = 24;
inline constexpr std::size_t kClogMemoryFactor = 40;
inline constexpr std::size_t kDetailLogMemoryFactor = 40;
inline constexpr std::size_t kWatchdogLogMemoryFactor = 40;

}  // namespace lockstep::trace
