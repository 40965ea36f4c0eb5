// Why a simulated job takes as long as it does: the chain of work and calls of which each began the
// moment the one before it ended, from the start of the job to its end.
//
// It is found backwards. What ended last began when whatever it waited for was there: a call when
// the last of its members came, an operation when the one before it in its stream had ended, the
// host when what it waited for had. So one predecessor after the other is fixed, and what lies
// between is without gaps: the parts sum up to the makespan. Making anything else faster changes
// nothing; making a part faster gains at most its length (Kelley and Walker, "Critical-path
// planning and scheduling", 1959). Of chains that are equally long one is given: that which stays
// with a rank and its host.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/engine/executor.h"

namespace lockstep::sim {

struct PathPart {
  enum class Kind : std::uint8_t {
    work,    // a step of kind compute
    call,    // a meeting, from the arrival of its last member
    launch,  // the host put an operation into a stream
  };
  Kind kind = Kind::work;
  std::uint32_t rank_class = 0;  // of the folding; of a call: who came last
  std::uint32_t step = 0;        // of that class's program
  Picos begin, end;              // begin < end

  friend bool operator==(const PathPart&, const PathPart&) = default;
};

// `result` is of execute(job, folding, …, {launch, record_issues}), or of execute_on_cores(), which
// launches nothing and keeps ranks apart; and neither stuck nor forever. On cores that are shared a
// part takes as long as it did among all the others.
// In the order of time: the first part begins at 0, each other where the one before it ends, the
// last ends at result.end. Empty where that is 0. O(steps of the different ranks).
std::vector<PathPart> critical_path(const ProgramJob& job, const Folding& folding,
                                    const ExecutionResult& result, Picos launch = {});

// What of `path` lies between two times; parts that stick out are cut.
std::vector<PathPart> clipped(const std::vector<PathPart>& path, Picos begin, Picos end);

}  // namespace lockstep::sim
