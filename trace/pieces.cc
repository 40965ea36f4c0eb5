#include "trace/pieces.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/files/read_file.h"
#include "base/large_pages.h"
#include "base/text.h"
#include "base/threads.h"
#include "trace/formats/ring/reader.h"
#include "trace/pasted_text.h"
#include "trace/utf16.h"

namespace lockstep::trace {

namespace fs = std::filesystem;

std::optional<Rank> ReadingPlan::rank_of(const std::string& name) const {
  const std::string base = fs::path(name).filename().string();
  if (!rank_pattern) return rank_in_name(base);
  std::smatch match;
  if (!std::regex_search(base, match, *rank_pattern) || match.size() < 2) return std::nullopt;
  return rank_in_name(match[1].str());
}

std::optional<Rank> ReadingPlan::rank_of_output(const std::string& name) const {
  if (rank_pattern) return rank_of(name);
  const fs::path path(name);
  const std::string base = path.filename().string();
  if (base.find("rank") != std::string::npos) return rank_in_name(base);
  const std::string folder = path.parent_path().filename().string();
  const bool redirected = base.starts_with("stdout") || base.starts_with("stderr");
  const bool number =
      !folder.empty() && folder.find_first_not_of("0123456789") == std::string::npos;
  return redirected && number ? rank_in_name(folder) : std::nullopt;
}

Result<ReadingPlan> make_reading_plan(const LoadOptions& options) {
  ReadingPlan plan;
  plan.evidence = options.evidence;
  plan.work = options.work;
  if (!options.format.empty()) {
    plan.format = format_named(options.format);
    if (plan.format == nullptr) {
      std::vector<std::string> names;
      for (const Format& format : all_formats()) names.emplace_back(format.name);
      return Error{fmt::format("no format is called \"{}\"", printable(options.format)),
                   {},
                   did_you_mean(options.format, names,
                                fmt::format("one of {}; --output chooses the form of a report",
                                            join_and(names)))};
    }
  }
  if (!options.rank_pattern.empty()) {
    try {
      plan.rank_pattern.emplace(options.rank_pattern);
    } catch (const std::regex_error& e) {
      return Error{fmt::format("the rank pattern is not a regular expression: {}", e.what()),
                   {options.rank_pattern},
                   "for example 'node\\d+_(\\d+)\\.bin'"};
    }
    if (plan.rank_pattern->mark_count() == 0) {
      return Error{"the rank pattern has no group",
                   {options.rank_pattern},
                   "put the rank's digits in parentheses: 'dump_(\\d+)'"};
    }
  }
  return plan;
}

const Format* Piece::kind() const {
  const Format& counted = counts_as();
  return is_own(counted) ? format_named("text") : &counted;
}

namespace {

// Reads a file's traces into the piece.
void read_piece(const TraceFile& file, Tables& tables, Piece& piece) {
  if (piece.format->read_recording == nullptr) {
    Result<std::vector<RankTrace>> traces = piece.format->read(file, tables);
    if (traces)
      piece.traces = std::move(*traces);
    else
      piece.error = traces.error();
    return;
  }
  piece.rank.reset();  // a digest holds many ranks: a number in its name is none of them
  Result<Recording> recording = piece.format->read_recording(file, tables);
  if (!recording) {
    piece.error = recording.error();
    return;
  }
  piece.stands_for = recording->format;
  piece.traces = std::move(recording->traces);
  piece.unreadable = std::move(recording->unreadable);
}

// Reads what a file says besides calls. Logs that hold calls (NCCL's, the watchdog's) are read
// again for that, and so is a file of several kinds: stacks and RAS's answers below a job's output.
void read_evidence(const Content& content, const ReadingPlan& plan, Piece& piece) {
  const bool log = piece.format != nullptr && piece.format->is_log;
  if (!plan.evidence || (piece.format != nullptr && !log)) return;
  for (const EvidenceSource& source : evidence_sources()) {
    if (!source.recognises(content.bytes, content.name)) continue;
    FileEvidence told =
        source.read({content.bytes, content.name, plan.rank_of_output(content.name)});
    // The first is what the file is, even if nothing in it counts.
    if (!piece.sources.empty() && told.notes.empty()) continue;
    piece.sources.push_back(&source);
    for (RankNote& note : told.notes) piece.evidence.add(std::move(note));
    std::move(told.launched.begin(), told.launched.end(),
              std::back_inserter(piece.evidence.launched));
    piece.evidence.world_size = std::max(piece.evidence.world_size, told.world_size);
  }
}

// The text of a file that does not hold it plainly: in UTF-16, quoted, coloured. Nothing for all
// others. Recordings of calls are never changed.
std::optional<std::string> plain_form(std::string_view bytes) {
  std::optional<std::string> text = utf8_of_utf16(bytes);
  if (text) bytes = *text;
  const Format* const format = recognise(bytes);
  if (format != nullptr && !format->is_log) return text;
  std::optional<std::string> plain = without_wrapping(bytes);
  return plain ? plain : text;
}

// What to do with a file of no form that can be read, by its name and first bytes.
std::string how_to_read(const Content& content) {
  const auto ends_with_any = [&](std::initializer_list<std::string_view> endings) {
    return std::any_of(endings.begin(), endings.end(),
                       [&](auto e) { return content.name.ends_with(e); });
  };
  if (ends_with_any({".nsys-rep", ".qdrep"}))
    return "export it: nsys export --type sqlite -o rank_0.sqlite rank_0.nsys-rep";
  if (ends_with_any({".pt", ".pth", ".ckpt", ".safetensors", ".bin.index.json"}) ||
      content.name.ends_with("/data.pkl"))
    return "this looks like a checkpoint; name the folder of the job's dumps, traces or logs";
  return "`lockstep verify --help` lists what can be read; --format forces one";
}

// Reads one unpacked file: as evidence, as traces, or both. `named`: the user named the file, so
// that a failure is reported.
Piece read_content(const Content& content, bool named, const ReadingPlan& plan, Tables& tables) {
  Piece piece;
  piece.name = content.name;
  piece.named = named && !content.member;
  piece.format = recognise(content.bytes);
  piece.written = content.written;
  piece.job = ring_job(content.bytes);
  piece.rank = plan.rank_of(content.name);
  read_evidence(content, plan, piece);
  // --format overrides what a named file looks like; in a folder it only selects files.
  const bool forced = plan.format != nullptr && named;
  if (piece.format == nullptr && !piece.sources.empty() && !forced) return piece;
  if (plan.format != nullptr && (piece.format == nullptr || named)) piece.format = plan.format;
  if (piece.format == nullptr) {
    piece.error =
        content.bytes.empty() && content.truncated
            ? Error{"the packed file is cut off or damaged, and nothing in it can be unpacked",
                    {content.name},
                    "copy it again"}
        : content.bytes.empty()
            ? Error{"the file is empty", {content.name}, "did the program that writes it run?"}
            : Error{"not a trace of a known form", {content.name}, how_to_read(content)};
    return piece;
  }
  if (plan.format != nullptr && piece.format != plan.format) return piece;  // not wanted
  read_piece({content.bytes, content.name, piece.rank, plan.work, content.written}, tables, piece);
  if (piece.error && !piece.sources.empty()) {  // a log without calls
    piece.error.reset();
    return piece;
  }
  if (content.truncated) {
    for (RankTrace& trace : piece.traces) {
      trace.add_damage("the packed file was cut off or is damaged; what came before was read");
      trace.damaged_at_end = true;
    }
  }
  return piece;
}

// Reads files until none is left: the share of one thread. `next`: the first file that no thread
// has taken. Threads take one at a time, so that all end together however large the files are, and
// however much of a core each thread gets.
std::vector<Piece> read_share(const std::vector<FoundFile>& files, std::atomic<std::size_t>& next,
                              std::size_t expected_bytes, const ReadingPlan& plan, Tables& tables) {
  expect_allocations(expected_bytes);
  std::vector<Piece> pieces;
  FileBuffer buffer;
  for (std::size_t f = next++; f < files.size(); f = next++) {
    const FoundFile& file = files[f];
    const auto is_wanted = [&](std::string_view head) {
      return plan.format != nullptr || recognise(head) != nullptr ||
             (plan.evidence && recognise_evidence(head, file.path) != nullptr);
    };
    const Status opened =
        for_each_content(file.path, buffer,
                         {.wants =
                              [&](std::string_view head) {
                                const std::optional<std::string> text = plain_form(head);
                                return is_wanted(text ? *text : head);
                              },
                          .use =
                              [&](Content content) {
                                const std::optional<std::string> text = plain_form(content.bytes);
                                if (text) content.bytes = *text;
                                pieces.push_back(read_content(content, file.named, plan, tables));
                              }});
    if (opened) continue;
    Piece& piece = pieces.emplace_back();
    piece.name = file.path;
    piece.named = file.named;
    piece.rank = plan.rank_of(file.path);
    piece.error = opened.error();
  }
  return pieces;
}

// A thread's part of the files' sizes; the traces that are read are about as large as the files.
std::size_t share_of_bytes(const std::vector<FoundFile>& files, std::size_t threads) {
  std::size_t bytes = 0;
  for (const FoundFile& file : files) {
    std::error_code none;  // of standard input, for one
    const std::uintmax_t size = fs::file_size(file.path, none);
    if (!none) bytes += static_cast<std::size_t>(std::min<std::uintmax_t>(size, kLargestFile));
  }
  return bytes / threads;
}

}  // namespace

std::vector<Piece> read_pieces(const std::vector<FoundFile>& files, const ReadingPlan& plan,
                               unsigned threads, Tables& tables) {
  constexpr std::size_t kFilesPerThread = 4;  // below that a thread costs more than it saves
  const std::size_t wanted = threads != 0 ? threads : processors();
  const std::size_t n =
      std::clamp<std::size_t>(files.size() / kFilesPerThread, 1, std::max<std::size_t>(wanted, 1));
  std::vector<Tables> own(n - 1);
  std::vector<std::vector<Piece>> shares(n);
  std::atomic<std::size_t> next = 0;
  const std::size_t bytes = share_of_bytes(files, n);
  on_threads(n, [&](std::size_t i) {
    shares[i] = read_share(files, next, bytes, plan, i == 0 ? tables : own[i - 1]);
  });
  std::vector<Piece> pieces = std::move(shares[0]);
  for (std::size_t i = 1; i < n; ++i) {
    for (Piece& piece : shares[i]) {
      move_to_tables(tables, own[i - 1], piece.traces);
      pieces.push_back(std::move(piece));
    }
  }
  std::sort(pieces.begin(), pieces.end(),
            [](const Piece& a, const Piece& b) { return a.name < b.name; });
  return pieces;
}

bool is_own(const Format& format) { return format.name == "ring" || format.name == "text"; }

std::string shape_of(const std::string& name) {
  std::string out;
  for (const char c : fs::path(name).filename().string()) {
    if (c < '0' || c > '9') {
      out.push_back(c);
    } else if (!out.ends_with('#')) {
      out.push_back('#');
    }
  }
  return out;
}

}  // namespace lockstep::trace
