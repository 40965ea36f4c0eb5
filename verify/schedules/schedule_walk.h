// The search: a depth-first walk over the states at rest of a ScheduleMachine, in which no state is
// entered twice.
#pragma once

#include <cstddef>
#include <vector>

#include "verify/schedules/machine.h"

namespace lockstep {

// What a walk looks for.
class ScheduleVisitor {
 public:
  virtual ~ScheduleVisitor() = default;

  // Which matches may be chosen at all, and in which order the choices of a state are tried.
  virtual bool allows(const WildcardMatch& match) const = 0;
  virtual void order(std::vector<ScheduleChoice>& choices) const = 0;

  // A message did not fit its receive; a state is an end: nothing is left to choose. `path` leads
  // there.
  virtual void misfit(const WildcardMatch& match, const std::vector<ScheduleChoice>& path) = 0;
  virtual void end(ScheduleMachine& machine, const ScheduleState& state,
                   const std::vector<ScheduleChoice>& path) = 0;

  // Whether enough is known.
  virtual bool done() const = 0;
};

// From the start. False where a bound ended it: the machine's work, `state_limit` states with more
// than one way to go on, or 256 MiB of states kept at once.
bool walk_schedules(ScheduleMachine& machine, std::size_t state_limit, ScheduleVisitor& visitor);

}  // namespace lockstep
