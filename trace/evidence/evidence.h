// Evidence: what lies beside the recorded calls of a job and says something of its ranks. The table
// of its sources stands in evidence.cc; a new one is a file beside this (`<name>.cc`) that is
// declared here, a row there, a fuzz target, and a test with damaged input.
//
// A source never fails: of a file that was cut off or damaged, what can be read counts.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trace/formats/format.h"
#include "trace/run.h"

namespace lockstep::trace {

// What one file says.
struct FileEvidence {
  std::vector<RankNote> notes;  // at most kMostNotes
  std::int32_t world_size = 0;  // 0: the file does not tell

  static constexpr std::size_t kMostNotes = 1024;
  // Bounds the text, and drops what is beyond kMostNotes.
  void add(RankNote note);
};

struct EvidenceSource {
  std::string_view name;     // "log", "ras", "stack": in a report's line about sources
  std::string_view summary;  // one line, for `--help`
  // Whether a file with these bytes (all, or the first FileBuffer::kHead) and that name may be one.
  bool (*recognises)(std::string_view bytes, std::string_view name);
  // O(bytes). TraceFile::rank is the rank of the process whose file it is, if its name tells.
  FileEvidence (*read)(const TraceFile& file);
};

// The sources, as rows of the table: each <name>.cc opens with what it reads.
EvidenceSource ras_source();
EvidenceSource stack_source();
EvidenceSource rank_log_source();

// What a peer's death, an abort or a time-out looks like from the other side (Gloo, NCCL, c10d,
// TCPStore), and what all ranks raise at a mismatch, whoever is at fault.
bool tells_of_a_peer(std::string_view exception);

// Every source, the most specific first.
std::span<const EvidenceSource> evidence_sources();

// The source that knows the file; null: none.
const EvidenceSource* recognise_evidence(std::string_view bytes, std::string_view name);

// What all files say, before it is put together with the calls.
struct JobEvidence {
  std::vector<RankNote> notes;
  std::int32_t world_size = 0;
  std::string sources;  // as Run::sources
};

// Puts the evidence into `run`, whose traces are complete: finds whose a note is that names a
// process only (by the pids of the traces and of other notes), gives ranks whose trace ends without
// an end mark the end that their log tells, and notes where log and trace contradict each other.
// `own_form`: the traces' ends are those of the job, as in Lockstep's own forms.
void join_evidence(Run& run, JobEvidence evidence, bool own_form);

}  // namespace lockstep::trace
