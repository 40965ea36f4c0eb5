// Equal calls, counted step by step: where all calls look alike, their number in a step shows which
// rank left one out or made one too many.
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/verify/program.h"

namespace lockstep::verify {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// A rank's equal all-reduces: so many in each step; with `open` the last one does not complete.
std::string steps(const std::vector<int>& counts, const std::string& end, bool open = false) {
  std::string out = "backend nccl; ";
  for (std::size_t step = 0; step < counts.size(); ++step)
    out += repeated(fmt::format("all_reduce n=8 step={}; ", step), counts[step]);
  if (open) out.insert(out.rfind(';'), " open");
  return out + end;
}

const char* const kClean = "clean";
const char* const kHung = "hung";

TEST(StepCounts, OfAPairShowWhichOneLeftOutACall) {
  EXPECT_THAT(judge({steps({3, 3, 3, 3}, kHung, true), steps({3, 2, 3, 3}, kClean)}),
              HasSubstr("missing-collective error observed culprits=1 group=world seq=5 step=1"));
  EXPECT_THAT(judge({steps({3, 3, 3, 3}, kClean), steps({3, 4, 3, 3}, kHung, true)}),
              HasSubstr("extra-collective error observed culprits=1 group=world seq=6 step=1"));
}

TEST(StepCounts, ShowThatMostOfAGroupLeftOutACall) {
  const std::string most = steps({2, 2, 1, 2}, kClean);
  EXPECT_THAT(judge({steps({2, 2, 2, 2}, kHung, true), most, most, most}),
              HasSubstr("missing-collective error observed culprits=1-3 group=world seq=5 step=2"));
  // In the last step, after which those that left it out finished.
  const std::string ended = steps({2, 2, 2, 1}, kClean);
  EXPECT_THAT(judge({steps({2, 2, 2, 2}, kHung, true), ended, ended, ended}),
              HasSubstr("missing-collective error observed culprits=1-3 group=world seq=7 step=3"));
  // Those that wait have not come to the last call of the step yet.
  const std::string shorter = steps({4, 4, 4, 2}, kClean);
  EXPECT_THAT(
      judge({steps({4, 4, 4, 3}, kHung, true), shorter, shorter, shorter}),
      HasSubstr("missing-collective error observed culprits=1-3 group=world seq=14 step=3"));
  // The look-alike: one rank made a call more than it does in its other steps.
  const std::string usual = steps({2, 2, 2, 2}, kClean);
  EXPECT_THAT(judge({steps({2, 2, 3, 2}, kHung, true), usual, usual, usual}),
              HasSubstr("extra-collective error observed culprits=0"));
}

TEST(StepCounts, TellNothingWhereStepsDiffer) {
  const std::string said = judge({steps({1, 3, 2, 3}, kHung, true), steps({1, 3, 2, 2}, kClean)});
  EXPECT_THAT(said, HasSubstr("verdict findings"));
  EXPECT_THAT(said, Not(HasSubstr("missing-collective error observed culprits=1")));
  // A barrier in every second step: a step without one is as usual as one with it.
  const auto job = [](const std::string& now) {
    std::string out = "backend nccl; ";
    for (int step = 0; step < 6; ++step) {
      out += fmt::format("all_reduce n=8 step={}; ", step);
      if (step % 2 == 1) out += fmt::format("barrier step={}; ", step);
    }
    return out + now;
  };
  const std::string next = "all_reduce n=8 step=6; ";
  const std::string waits = "barrier step=6 open; hung";
  const std::string others = "all_reduce n=8 step=7 open; hung";
  EXPECT_THAT(judge({job(next + waits), job(next + others), job(next + others)}),
              HasSubstr("extra-collective error observed culprits=0"));
}

TEST(StepCounts, OfBothRanksShowWhatIsUsual) {
  // Rank 1 has only one other step that is known as a whole.
  EXPECT_THAT(judge({steps({2, 2, 2}, kClean), steps({3, 2, 2}, kHung, true)}),
              HasSubstr("extra-collective error observed culprits=1 group=world seq=2 step=0"));
}

TEST(StepCounts, ACallOnceMoreMayBeOneTooMany) {
  // Rank 0 goes on to its next step. Whether it left out the second n=4, nothing shows.
  const std::string first = "backend nccl; all_reduce n=8 step=0; all_reduce n=4 step=0; ";
  const std::string said = judge(
      {first + "all_reduce n=8 open step=1; hung", first + "all_reduce n=4 open step=0; hung"});
  EXPECT_THAT(said, HasSubstr("verdict findings"));
  EXPECT_THAT(said, Not(HasSubstr("culprits=0 ")));
}

TEST(StepCounts, OfOneOtherStepAreNotEnough) {
  EXPECT_THAT(judge({steps({3, 3}, kHung, true), steps({3, 2}, kClean)}),
              Not(HasSubstr("missing-collective error observed culprits=1")));
}

// A rank that did not come to a step made no call less in it: here rank 1 blocks in the second one,
// in what may be the first checkpoint, which rank 0 then left out.
TEST(StepCounts, SayNothingOfAStepToWhichARankDidNotCome) {
  const auto rounds = [](int n) {
    std::string out = "backend nccl; group dp 0,1; ";
    for (int s = 0; s < n; ++s)
      out += fmt::format("all_reduce g=dp n=8 step={0}; all_reduce n=1 step={0}; ", s);
    return out;
  };
  EXPECT_THAT(
      judge({rounds(2) + "all_reduce g=dp n=8 step=2 open; all_reduce n=1 step=2 open; hung",
             rounds(2) + "barrier step=1 open; hung"}),
      Not(HasSubstr("culprits=")));
}

// Rank 0 ends after two steps and comes to the barrier at the end. The others evaluate in the third
// one, for the first time: it is not they who make calls too many, or leave out the barrier.
TEST(StepCounts, SayNothingOfWhatComesInSomeStepsOnly) {
  const auto rounds = [](int n) {
    std::string out = "backend nccl; group dp 0,1,2,3; ";
    for (int s = 0; s < n; ++s) out += fmt::format("all_reduce g=dp n=8 step={}; ", s);
    return out;
  };
  const std::string goes_on = rounds(2) + "all_reduce g=dp n=8 step=2 open; " +
                              "all_gather n=4 step=2 open; all_gather n=4 step=2 open; "
                              "barrier step=2 open; barrier open; hung";
  EXPECT_THAT(judge({rounds(2) + "barrier open; hung", goes_on, goes_on, goes_on}),
              AllOf(HasSubstr("culprits=0 group=world seq=0"), Not(HasSubstr("culprits=1,2,3"))));
}

}  // namespace
}  // namespace lockstep::verify
