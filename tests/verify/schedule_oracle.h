// All schedules of a small program, the slow and obvious way.
//
// A program is a word per rank:
//   A, B   a blocking all-reduce in group a (all ranks), b (ranks 0 and 1);   a, b: asynchronous
//   s, S   a blocking send to the next, the previous rank;                    i, I: asynchronous
//   t      a blocking send to the next rank with tag 1 instead of 0
//   r, R   a blocking receive from the next, the previous rank;               j: asynchronous, next
//   *, ?   a blocking receive from any source with tag 0, with any tag;       +: asynchronous *
//   w      the n-th one waits for the n-th asynchronous call, if there is one before it
#pragma once

#include <random>
#include <string>
#include <vector>

namespace lockstep::verify {

using Words = std::vector<std::string>;

struct Ends {
  bool some_hang = false;
  bool some_end = false;
};

// Explores every interleaving and every match that MPI's rules allow. `buffered`: sends return at
// once.
Ends explore_all(const Words& words, bool buffered);

// The word as a test program (tests/verify/program.h), in the form of MPI traces or of c10d's.
std::string word_as_program(const std::string& word, int rank, int size, bool mpi);

// One run of the program, in an order that `random` decides, as its recorder would write it: test
// programs with what completed, cut off where a rank hung.
struct RecordedRun {
  std::vector<std::string> programs;
  bool hung = false;
};
RecordedRun run_once(const Words& words, bool buffered, bool mpi, std::mt19937& random);

}  // namespace lockstep::verify
