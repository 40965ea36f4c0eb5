// Notes about ranks (trace/run.h) in the words of a headline: who a note is about, what it says of
// the ranks beside it, and in which file it stands. What the log holds is printed with its control
// characters replaced, and cut.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trace/run.h"

namespace lockstep::verify {

// "rank 3", "process 71 on node4", "a rank that the log does not name".
std::string describe_subject(const trace::RankNote& note);

// Whether a launcher was ended by Ctrl-C: "… SignalException: Process 19 got signal: 2".
bool is_interrupt(const trace::RankNote& note);

// The note's text, at most 200 bytes, and its place: "CUDA error: … (train.py:8; job.log:71)".
std::string quote(const trace::RankNote& note);

// Who waits in one call, by the watchdog's messages: the ranks that wrote the same as `note`. Where
// few others are known to be there, of `missing`, these are named. O(notes log notes + ranks).
std::string describe_timeout(const trace::Run& run, const std::vector<trace::Rank>& missing,
                             const trace::RankNote& note);

// Where each process was, of stacks alone: who is elsewhere than most. O(notes log notes).
std::string describe_stacks(const trace::Run& run);

// Of a process that hangs inside the kernel, and how many others do. O(notes log notes).
std::string describe_blocked(const trace::Run& run, const trace::RankNote& note);

// Of a message that says that two ranks' calls differ.
std::string describe_mismatch(const trace::RankNote& note);

// Of a report that names ranks (PyTorch's analysis of dumps, Horovod, JAX, FSDP): all ranks of the
// same report. O(notes log notes).
std::string describe_analysis(const trace::Run& run, const trace::RankNote& note);

// Of a rank that waited for others that did not come: to start, to a group, to a barrier, to the
// store. O(notes log notes + ranks).
std::string describe_wait_for(const trace::Run& run, const trace::RankNote& note);

// Where in the program ranks waited until Gloo's timeout was over, or until those whose timeout was
// over closed the connections: by place, the one of the fewest ranks first. Empty: no rank says
// that its timeout was over.
struct Places {
  std::vector<std::pair<std::string, std::vector<trace::Rank>>> places;
  std::vector<trace::Rank> ranks;  // of all places; sorted
  bool are_all = false;            // no rank of the job is elsewhere
  // Where all are at one line, as trainer.train() is: that line, and the places are calls behind
  // it.
  std::string line;
};
// O(notes log notes).
Places places_of_timeouts(const trace::Run& run);

// Of a rank that lost a peer or its connection; by `waited`, if that is not empty. Names those of
// `missing` that wrote nothing, if they are few. O(notes log notes).
std::string describe_loss(const trace::Run& run, const std::vector<trace::Rank>& missing,
                          const trace::RankNote& note, const Places& waited);

}  // namespace lockstep::verify
