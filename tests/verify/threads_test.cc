// A job large enough to be judged by several threads: what ThreadSanitizer looks at, too.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/verify/program.h"

namespace lockstep::verify {
namespace {

// `rounds` of a step's two calls, in two groups; the last of `ranks` leaves out the last one.
std::string judged(int ranks, int rounds) {
  const std::string round = "all_reduce n=8 what=w g=world; all_gather n=4 what=v g=rows; ";
  std::string rows = "group rows 0";
  for (int r = 1; r < ranks; ++r) rows += "," + std::to_string(r);
  const std::string done = rows + "; " + repeated(round, rounds);
  std::vector<std::string> programs(static_cast<std::size_t>(ranks),
                                    done + "all_reduce n=8 what=w open; hung");
  programs.back() = done + "hung";
  return judge(programs);
}

TEST(Threads, TheVerdictIsThatOfOneThread) {
  const std::string small = judged(4, 10);
  EXPECT_EQ(small, "host-stall error proven culprits=3 group=world seq=10\nverdict findings");
  // 64 ranks with 3,200 calls each: two events a call.
  EXPECT_EQ(judged(64, 1600),
            "host-stall error proven culprits=63 group=world seq=1600\nverdict findings");
}

}  // namespace
}  // namespace lockstep::verify
