// Evidence: files besides a job's recorded calls that say something about its ranks. The table of
// its sources is in evidence.cc. A new source needs a reader in this folder (`<name>.cc`), its
// declaration here, a row in the table, a fuzz target, and a test with damaged input.
//
// A source never fails: what can be read of a damaged file counts.
//
// The output of ranks (rank_log.cc) is the one source of many kinds of lines. Each kind has a
// parser of its own: exceptions.h, with what belongs to one (exception_details.h) and whose output
// it is in (output_streams.h, line_labels.h, named_processes.h, task_numbers.h); nccl_lines.h,
// gpu_lines.h, launcher_lines.h and torchrun_summary.h. What a message means for the job is
// failure_messages.h's.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trace/evidence/launched_calls.h"
#include "trace/formats/format.h"
#include "trace/gpus.h"
#include "trace/run.h"

namespace lockstep::trace {

// What one file says.
struct FileEvidence {
  std::vector<RankNote> notes;          // at most kMaxNotes
  std::int32_t world_size = 0;          // 0: the file does not say
  std::vector<LaunchedCalls> launched;  // of RAS

  static constexpr std::size_t kMaxNotes = 1024;
  // Bounds the text, and drops what is beyond kMaxNotes.
  void add(RankNote note);
};

struct EvidenceSource {
  std::string_view name;     // "log", "ras", "stack": in a report's line about sources
  std::string_view summary;  // one line, for `--help`
  // Whether a file with these bytes (all, or the first FileBuffer::kHead) and that name may be one.
  bool (*recognises)(std::string_view bytes, std::string_view name);
  // O(bytes). TraceFile::rank is the rank of the process that wrote the file, if the file's name
  // says it.
  FileEvidence (*read)(const TraceFile& file);
};

// The sources, as rows of the table: each <name>.cc opens with what it reads.
EvidenceSource ras_source();
EvidenceSource stack_source();
EvidenceSource cluster_source();
EvidenceSource analysis_source();
EvidenceSource rank_log_source();

// Every source, the most specific first.
std::span<const EvidenceSource> evidence_sources();

// The source that recognises the file; null: none.
const EvidenceSource* recognise_evidence(std::string_view bytes, std::string_view name);

// The evidence of all files, before it is joined with the calls.
struct JobEvidence {
  std::vector<RankNote> notes;
  std::vector<RankLocation> locations;  // of ranks in recordings that do not provide the calls
  std::int32_t world_size = 0;
  std::vector<LaunchedCalls> launched;
  std::string sources;  // as Run::sources
};

// Adds the evidence to `run`, whose traces must be complete. Finds the rank of notes that name only
// a process, by the pids of traces and other notes. Gives ranks without an end mark the end that
// their log tells, and traces without a host, process or GPU those that other sources tell. Notes
// contradictions between log and trace. `own_form`: the traces' ends are
// those of the job, as in Lockstep's own formats.
void join_evidence(Run& run, JobEvidence evidence, bool own_form);

}  // namespace lockstep::trace
