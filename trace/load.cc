#include "trace/load.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"
#include "trace/formats/format.h"
#include "trace/formats/ring/reader.h"
#include "trace/gpus.h"
#include "trace/groups.h"
#include "trace/run.h"
#include "trace/signature.h"
#include "trace/trace_files.h"

namespace lockstep::trace {

namespace {

namespace fs = std::filesystem;

// How to read the files, from LoadOptions.
struct Plan {
  const Format* format = nullptr;  // null: recognised by content
  bool evidence = false;           // LoadOptions::evidence
  bool work = false;               // LoadOptions::work
  std::optional<std::regex> rank_pattern;

  std::optional<Rank> rank_of(const std::string& name) const {
    const std::string base = fs::path(name).filename().string();
    if (!rank_pattern) return rank_in_name(base);
    std::smatch match;
    if (!std::regex_search(base, match, *rank_pattern) || match.size() < 2) return std::nullopt;
    return rank_in_name(match[1].str());
  }

  // The rank of a log or stack file. Numbers in such names are mostly those of processes and jobs
  // ("slurm-48123.out"), so only a number after "rank" counts, and torchrun's folders:
  // …/attempt_0/3/stderr.log is rank 3.
  std::optional<Rank> rank_of_output(const std::string& name) const {
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
};

Result<Plan> make_plan(const LoadOptions& options) {
  Plan plan;
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

// The result of reading one file, or one member of an archive.
struct Piece {
  std::string name;
  bool named = false;
  const Format* format = nullptr;  // null: none known
  std::optional<Rank> rank;        // by its name
  std::vector<RankTrace> traces;
  std::optional<Error> error;
  // For a digest: the format of the files that it was made from, and those that were unreadable.
  const Format* stands_for = nullptr;
  std::vector<Run::Unreadable> unreadable;
  std::string job;                         // which run of the job wrote it (ring_job)
  const EvidenceSource* source = nullptr;  // of `evidence`; null: it is none
  FileEvidence evidence;

  const Format& counts_as() const { return stands_for != nullptr ? *stands_for : *format; }
};

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

// Reads what a file says besides calls. Logs that hold calls (NCCL's, the watchdog's) are read a
// second time for that.
void read_evidence(const Content& content, const Plan& plan, Piece& piece) {
  const bool log = piece.format != nullptr && piece.format->is_log;
  if (!plan.evidence || (piece.format != nullptr && !log)) return;
  piece.source = recognise_evidence(content.bytes, content.name);
  if (piece.source == nullptr) return;
  piece.evidence =
      piece.source->read({content.bytes, content.name, plan.rank_of_output(content.name)});
}

// Reads one unpacked file: as evidence, as traces, or both. `named`: the user named the file, so
// that a failure is reported.
Piece read_content(const Content& content, bool named, const Plan& plan, Tables& tables) {
  Piece piece;
  piece.name = content.name;
  piece.named = named && !content.member;
  piece.format = recognise(content.bytes);
  piece.job = ring_job(content.bytes);
  piece.rank = plan.rank_of(content.name);
  read_evidence(content, plan, piece);
  // --format overrides what a named file looks like; in a folder it only selects files.
  const bool forced = plan.format != nullptr && named;
  if (piece.format == nullptr && piece.source != nullptr && !forced) return piece;
  if (plan.format != nullptr && (piece.format == nullptr || named)) piece.format = plan.format;
  if (piece.format == nullptr) {
    piece.error =
        content.bytes.empty() && content.truncated
            ? Error{"the packed file is cut off or damaged, and nothing in it can be unpacked",
                    {content.name},
                    "copy it again"}
        : content.bytes.empty()
            ? Error{"the file is empty", {content.name}, "did the program that writes it run?"}
            : Error{"not a trace of a known form",
                    {content.name},
                    "`lockstep verify --help` lists what can be read; --format forces one"};
    return piece;
  }
  if (plan.format != nullptr && piece.format != plan.format) return piece;  // not wanted
  read_piece({content.bytes, content.name, piece.rank, plan.work}, tables, piece);
  if (piece.error && piece.source != nullptr) {  // a log without calls
    piece.error.reset();
    return piece;
  }
  if (content.truncated) {
    for (RankTrace& trace : piece.traces) {
      trace.add_damage("the packed file was cut off or is damaged; what came before was read");
    }
  }
  return piece;
}

// Reads every `stride`-th file from `first` on: the share of one thread.
std::vector<Piece> read_share(const std::vector<FoundFile>& files, std::size_t first,
                              std::size_t stride, const Plan& plan, Tables& tables) {
  std::vector<Piece> pieces;
  FileBuffer buffer;
  for (std::size_t f = first; f < files.size(); f += stride) {
    const FoundFile& file = files[f];
    const Status opened = for_each_content(
        file.path, buffer,
        {.wants =
             [&](std::string_view head) {
               return plan.format != nullptr || recognise(head) != nullptr ||
                      (plan.evidence && recognise_evidence(head, file.path) != nullptr);
             },
         .use =
             [&](const Content& content) {
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

// Reads all files in parallel. Each thread interns into tables of its own, without locks; then
// everything moves to `tables` in the order of the threads, so that the ids depend on the number of
// threads, but nothing that is reported depends on the ids.
std::vector<Piece> read_all(const std::vector<FoundFile>& files, const Plan& plan, unsigned threads,
                            Tables& tables) {
  constexpr std::size_t kFilesPerThread = 4;  // below that a thread costs more than it saves
  const std::size_t wanted = threads != 0 ? threads : std::thread::hardware_concurrency();
  const std::size_t n =
      std::clamp<std::size_t>(files.size() / kFilesPerThread, 1, std::max<std::size_t>(wanted, 1));
  std::vector<Tables> own(n - 1);
  std::vector<std::vector<Piece>> shares(n);
  std::vector<std::thread> running;
  std::vector<std::exception_ptr> failed(n);  // an exception must not leave a thread (bad_alloc)
  const auto read = [&](std::size_t i) {
    try {
      shares[i] = read_share(files, i, n, plan, i == 0 ? tables : own[i - 1]);
    } catch (...) {
      failed[i] = std::current_exception();
    }
  };
  for (std::size_t i = 1; i < n; ++i) running.emplace_back(read, i);
  read(0);
  for (std::thread& thread : running) thread.join();
  for (const std::exception_ptr& failure : failed) {
    if (failure) std::rethrow_exception(failure);
  }
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

// A file's name with each number replaced by '#', which is the same for all files of one recording:
// "rank_12.json" and "rank_3.json" have the shape "rank_#.json".
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

// Drops text forms beside the ring file of the same rank (rank_3.ring, rank_3.trace.jsonl): the
// text was made from it, and both would be two traces of one rank.
void drop_second_forms(std::vector<Piece>& pieces, bool evidence) {
  constexpr std::string_view kRing = ".ring";
  std::set<std::string> rings;
  for (const Piece& piece : pieces) {
    if (!piece.named && piece.name.ends_with(kRing)) {
      rings.insert(piece.name.substr(0, piece.name.size() - kRing.size()));
    }
  }
  std::erase_if(pieces, [&](const Piece& piece) {
    if (piece.named) return false;
    for (const std::string_view ending : {".trace.jsonl", ".trace.jsonl.gz"}) {
      if (!piece.name.ends_with(ending)) continue;
      if (rings.contains(piece.name.substr(0, piece.name.size() - ending.size()))) return true;
    }
    // What else a rank left beside its ring file (rank_3.log, rank_3.result.json) may quote
    // PyTorch's messages, which name calls as well: evidence, and not a second recording.
    if (evidence || piece.name.ends_with(kRing)) return false;
    const std::size_t file = piece.name.rfind('/') + 1;  // 0 where there is no folder
    return rings.contains(piece.name.substr(0, piece.name.find('.', file)));
  });
}

// Of several runs of a job that recorded into one folder, keeps the newest: a rank that did not
// come to record in it has the file of an earlier run there. Returns the names of those dropped.
std::vector<std::string> drop_earlier_runs(std::vector<Piece>& pieces) {
  std::map<fs::path, std::string> newest;  // by folder
  for (const Piece& piece : pieces) {
    std::string& job = newest[fs::path(piece.name).parent_path()];
    job = std::max(job, piece.job);
  }
  std::vector<std::string> dropped;
  std::erase_if(pieces, [&](const Piece& piece) {
    const bool earlier =
        !piece.job.empty() && piece.job != newest[fs::path(piece.name).parent_path()];
    if (earlier) dropped.push_back(printable(piece.name));
    return earlier;
  });
  return dropped;
}

// The folder in one of `paths` that holds the file: "job/node0" of job/node0/rank_3. Empty: none.
std::string folder_below(const std::string& name, const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    const fs::path inner = fs::path(name).lexically_relative(path);
    if (inner.empty() || *inner.begin() == ".." || std::next(inner.begin()) == inner.end())
      continue;
    return (fs::path(path) / *inner.begin()).string();
  }
  return {};
}

// The error for folders in a folder that hold a trace of the same rank: the files of two runs, or
// of two attempts, would make one run that never was.
std::optional<Error> several_runs(const std::vector<Piece>& pieces,
                                  const std::vector<std::string>& paths) {
  std::map<Rank, std::string> holder;
  for (const Piece& piece : pieces) {
    const std::string folder = folder_below(piece.name, paths);
    for (const RankTrace& trace : piece.traces) {
      const auto [first, is_new] = holder.try_emplace(trace.rank, folder);
      if (is_new || first->second == folder) continue;
      return Error{fmt::format("{} and {} both hold a trace of rank {}: they are two runs, or "
                               "their files are numbered anew on each node",
                               printable(first->second), printable(folder), trace.rank.value),
                   {paths.front()},
                   "name the folder of one run; for files of several nodes, rename them by global "
                   "rank"};
    }
  }
  return std::nullopt;
}

// Drops digests that are in a folder with traces: they were made from these.
void drop_digests_of_others(std::vector<Piece>& pieces) {
  std::set<fs::path> with_traces;
  for (const Piece& piece : pieces) {
    if (!piece.traces.empty() && piece.stands_for == nullptr)
      with_traces.insert(fs::path(piece.name).parent_path());
  }
  std::erase_if(pieces, [&](const Piece& piece) {
    const bool is_digest = piece.format != nullptr && piece.format->read_recording != nullptr;
    return is_digest && !piece.named && with_traces.contains(fs::path(piece.name).parent_path());
  });
}

// Drops files that are in a folder by chance (configs, checkpoints), but keeps the errors of files
// that should have been traces: those that the user named, those with lockstep's endings, and those
// whose name has the shape of a trace that was read.
void drop_strangers(std::vector<Piece>& pieces) {
  std::set<std::string> shapes;
  for (const Piece& piece : pieces) {
    if (!piece.traces.empty() && piece.rank) shapes.insert(shape_of(piece.name));
  }
  std::erase_if(pieces, [&](const Piece& piece) {
    if (!piece.traces.empty() || piece.source != nullptr) return false;
    if (!piece.error) return true;  // of another format than the one asked for, or without ranks
    // Without any readable trace to compare with, every recognised but broken file is reported.
    if (piece.named || (piece.format != nullptr && shapes.empty())) return false;
    for (const std::string_view own : {".ring", ".trace.jsonl", ".trace.jsonl.gz"}) {
      if (piece.name.ends_with(own)) return false;
    }
    return !shapes.contains(shape_of(piece.name));
  });
}

// The format, with lockstep's two own forms as one.
const Format* kind_of(const Piece& piece) {
  const Format& format = piece.counts_as();
  return is_own(format) ? format_named("text") : &format;
}

// The error for files of several formats: one job recorded twice, or two jobs in one folder.
std::optional<Error> mixed_formats(const std::vector<Piece>& pieces) {
  std::map<std::string_view, std::vector<std::string>> files;  // by format
  for (const Piece& piece : pieces) {
    if (!piece.traces.empty()) files[kind_of(piece)->name].push_back(piece.name);
  }
  if (files.size() < 2) return std::nullopt;
  std::vector<std::string> parts;
  for (const auto& [format, names] : files) {
    std::string part = fmt::format("--format {}: {}", format, printable(names.front()));
    if (names.size() > 1) part += fmt::format(" and {}", plural(names.size() - 1, "other file"));
    parts.push_back(std::move(part));
  }
  return Error{fmt::format("the files are of {} formats, which do not make one run: {}",
                           files.size(), join_and(parts, parts.size())),
               {},
               "name the files of one, or choose it with --format"};
}

// Of several formats, the one that provides the calls: the richest (first in all_formats()) of
// those that hold at least half as many ranks as the one with most ranks. So a single dump left
// over from before does not replace the log of the whole job.
const Format* choose_calls(const std::vector<Piece>& pieces) {
  std::map<const Format*, std::set<Rank>> ranks;
  for (const Piece& piece : pieces) {
    for (const RankTrace& trace : piece.traces) ranks[kind_of(piece)].insert(trace.rank);
  }
  std::size_t most = 0;
  for (const auto& [format, held] : ranks) most = std::max(most, held.size());
  for (const Format& format : all_formats()) {
    const auto held = ranks.find(&format);
    if (held != ranks.end() && 2 * held->second.size() >= most) return &format;
  }
  return nullptr;
}

// Notes what a recording that does not provide the calls says about ranks that the chosen one
// lacks.
void note_recording(const Piece& piece, const std::set<Rank>& chosen, const Tables& tables,
                    FileEvidence& out) {
  for (const RankTrace& trace : piece.traces) {
    if (chosen.contains(trace.rank)) continue;
    RankNote note;
    note.host = trace.host;
    note.gpu = trace.gpu;
    note.kind = RankNote::Kind::calls;
    note.rank = trace.rank;
    note.pid = trace.pid;
    note.location.file = piece.name;
    note.text = fmt::format("also recorded as {}: {}", kind_of(piece)->name,
                            plural(trace.calls.size(), "call"));
    if (!trace.calls.empty()) {
      const Call& last = trace.calls.back();
      note.text +=
          fmt::format(", the last {} in group {}", op_name(tables.signatures[last.signature].op),
                      tables.str(last.group));
    }
    out.add(std::move(note));
  }
}

// Keeps the traces of one format, and makes notes of everything else.
JobEvidence gather_evidence(std::vector<Piece>& pieces, const Tables& tables) {
  const Format* calls = choose_calls(pieces);
  std::set<Rank> chosen_ranks;
  for (const Piece& piece : pieces) {
    if (piece.traces.empty() || kind_of(piece) != calls) continue;
    for (const RankTrace& trace : piece.traces) chosen_ranks.insert(trace.rank);
  }
  JobEvidence out;
  std::map<std::string, std::size_t> beside;  // files by kind
  std::size_t files = 0;
  for (Piece& piece : pieces) {
    const bool chosen = !piece.traces.empty() && kind_of(piece) == calls;
    if (chosen) ++files;
    if (!piece.traces.empty() && !chosen) {
      note_recording(piece, chosen_ranks, tables, piece.evidence);
      for (const RankTrace& trace : piece.traces)
        out.locations.push_back({trace.rank, trace.world_size, trace.host, trace.pid, trace.gpu});
      ++beside[std::string(kind_of(piece)->name)];
      piece.traces.clear();
    } else if (!piece.evidence.notes.empty() && !chosen) {
      ++beside[std::string(piece.source->name)];
    }
    std::move(piece.evidence.notes.begin(), piece.evidence.notes.end(),
              std::back_inserter(out.notes));
    out.world_size = std::max(out.world_size, piece.evidence.world_size);
  }
  if (beside.empty()) return out;
  std::vector<std::string> parts;
  for (const auto& [kind, count] : beside)
    parts.push_back(fmt::format("{} of {}", plural(count, "file"), kind));
  out.sources = fmt::format(
      "{}; evidence: {}",
      calls == nullptr ? "no recording of calls"
                       : fmt::format("calls: {} of {}", plural(files, "file"), calls->name),
      join_and(parts));
  return out;
}

// The values that the headers give, with their ranks: "4 (ranks 0-2), 5 (rank 3)".
std::string disagreement(const std::map<std::string, std::vector<std::int32_t>>& holders) {
  std::vector<std::string> parts;
  for (const auto& [value, ranks] : holders) {
    parts.push_back(
        fmt::format("{}{}{})", value, (ranks.size() == 1 ? " (rank " : " (ranks "), ranges(ranks)));
  }
  return join_and(parts, 8);
}

// Whether the trace is a recording by another tool without times. Two such recordings of a rank
// differ in nothing but their names and calls.
bool is_untimed_recording(const RankTrace& trace) {
  return !trace.calls.empty() && !trace.source.ends_with(".ring") &&
         trace.source.find(".trace.jsonl") == std::string::npos &&
         std::all_of(trace.events.begin(), trace.events.end(),
                     [](const Event& event) { return event.time == kNoTime; });
}

// Whether two recordings without times have the same calls: a log that was copied or repeated.
bool say_the_same(const RankTrace& a, const RankTrace& b) {
  return is_untimed_recording(a) && is_untimed_recording(b) &&
         std::equal(a.calls.begin(), a.calls.end(), b.calls.begin(), b.calls.end(),
                    [](const Call& x, const Call& y) {
                      return x.group == y.group && x.seq == y.seq && x.signature == y.signature;
                    });
}

// Whether two recordings without times have names that differ in more than their numbers:
// "chakra.0.json" and "small_chakra.0.json". These are samples of two programs in one folder and do
// not contradict each other.
bool of_two_programs(const RankTrace& a, const RankTrace& b) {
  return is_untimed_recording(a) && is_untimed_recording(b) &&
         shape_of(a.source) != shape_of(b.source);
}

// Keeps one trace of each rank: the one with most events, then the first by name, so that the order
// of files does not matter.
void keep_one_each(Run& run) {
  std::sort(run.ranks.begin(), run.ranks.end(), [](const RankTrace& a, const RankTrace& b) {
    if (a.rank != b.rank) return a.rank < b.rank;
    if (a.events.size() != b.events.size()) return a.events.size() > b.events.size();
    return a.source < b.source;
  });
  std::vector<RankTrace> kept;
  for (RankTrace& trace : run.ranks) {
    if (kept.empty() || kept.back().rank != trace.rank) {
      kept.push_back(std::move(trace));
      continue;
    }
    if (say_the_same(kept.back(), trace)) continue;
    if (of_two_programs(kept.back(), trace)) {
      kept.back().inconclusive = fmt::format(
          "rank {} is, by their names, in {} and in {}, which look like two jobs; the first, which "
          "holds more, was read",
          trace.rank.value, printable(kept.back().source), printable(trace.source));
      continue;
    }
    run.header_conflicts.push_back(
        fmt::format("rank {} is in {} and in {}; the first, which holds more, was read",
                    trace.rank.value, printable(kept.back().source), printable(trace.source)));
  }
  run.ranks = std::move(kept);
}

// Takes the largest world size, and notes where the headers disagree.
void compare_headers(Run& run) {
  std::map<std::int32_t, std::vector<std::int32_t>> sizes;
  std::map<std::string, std::vector<std::int32_t>> semantics;
  for (const RankTrace& trace : run.ranks) {
    run.world_size = std::max(run.world_size, trace.world_size);
    sizes[trace.world_size].push_back(trace.rank.value);
    semantics[trace.semantics == Semantics::mpi ? "mpi" : "c10d"].push_back(trace.rank.value);
  }
  if (sizes.size() > 1) {
    std::map<std::string, std::vector<std::int32_t>> named;
    for (auto& [size, ranks] : sizes) named[std::to_string(size)] = std::move(ranks);
    run.header_conflicts.push_back(
        fmt::format("the headers disagree about world_size: {}", disagreement(named)));
  }
  if (semantics.size() > 1) {
    run.header_conflicts.push_back(
        fmt::format("the headers disagree about semantics: {}", disagreement(semantics)));
  }
}

}  // namespace

Run assemble_run(Tables tables, std::vector<RankTrace> traces) {
  Run run;
  run.tables = std::move(tables);
  run.ranks = std::move(traces);
  keep_one_each(run);
  compare_headers(run);
  separate_namesakes(run);
  return run;
}

namespace {

// What to say of a folder or archive in which nothing was of use.
Error no_traces(const std::string& path, const std::vector<FoundFile>& looked_at) {
  std::error_code unknown;
  if (!fs::is_directory(path, unknown))
    return {"no traces in this archive", {path}, "`lockstep verify --help` lists what can be read"};
  if (looked_at.empty())
    return {"no traces in this folder: it holds no files",
            {path},
            "folders in it are searched two levels deep"};
  const bool all_empty = std::all_of(looked_at.begin(), looked_at.end(), [](const FoundFile& file) {
    std::error_code failed;
    return fs::file_size(file.path, failed) == 0 && !failed;
  });
  if (all_empty)
    return {fmt::format("no traces in this folder: {} in it, {} empty",
                        plural(looked_at.size(), "file"), looked_at.size() == 1 ? "and" : "all"),
            {path},
            "did the program that writes them run?"};
  return {fmt::format("no traces in this folder: {} in it, of no known form",
                      plural(looked_at.size(), "file")),
          {path},
          "`lockstep verify --help` lists what can be read"};
}

}  // namespace

Result<LoadedTraces> load_traces(const std::vector<std::string>& paths,
                                 const LoadOptions& options) {
  if (paths.empty())
    return Error{"no traces were named", {}, "name files, or folders that hold them"};
  const Result<Plan> plan = make_plan(options);
  if (!plan) return plan.error();
  LoadedTraces out;
  std::vector<Piece> pieces;
  std::vector<FoundFile> looked_at;
  // Folders in a folder are searched only where nothing else holds a trace, because they may be
  // anything: earlier runs, checkpoints.
  for (const int levels : {0, 2}) {
    Result<std::vector<FoundFile>> files =
        find_files(paths, {.with_logs = options.evidence, .levels = levels});
    if (!files) return files.error();
    out.tables = Tables();
    pieces = read_all(*files, *plan, options.threads, out.tables);
    // Drop what is a second form of something else, in this order: a text form beside its ring file
    // must be gone before traces are counted.
    drop_second_forms(pieces, options.evidence);
    out.earlier_runs = drop_earlier_runs(pieces);
    drop_digests_of_others(pieces);
    drop_strangers(pieces);
    if (levels > 0) {
      if (const std::optional<Error> several = several_runs(pieces, paths)) return *several;
    }
    const bool found = std::any_of(pieces.begin(), pieces.end(), [](const Piece& piece) {
      return !piece.traces.empty() || piece.named;
    });
    looked_at = std::move(*files);
    if (found) break;
  }
  if (pieces.empty()) return no_traces(paths.front(), looked_at);
  out.expect_ranks = options.expect_ranks;
  if (options.evidence) {
    out.evidence = gather_evidence(pieces, out.tables);
  } else if (auto mixed = mixed_formats(pieces)) {
    return *mixed;
  }

  for (Piece& piece : pieces) {
    if (piece.error) out.unreadable.push_back({std::move(*piece.error), piece.rank});
    std::move(piece.unreadable.begin(), piece.unreadable.end(), std::back_inserter(out.unreadable));
    if (!piece.traces.empty()) out.format = kind_of(piece);
    std::move(piece.traces.begin(), piece.traces.end(), std::back_inserter(out.traces));
  }
  // Nothing to judge at all: the first file's error explains more than "no traces".
  if (out.traces.empty() && out.evidence.notes.empty()) {
    if (out.unreadable.empty()) {
      return Error{"no traces in this folder, and nothing in its logs about an end",
                   {paths.front()},
                   "`lockstep verify --help` lists what can be read"};
    }
    Error error = out.unreadable.front().error;
    if (out.unreadable.size() > 1) {
      error.message +=
          fmt::format(" (nor can {} be read)", plural(out.unreadable.size() - 1, "other file"));
    }
    return error;
  }
  return out;
}

Run complete_run(LoadedTraces loaded) {
  const Format* format = loaded.format;
  // Linking comes first: it fills in groups and world sizes, which the run is assembled from.
  if (format != nullptr && format->link != nullptr) format->link(loaded.traces, loaded.tables);
  Run run = assemble_run(std::move(loaded.tables), std::move(loaded.traces));
  run.unreadable = std::move(loaded.unreadable);
  if (format != nullptr) run.unknown.assign(format->unknown.begin(), format->unknown.end());
  if (!loaded.earlier_runs.empty()) {
    run.unknown.push_back(fmt::format("earlier runs of the job, in the same folder: {} not read",
                                      join_and(loaded.earlier_runs, 4)));
  }
  join_evidence(run, std::move(loaded.evidence), format != nullptr && is_own(*format));
  keep_plausible_gpus(run);
  run.world_size = std::max(run.world_size, loaded.expect_ranks);
  return run;
}

Result<Run> load_run(const std::vector<std::string>& paths, const LoadOptions& options) {
  Result<LoadedTraces> loaded = load_traces(paths, options);
  if (!loaded) return loaded.error();
  return complete_run(std::move(*loaded));
}

}  // namespace lockstep::trace
