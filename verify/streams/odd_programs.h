// The ranks whose program diverges from those of all other ranks of their kind. Ranks of one kind
// run one program, each in groups of its own and with peers of its own: the members of a
// tensor-parallel group, the same stage of several pipelines, the neighbours in a ring.
//
//   rank 0   send(1) recv(3)  send(1) recv(3)  reduce
//   rank 1   send(2) recv(0)  send(2) recv(0)  reduce
//   rank 2   send(3) recv(1)  reduce                        rank 2 makes one hop less
//   rank 3   send(0) recv(2)  send(0) recv(2)  reduce
//
// Unlike a comparison of the streams of a group, this sees messages, and calls that paired with
// other calls of the same form. Unlike the pairwise comparison of programs.h, it looks at all ranks
// at once.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "trace/run.h"
#include "verify/streams/agreement.h"

namespace lockstep::verify {

struct OddProgram {
  enum class Kind : std::uint8_t {
    missing,   // they left out `count` calls
    extra,     // they made `count` calls too many
    swapped,   // they made two calls in the opposite order
    replaced,  // they made another call instead
  } kind = Kind::replaced;
  std::uint32_t count = 1;
  std::vector<std::uint32_t> deviants;  // rank indices, ascending
  std::vector<std::uint32_t> others;    // the ranks from which they diverge, ascending
  std::uint32_t usual = 0;              // one of these
  std::uint32_t index = 0;              // of the first different call, in all of these programs
  bool is_certain = false;              // kind and count: all that follows agrees again
  bool by_numbers = false;  // the sides are of unequal size; else their other rounds decided
};

// The only place where ranks diverge from others of their kind and where it is known which side
// does something unusual: the smaller one, unless the larger one breaks with its past; of sides of
// equal size, by their other rounds. Nothing where there are several such places (programs that
// depend on the data), where several threads issue calls, where a recording starts in mid-run, or
// where ranks that ended before, or left no trace, could have turned the numbers. O(64 · calls),
// and for each of at most 64 places the search of two pasts.
std::optional<OddProgram> find_odd_program(const trace::Run& run, Agreement& agreement);

}  // namespace lockstep::verify
