#include "trace/load.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/gzip.h"
#include "base/mapped_file.h"
#include "base/text.h"
#include "trace/ring_reader.h"
#include "trace/text_format.h"

namespace lockstep {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLargestInflated = std::size_t{4} << 30U;

// How the files of a trace are called in a folder; of two forms of one trace the first is read.
constexpr std::array<std::string_view, 3> kEndings = {".ring", ".trace.jsonl", ".trace.jsonl.gz"};

// The trace files of a folder, one per trace.
Result<std::vector<std::string>> list_folder(const std::string& folder) {
  std::error_code failed;
  std::map<std::string, std::pair<std::size_t, std::string>> best;  // by name without its ending
  for (fs::directory_iterator it(folder, failed), end; !failed && it != end; it.increment(failed)) {
    std::error_code unknown;
    if (!it->is_regular_file(unknown)) continue;  // follows links
    const std::string name = it->path().filename().string();
    for (std::size_t form = 0; form < kEndings.size(); ++form) {
      if (!std::string_view(name).ends_with(kEndings[form])) continue;
      const std::string stem = name.substr(0, name.size() - kEndings[form].size());
      const auto [known, is_new] = best.try_emplace(stem, form, it->path().string());
      if (!is_new && form < known->second.first) known->second = {form, it->path().string()};
      break;
    }
  }
  if (failed) return Error{"cannot read the folder: " + failed.message(), {folder}, ""};
  if (best.empty()) {
    return Error{"no traces in this folder",
                 {folder},
                 "a trace is called *.trace.jsonl, *.trace.jsonl.gz or *.ring"};
  }
  std::vector<std::string> files;
  for (const auto& [stem, file] : best) files.push_back(file.second);
  return files;
}

// All files that `paths` name, each once, in an order that does not depend on that of `paths`.
Result<std::vector<std::string>> list_files(const std::vector<std::string>& paths) {
  std::map<fs::path, std::string> files;  // by canonical path
  for (const std::string& path : paths) {
    std::error_code failed;
    const fs::file_status status = fs::status(path, failed);
    if (!fs::exists(status)) return Error{"no such file or folder", {path}, ""};
    std::vector<std::string> found = {path};
    if (fs::is_directory(status)) {
      Result<std::vector<std::string>> listed = list_folder(path);
      if (!listed) return listed.error();
      found = std::move(*listed);
    }
    for (std::string& file : found) {
      fs::path canonical = fs::canonical(file, failed);
      auto [known, is_new] = files.try_emplace(failed ? fs::path(file) : canonical, file);
      if (!is_new) known->second = std::min(known->second, file);
    }
  }
  std::vector<std::string> out;
  for (auto& [canonical, file] : files) out.push_back(std::move(file));
  std::sort(out.begin(), out.end());
  return out;
}

bool looks_like_text(std::string_view bytes) {
  if (bytes.starts_with("\xEF\xBB\xBF")) bytes.remove_prefix(3);
  const std::size_t first = bytes.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && bytes[first] == '{';
}

Result<RankTrace> read_plain(std::string_view bytes, const std::string& file, Tables& tables) {
  if (looks_like_ring_file(bytes)) return read_ring_trace(bytes, file, tables);
  if (looks_like_text(bytes) || bytes.empty()) return read_text_trace(bytes, file, tables);
  return Error{"not a trace of a known form",
               {file},
               "lockstep reads its text form (JSON lines, plain or gzip) and its ring files"};
}

Result<RankTrace> read_file(const std::string& path, Tables& tables) {
  const Result<MappedFile> file = MappedFile::open(path);
  if (!file) return file.error();
  if (!looks_like_gzip(file->bytes())) return read_plain(file->bytes(), path, tables);
  const Result<Inflated> inflated = gunzip(file->bytes(), path, kLargestInflated);
  if (!inflated) return inflated.error();
  Result<RankTrace> trace = read_plain(inflated->text, path, tables);
  if (trace && inflated->truncated) {
    trace->add_damage("the gzip file was cut off or is damaged; what came before was read");
  }
  return trace;
}

// The ranks of each value that the headers give, as "4 (ranks 0-2), 5 (rank 3)".
std::string disagreement(const std::map<std::string, std::vector<std::int32_t>>& holders) {
  std::vector<std::string> parts;
  for (const auto& [value, ranks] : holders) {
    parts.push_back(value + (ranks.size() == 1 ? " (rank " : " (ranks ") + ranges(ranks) + ")");
  }
  return join_and(parts, 8);
}

// Keeps one trace of each rank, whatever the order in which they came.
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
    run.header_conflicts.push_back(
        "rank " + std::to_string(trace.rank.value) + " is in " + printable(kept.back().source) +
        " and in " + printable(trace.source) + "; the first, which holds more, was read");
  }
  run.ranks = std::move(kept);
}

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
    run.header_conflicts.push_back("the headers disagree about world_size: " + disagreement(named));
  }
  if (semantics.size() > 1) {
    run.header_conflicts.push_back("the headers disagree about semantics: " +
                                   disagreement(semantics));
  }
}

}  // namespace

Run assemble_run(Tables tables, std::vector<RankTrace> traces) {
  Run run;
  run.tables = std::move(tables);
  run.ranks = std::move(traces);
  keep_one_each(run);
  compare_headers(run);
  return run;
}

Result<Run> load_run(const std::vector<std::string>& paths) {
  const Result<std::vector<std::string>> files = list_files(paths);
  if (!files) return files.error();
  Tables tables;
  std::vector<RankTrace> traces;
  std::vector<Error> unreadable;
  for (const std::string& file : *files) {
    Result<RankTrace> trace = read_file(file, tables);
    if (trace) {
      traces.push_back(std::move(*trace));
    } else {
      unreadable.push_back(trace.error());
    }
  }
  if (traces.empty() && unreadable.empty()) return Error{"no traces were named", {}, ""};
  if (traces.empty()) {
    Error error = unreadable.front();
    if (unreadable.size() > 1) {
      error.message += " (nor can " + plural(unreadable.size() - 1, "other file") + " be read)";
    }
    return error;
  }
  Run run = assemble_run(std::move(tables), std::move(traces));
  run.unreadable = std::move(unreadable);
  return run;
}

}  // namespace lockstep
