#include "trace/choose_pieces.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"
#include "trace/formats/format.h"
#include "trace/signature.h"

namespace lockstep::trace {

namespace fs = std::filesystem;

namespace {

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

// The format that provides the calls: the richest one (first in all_formats()) among those that
// hold at least half as many ranks as the format with most ranks. So a single dump left
// over from before does not replace the log of the whole job. A format without any call is passed
// over (NCCL's log of communicators alone), unless no other one has calls.
const Format* choose_calls(const std::vector<Piece>& pieces) {
  std::map<const Format*, std::set<Rank>> ranks;
  std::set<const Format*> with_calls;
  for (const Piece& piece : pieces) {
    for (const RankTrace& trace : piece.traces) {
      ranks[piece.kind()].insert(trace.rank);
      if (!trace.calls.empty() || !trace.progress.empty()) with_calls.insert(piece.kind());
    }
  }
  if (!with_calls.empty())
    std::erase_if(ranks, [&](const auto& held) { return !with_calls.contains(held.first); });
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
    note.text = fmt::format("also recorded as {}: {}", piece.kind()->name,
                            plural(trace.calls.size(), "call"));
    if (!trace.calls.empty()) {
      const Call& last = trace.calls.back();
      note.text += fmt::format(", the last {} in group {}", op_name(tables.op(last)),
                               tables.str(last.group));
    }
    out.add(std::move(note));
  }
}

}  // namespace

void drop_text_copies(std::vector<Piece>& pieces, bool evidence) {
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
    // What else a rank left next to its ring file (rank_3.log, rank_3.result.json) may quote
    // PyTorch's messages, which name calls as well: evidence, and not a second recording.
    if (evidence || piece.name.ends_with(kRing)) return false;
    const std::size_t file = piece.name.rfind('/') + 1;  // 0 where there is no folder
    return rings.contains(piece.name.substr(0, piece.name.find('.', file)));
  });
}

namespace {

// "12-1" of "1700-99/12-1": which attempt of a launcher wrote a file. Its ranks have one mark if
// they came to make a group; those that failed before have each its own. Empty: not known.
std::string_view attempt_of(std::string_view job) {
  const std::size_t at = job.find('/');
  return at == std::string_view::npos ? std::string_view() : job.substr(at + 1);
}

}  // namespace

std::vector<std::string> drop_earlier_runs(std::vector<Piece>& pieces) {
  std::map<fs::path, std::string> newest;  // by folder
  for (const Piece& piece : pieces) {
    std::string& job = newest[fs::path(piece.name).parent_path()];
    job = std::max(job, piece.job);
  }
  std::vector<std::string> dropped;
  std::erase_if(pieces, [&](const Piece& piece) {
    const std::string& last = newest[fs::path(piece.name).parent_path()];
    const bool one_attempt = !attempt_of(last).empty() && attempt_of(last) == attempt_of(piece.job);
    const bool earlier = !piece.job.empty() && piece.job != last && !one_attempt;
    if (earlier) dropped.push_back(printable(piece.name));
    return earlier;
  });
  return dropped;
}

std::optional<Error> several_runs(const std::vector<Piece>& pieces,
                                  const std::vector<std::string>& paths) {
  std::map<Rank, std::string> holder;
  for (const Piece& piece : pieces) {
    const std::string folder = folder_below(piece.name, paths);
    for (const RankTrace& trace : piece.traces) {
      const auto [first, is_new] = holder.try_emplace(trace.rank, folder);
      if (is_new || first->second == folder) continue;
      return Error{fmt::format("{} and {} both hold a trace of rank {}: they are two runs, or "
                               "their files are numbered from 0 on each node",
                               printable(first->second), printable(folder), trace.rank.value),
                   {paths.front()},
                   "name the folder of one run; for files of several nodes, rename them by global "
                   "rank"};
    }
  }
  return std::nullopt;
}

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

void drop_unrelated_files(std::vector<Piece>& pieces) {
  std::set<std::string> shapes;
  for (const Piece& piece : pieces) {
    if (!piece.traces.empty() && piece.rank) shapes.insert(shape_of(piece.name));
  }
  std::erase_if(pieces, [&](const Piece& piece) {
    if (!piece.traces.empty() || !piece.sources.empty()) return false;
    if (!piece.error) return true;  // of another format than the one asked for, or without ranks
    // Without any readable trace to compare with, every recognised but broken file is reported.
    if (piece.named || (piece.format != nullptr && shapes.empty())) return false;
    for (const std::string_view own : {".ring", ".trace.jsonl", ".trace.jsonl.gz"}) {
      if (piece.name.ends_with(own)) return false;
    }
    return !shapes.contains(shape_of(piece.name));
  });
}

std::optional<Error> mixed_formats(const std::vector<Piece>& pieces) {
  std::map<std::string_view, std::vector<std::string>> files;  // by format
  for (const Piece& piece : pieces) {
    if (!piece.traces.empty()) files[piece.kind()->name].push_back(piece.name);
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

JobEvidence gather_evidence(std::vector<Piece>& pieces, const Tables& tables) {
  const Format* calls = choose_calls(pieces);
  std::set<Rank> chosen_ranks;
  for (const Piece& piece : pieces) {
    if (piece.traces.empty() || piece.kind() != calls) continue;
    for (const RankTrace& trace : piece.traces) chosen_ranks.insert(trace.rank);
  }
  JobEvidence out;
  std::map<std::string, std::size_t> by_kind;   // number of files
  std::map<std::string, std::size_t> of_calls;  // by format: ring files and text are of one kind
  for (Piece& piece : pieces) {
    const bool chosen = !piece.traces.empty() && piece.kind() == calls;
    if (chosen) ++of_calls[std::string(piece.counts_as().name)];
    if (!piece.traces.empty() && !chosen) {
      note_recording(piece, chosen_ranks, tables, piece.evidence);
      for (const RankTrace& trace : piece.traces)
        out.locations.push_back({trace.rank, trace.world_size, trace.host, trace.pid, trace.gpu});
      ++by_kind[std::string(piece.kind()->name)];
      piece.traces.clear();
    } else if (!piece.evidence.notes.empty() && !chosen) {
      for (const EvidenceSource* source : piece.sources) ++by_kind[std::string(source->name)];
    }
    std::move(piece.evidence.notes.begin(), piece.evidence.notes.end(),
              std::back_inserter(out.notes));
    std::move(piece.evidence.launched.begin(), piece.evidence.launched.end(),
              std::back_inserter(out.launched));
    out.world_size = std::max(out.world_size, piece.evidence.world_size);
  }
  if (by_kind.empty()) return out;
  const auto count = [](const std::map<std::string, std::size_t>& files) {
    std::vector<std::string> parts;
    for (const auto& [kind, number] : files)
      parts.push_back(fmt::format("{} of {}", plural(number, "file"), kind));
    return join_and(parts);
  };
  out.sources = fmt::format(
      "{}; evidence: {}",
      of_calls.empty() ? "no recording of calls" : fmt::format("calls: {}", count(of_calls)),
      count(by_kind));
  return out;
}

}  // namespace lockstep::trace
