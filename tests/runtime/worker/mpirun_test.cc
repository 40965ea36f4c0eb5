// Ranks that a real `mpirun` starts (MPICH's or Open MPI's): they take their numbers from its
// variables, and a rank that dies ends the job.
#include <signal.h>

#include <gmock/gmock.h>

#include "tests/runtime/worker/real_ranks.h"
#include "verify/verify.h"

namespace lockstep::runtime {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

class Mpirun : public RealRanks {
 protected:
  void SetUp() override {
    mpirun_ = program_named("mpirun");
    if (mpirun_.empty()) {
      GTEST_SKIP() << "NOT TESTED: there is no mpirun (Debian package mpich)";
    }
    // Open MPI refuses root, and more ranks than cores, unless told otherwise; MPICH ignores these.
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1);
  }

  Process start_two(const std::vector<std::string>& after) {
    return start("mpirun", {mpirun_, "-n", "2"}, after);
  }
  Process start_two() {
    return start_two({"--master", "127.0.0.1:" + std::to_string(free_port())});
  }

  std::string mpirun_;
};

TEST_F(Mpirun, StartsRanksThatTrainAndLeaveCleanTraces) {
  write_job({.strategy = "ddp", .steps = 3});
  Process mpirun = start_two();
  EXPECT_TRUE(end_of(mpirun).success()) << log("mpirun");
  const trace::Run run = recorded();
  ASSERT_THAT(run.ranks, SizeIs(2));
  EXPECT_EQ(run.world_size, 2);
  for (const trace::RankTrace& trace : run.ranks) EXPECT_THAT(trace.steps, SizeIs(3));
  EXPECT_EQ(verify::verify(run).verdict, verify::Verdict::clean);
}

TEST_F(Mpirun, ItsRanksMayMeetInAFile) {
  write_job({.strategy = "manual", .steps = 2});
  Process mpirun = start_two({"--store", folder_.file("store")});
  EXPECT_TRUE(end_of(mpirun).success()) << log("mpirun");
  EXPECT_EQ(verify::verify(recorded()).verdict, verify::Verdict::clean);
}

// The numbers did come from its variables: an option that says otherwise is refused with both.
TEST_F(Mpirun, AnOptionThatContradictsItsVariablesIsRefused) {
  write_job({});
  Process mpirun = start_two({"--store", folder_.file("store"), "--world-size", "7"});
  EXPECT_FALSE(end_of(mpirun).success());
  EXPECT_THAT(log("mpirun"), HasSubstr("--world-size is 7, but "));
  EXPECT_THAT(log("mpirun"), HasSubstr("_SIZE is 2"));
}

class MpirunWithADeath : public Mpirun, public ::testing::WithParamInterface<int> {};

TEST_P(MpirunWithADeath, EndsWithItsReasonAndKeepsTheTraces) {
  if (IsSkipped()) return;
  write_job({.strategy = "ddp", .steps = kStepsWithoutEnd});
  Process mpirun = start_two();
  ASSERT_TRUE(both_train()) << log("mpirun");
  const std::map<int, pid_t> ranks = pids();
  kill(ranks.at(1), GetParam());
  EXPECT_FALSE(end_of(mpirun).success());
  // Not always this one: MPICH may name the signal by which it ended the other rank.
  EXPECT_THAT(log("mpirun"), HasSubstr("signal "));
  const trace::Run run = recorded();
  ASSERT_THAT(run.ranks, SizeIs(2));
  for (const trace::RankTrace& trace : run.ranks) EXPECT_GE(trace.steps.size(), 2U);
  EXPECT_NE(verify::verify(run).verdict, verify::Verdict::clean);
}

INSTANTIATE_TEST_SUITE_P(Signals, MpirunWithADeath, ::testing::Values(SIGKILL, SIGABRT));

}  // namespace
}  // namespace lockstep::runtime
