// Jobs that their launcher started again: the first failure is told with the last attempt.
#include <filesystem>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/cli/run_lockstep.h"
#include "tests/support/temp_dir.h"

namespace lockstep::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// torchrun's logs of ranks, redirected: run/attempt_0/1/stderr.log.
class Attempts : public ::testing::Test {
 protected:
  void log(int attempt, int rank, const std::string& text) {
    const std::string folder = fmt::format("run/attempt_{}/{}", attempt, rank);
    std::filesystem::create_directories(folder_.file(folder));
    folder_.write(folder + "/stderr.log", text);
  }
  static std::string raised(const std::string& what) {
    return "Traceback (most recent call last):\n  File \"/job/train.py\", line 9, in <module>\n"
           "    train()\n" +
           what + "\n";
  }
  TempDir folder_;
};

TEST_F(Attempts, TheFirstFailureIsToldBesideTheLast) {
  log(0, 0, "");
  log(0, 1, raised("ValueError: bad sample 4711"));
  log(1, 0, "");
  log(1, 1, raised("FileNotFoundError: no checkpoint"));
  const Outcome outcome = run_lockstep({"verify", folder_.path()});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("rank 1 raised an exception: FileNotFoundError"),
                                 HasSubstr("started the job again after an attempt that failed"),
                                 HasSubstr("bad sample"), HasSubstr("/run/attempt_0")));
}

TEST_F(Attempts, WhereTheLastTellsNothingTheOneBeforeIsJudged) {
  log(0, 0, "");
  log(0, 1, raised("ValueError: bad sample 4711"));
  log(1, 0, "");
  log(1, 1, "");
  const Outcome outcome = run_lockstep({"verify", folder_.path()});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("rank 1 raised an exception: ValueError"),
                                 HasSubstr("the last attempt left nothing")));
}

TEST_F(Attempts, OneAttemptIsNoRestart) {
  log(0, 0, "");
  log(0, 1, raised("ValueError: bad sample 4711"));
  const Outcome outcome = run_lockstep({"verify", folder_.path()});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("ValueError: bad sample 4711"),
                                 Not(HasSubstr("started the job again"))));
}

}  // namespace
}  // namespace lockstep::cli
