// Pieces: what was read from each file of a run, before it is decided which of them count
// (trace/choose_pieces.h). Internal to loading (trace/load.h).
#pragma once

#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "base/result.h"
#include "trace/evidence/evidence.h"
#include "trace/formats/format.h"
#include "trace/load.h"
#include "trace/run.h"
#include "trace/trace_files.h"

namespace lockstep::trace {

// How to read the files, from LoadOptions.
struct ReadingPlan {
  const Format* format = nullptr;  // null: recognised by content
  bool evidence = false;           // LoadOptions::evidence
  bool work = false;               // LoadOptions::work
  std::optional<std::regex> rank_pattern;

  // The rank in a file's name; nothing: there is none.
  std::optional<Rank> rank_of(const std::string& name) const;
  // The rank of a log or stack file. Numbers in such names are mostly those of processes and jobs
  // ("slurm-48123.out"), so only a number after "rank" counts, and torchrun's folders:
  // …/attempt_0/3/stderr.log is rank 3.
  std::optional<Rank> rank_of_output(const std::string& name) const;
};

// Errors: an unknown format, a rank pattern that is no regular expression or has no group.
Result<ReadingPlan> make_reading_plan(const LoadOptions& options);

// The result of reading one file, or one member of an archive.
struct Piece {
  std::string name;    // "dumps/rank_3", or "dumps.tar:rank_3" of an archive
  bool named = false;  // the user named it, and not only the folder or archive that holds it
  const Format* format = nullptr;  // null: none known
  std::optional<Rank> rank;        // by its name
  std::vector<RankTrace> traces;
  std::optional<Error> error;
  // For a digest: the format of the files that it was made from, and those that were unreadable.
  const Format* stands_for = nullptr;
  std::vector<Run::Unreadable> unreadable;
  Nanos written = kNoTime;                     // Content::written
  std::string job;                             // which run of the job wrote it (ring_job)
  std::vector<const EvidenceSource*> sources;  // of `evidence`; empty: it is none
  FileEvidence evidence;

  const Format& counts_as() const { return stands_for != nullptr ? *stands_for : *format; }

  // The format, with lockstep's two own forms as one. The piece has traces.
  const Format* kind() const;
};

// Reads all files in parallel; the result is sorted by name. Each thread interns into tables of its
// own, without locks; then everything moves to `tables` in the order of the threads. The ids depend
// on which thread read which file, but nothing that is reported depends on the ids.
std::vector<Piece> read_pieces(const std::vector<FoundFile>& files, const ReadingPlan& plan,
                               unsigned threads, Tables& tables);

// A file's name with each number replaced by '#', which is the same for all files of one recording:
// "rank_12.json" and "rank_3.json" have the shape "rank_#.json".
std::string shape_of(const std::string& name);

// Whether it is one of lockstep's own two forms.
bool is_own(const Format& format);

}  // namespace lockstep::trace
