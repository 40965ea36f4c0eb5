// Collectives counted round by round. Between two collectives of a larger group, all members of a
// smaller one make as many calls of it. Where they do not, one of them left calls out or made too
// many, even if all of these calls look alike and pair with the wrong ones from there on:
//
//   encoder   vit | vit | vit | vit       between the calls of `world`, marked by |
//   rank 0    v     v     v     v
//   rank 1    v           v     v         left one out in the second round: rank 0 waits in the
//                                         last one
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "trace/run.h"
#include "verify/replay/replay.h"
#include "verify/streams/agreement.h"
#include "verify/streams/deviations.h"
#include "verify/streams/streams.h"

namespace lockstep::verify {

struct UnevenRound {
  Deviation deviation;    // of those that did not make the usual number of calls
  std::size_t made = 0;   // by them in the round
  std::size_t usual = 0;  // by the others
  CallRef end;            // the larger group's call with which the round ends, of a deviant or, if
                          // it did not come there, of another member
};

// For each group in which ranks wait by `where`, at most 64 (sister groups do the same): the only
// round in which its members made different numbers of its calls. Usual is the number of all other
// rounds that hold such calls. Rounds are those of the largest group that holds all members, and
// whose calls agree among them.
//
// Nothing where there is no such group, where fewer than two other rounds are known, where these
// differ, and where several rounds are uneven: a call that came before the larger group's on one
// rank and after it on another one makes two. In the last round, which not all have ended, only
// more calls than usual count. O(calls of the members).
std::vector<UnevenRound> find_uneven_rounds(const trace::Run& run,
                                            const std::vector<GroupStreams>& groups,
                                            const ReplayResult& where, Agreement& agreement);

}  // namespace lockstep::verify
