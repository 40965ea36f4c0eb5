// Ranks that nobody watches over (started one by one, as torchrun and Slurm start them): what the
// others do when one dies, freezes, or never comes.
#include <signal.h>

#include <fstream>
#include <tuple>

#include <gmock/gmock.h>

#include "tests/runtime/launch/launch_testing.h"
#include "tests/runtime/worker/real_ranks.h"
#include "verify/verify.h"

namespace lockstep::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Whether a process has started another one.
bool has_a_child(pid_t process) {
  const std::string id = std::to_string(process);
  std::ifstream children("/proc/" + id + "/task/" + id + "/children");
  pid_t child = 0;
  return static_cast<bool>(children >> child);
}

class UnwatchedRanks : public RealRanks {
 protected:
  // Both ranks of the job, training.
  std::vector<Process> start_both(const JobFile& job) {
    write_job(job);
    const int port = free_port();
    std::vector<Process> ranks;
    for (int rank = 0; rank < 2; ++rank) {
      ranks.push_back(start_as_torchrun(rank, "127.0.0.1", port));
    }
    EXPECT_TRUE(both_train()) << log("rank_0") << log("rank_1");
    return ranks;
  }

  static std::string name_of(int rank) { return "rank_" + std::to_string(rank); }

  void expect_blamed(int rank) const {
    const verify::Report report = verify::verify(recorded());
    ASSERT_EQ(report.verdict, verify::Verdict::findings);
    EXPECT_EQ(report.findings.front().rule, verify::RuleId::host_stall);
    EXPECT_THAT(report.findings.front().culprits, ElementsAre(trace::Rank(rank)));
  }
};

// Rank 0 serves the store, so its death is another thing than rank 1's.
class ADeath : public UnwatchedRanks, public ::testing::WithParamInterface<std::tuple<int, int>> {};

TEST_P(ADeath, IsNoticedByTheOtherRankWhichSaysWhyItEnds) {
  const auto [signal, victim] = GetParam();
  const int survivor = 1 - victim;
  std::vector<Process> ranks = start_both({.steps = kStepsWithoutEnd});
  ranks[static_cast<std::size_t>(victim)].signal(signal);
  Process& other = ranks[static_cast<std::size_t>(survivor)];
  EXPECT_EQ(to_string(end_of(other)), "exited with status 1");
  EXPECT_THAT(log(name_of(survivor)), HasSubstr("rank " + std::to_string(survivor) + ": step "));
  EXPECT_THAT(log(name_of(survivor)), HasSubstr("onnection"));  // closed, or reset, by peer
  end_of(ranks[static_cast<std::size_t>(victim)]);
  expect_blamed(victim);
}

INSTANTIATE_TEST_SUITE_P(OfAnyRank, ADeath,
                         ::testing::Combine(::testing::Values(SIGKILL, SIGABRT),
                                            ::testing::Values(0, 1)));

// A frozen process keeps its connections open: only the watchdog ends who waits for it.
TEST_F(UnwatchedRanks, WhoWaitsForAFrozenRankGivesUp) {
  std::vector<Process> ranks = start_both({.steps = kStepsWithoutEnd, .hang_after_s = 2});
  ranks[0].signal(SIGSTOP);
  EXPECT_EQ(to_string(end_of(ranks[1])), "exited with status 5");
  EXPECT_THAT(log("rank_1"), HasSubstr("rank 1 gave up: nothing moved for 2 s"));
  ranks[0].signal(SIGKILL);
  end_of(ranks[0]);
  expect_blamed(0);
}

// A rank that the others wait for from the start on.
class AnAbsence : public UnwatchedRanks, public ::testing::WithParamInterface<int> {};

TEST_P(AnAbsence, EndsTheRankThatCame) {
  const int present = GetParam();
  write_job({.hang_after_s = 60, .total_s = 2});
  Process rank = start_as_torchrun(present, "127.0.0.1", free_port());
  EXPECT_EQ(to_string(end_of(rank)), "exited with status 1");
  EXPECT_THAT(log(name_of(present)), HasSubstr("rank " + std::to_string(present) + ": start: "));
  // Who serves the store knows who is missing; the others know where they did not find it.
  EXPECT_THAT(log(name_of(present)),
              HasSubstr(present == 0 ? "rank 1 did not come within 2 s" : "(127.0.0.1, "));
}

INSTANTIATE_TEST_SUITE_P(OfTheOtherRank, AnAbsence, ::testing::Values(0, 1));

// Only training has a thread that takes signals and ends the rank in order.
TEST_F(UnwatchedRanks, OtherCommandsEndAtASignalAsAnyProgramDoes) {
  write_job({.strategy = "manual"});
  Result<Process> search = Process::spawn({program(), "batch-size", folder_.file("job.yaml"),
                                           "--steps", "1000", "--limit-mb", "100000"},
                                          folder_.file("search.log"));
  ASSERT_TRUE(search);
  ASSERT_TRUE(launch_testing::eventually([&] { return has_a_child(search->pid()); }));
  search->signal(SIGTERM);
  EXPECT_EQ(to_string(end_of(*search)), "was killed by SIGTERM");
}

}  // namespace
}  // namespace lockstep::runtime
