// A small language for traces, so that a test shows its whole input in a few lines.
//
//   Run run = program({"all_reduce n=8 what=w; barrier; clean",      // rank 0
//                      "all_reduce n=4 what=w open; hung"});         // rank 1
//
// One text per rank; items are separated by ';'. An item is an operation of the contract with any
// of
//   g=GROUP n=ELEMENTS what=NAME[,NAME…] step=N dtype=D redop=R root=R peer=R ptag=T at=PLACE
//   in=ELEMENTS out=ELEMENTS in_splits=1,2 out_splits=2,1   count=ELEMENTS mode=M from=R fromtag=T
//   coalesced=BATCH thread=N   async   open (it does not complete)
// or: wait N (for the N-th call, 0-based; `open`: not let go) · group NAME 0,1,2 [DESC] ·
//     modality STEP image,text · span NAME · step N · raise [CALL] TEXT · clean · hung · killed ·
//     exception · cut · use N · write N (the buffer of the N-th call)
// and, first of all: mpi (its semantics) · backend NAME (default gloo).
// All ranks belong to group `world`, the default.
#pragma once

#include <string>
#include <vector>

#include "trace/run.h"
#include "verify/report.h"
#include "verify/verify.h"

namespace lockstep::verify {

// The contract's text of one rank. Times are given to events unless `timed` is false.
std::string program_text(std::int32_t rank, std::int32_t world_size, const std::string& program,
                         bool timed = true);

// The run of all ranks; `timed` false: a program that never ran.
trace::Run program(const std::vector<std::string>& programs, bool timed = true);

// Some ranks of a world, for tests in which others left no trace.
struct RankProgram {
  std::int32_t rank;
  std::string text;
};
trace::Run run_of(const std::vector<RankProgram>& programs, std::int32_t world_size);

// The text as often: rounds of a program.
std::string repeated(const std::string& text, int times);

// One line per error and warning: "rule severity certainty culprits=1,3 group=world seq=2 step=1",
// leaving out what is absent; then "verdict V". Notes are left out.
std::string summary(const Report& report);

// What is said of a program.
inline std::string judge(const std::vector<std::string>& programs) {
  return summary(verify(program(programs)));
}

}  // namespace lockstep::verify
