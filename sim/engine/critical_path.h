// Why a simulated job takes as long as it does: the chain of work and calls, from the start of the
// job to its end, in which each part begins at the moment the one before it ends.
//
// The chain is found backwards. What ended last began when the last thing that it waited for was
// there: for a call, its last member; for an operation in a stream, the end of the one before it;
// for the host, the end of the step that it waited for. So each part has one predecessor, there are
// no gaps, and the parts sum up to the makespan. Making anything else faster changes nothing;
// making a part faster gains at most its length (Kelley and Walker, "Critical-path planning and
// scheduling", 1959). Where several chains are equally long, the result is the one that stays with
// a rank and its host.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/engine/executor.h"

namespace lockstep::sim {

struct PathPart {
  enum class Kind : std::uint8_t {
    work,    // a step of kind compute
    call,    // a call, from the arrival of its last member
    launch,  // the host put an operation into a stream
  };
  Kind kind = Kind::work;
  std::uint32_t rank_class = 0;  // of the folding; for a call, the member that arrived last
  std::uint32_t step = 0;        // of that class's program
  Picos begin, end;              // begin < end

  friend bool operator==(const PathPart&, const PathPart&) = default;
};

// `result` comes from execute(job, folding, …, {launch, record_issues}), or from execute_on_cores()
// with `launch` 0 and unfolded(). It must be neither stuck nor forever(). Where cores are shared,
// a part lasts as long as it did next to all the others. Returns the parts in the order of time:
// the first begins at 0, each of the others where the one before it ends, and the last ends at
// result.end. Empty where that is 0. O(steps of the different ranks).
std::vector<PathPart> critical_path(const ProgramJob& job, const Folding& folding,
                                    const ExecutionResult& result, Picos launch = {});

// The parts of `path` between two times. A part that crosses a limit is cut there.
std::vector<PathPart> clipped(const std::vector<PathPart>& path, Picos begin, Picos end);

}  // namespace lockstep::sim
