// What lies beside the calls of a job: logs, RAS, stacks, joined with an empty run and judged.
#include <iterator>
#include <string>
#include <utility>

#include "base/check.h"
#include "tests/fuzz/fuzz_format.h"
#include "tests/fuzz/targets.h"
#include "trace/evidence/evidence.h"

namespace lockstep {

void fuzz_evidence(std::string_view bytes) {
  const std::string file(bytes);  // of that size: reading past its end is seen
  trace::JobEvidence job;
  for (const trace::EvidenceSource& source : trace::evidence_sources()) {
    source.recognises(file, "fuzz");
    trace::FileEvidence evidence = source.read({file, "fuzz", trace::Rank(0)});
    LOCKSTEP_CHECK(evidence.notes.size() <= trace::FileEvidence::kMaxNotes, "notes are bounded");
    for (const trace::RankNote& note : evidence.notes) {
      LOCKSTEP_CHECK(note.text.size() <= trace::RankNote::kLongest, "texts are bounded");
    }
    std::move(evidence.notes.begin(), evidence.notes.end(), std::back_inserter(job.notes));
  }
  trace::Run run;
  trace::join_evidence(run, std::move(job), true);
  fuzz_judging(run);
}

}  // namespace lockstep
