// From the event model to the simulator's programs; to_run.h goes back.
//
// A trace is a program: what its host issued, waited for and computed, in order. The simulator runs
// that program, whatever times were recorded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "sim/engine/program.h"
#include "trace/run.h"

namespace lockstep::sim {

struct RunProgram {
  ProgramJob job;
  std::vector<std::vector<std::uint32_t>> events;  // for each program: the event of each step
  std::vector<std::int32_t> silent;                // ranks that left no trace, and take no part
};

// How events become steps: `issue` becomes a call, `wait` a wait, `span` work of the host or of the
// stream that it names, or the wait of one of them (SpanMark::after). Collectives match in their
// group; a send and a recv with the same source, destination, tag and group pair up in order. A
// call that names no stream runs in a stream of its group, a message in one per peer and direction.
// Errors, with the rank's file: a rank without a trace, a group whose members are not named,
// receives from any source, an operation without a price, a wait for what was not issued before,
// more than 255 streams or 65,535 groups on a rank.
//
// With `Ranks::recorded` the ranks that left no trace take no part: calls are those of the others,
// as their recorded times (recorded_calls.h) already show when the rest came. A group whose members
// are not named is then the rank's alone.
enum class Ranks : std::uint8_t { all, recorded };
Result<RunProgram> program_of(const trace::Run& run, Ranks ranks = Ranks::all);

// Calls that are priced as if they carried nothing, because the traces do not tell how much it is:
// no size, or an element type of unknown width. Barriers carry nothing; of a message the sender's
// side counts. O(calls), those that ranks share once.
struct UnsizedCalls {
  std::size_t unsized = 0, all = 0;
};
UnsizedCalls unsized_calls(const trace::Run& run);

}  // namespace lockstep::sim
