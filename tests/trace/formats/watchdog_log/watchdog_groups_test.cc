// Which ranks belong to a group, as far as the watchdog's messages tell.
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trace/formats/format_testing.h"
#include "tests/trace/formats/watchdog_log/watchdog_messages.h"
#include "trace/formats/format.h"
#include "trace/groups.h"

namespace lockstep::trace {
namespace {

using testing::HasSubstr;

// Nothing tells who belongs to a subgroup.
TEST(WatchdogGroups, ASilentMemberOfASubgroupMayHaveNeverCome) {
  const std::string tensor = "PG ID 1 PG GUID 5(TENSOR)";
  const std::string first = timed_out(0, 40, "ALLREDUCE", 64, 40, 39, tensor);
  EXPECT_EQ(judged(run_of_log(first)), "inconclusive");
  EXPECT_EQ(judged(run_of_log(first + timed_out(1, 40, "ALLREDUCE", 64, 40, 39, tensor))),
            "inconclusive");
  // Rank 1 says nothing; ranks 2 and 3 wait for ranks 0 and 1.
  const std::string others =
      timed_out(2, 12, "ALLREDUCE", 8, 12, 11) + timed_out(3, 12, "ALLREDUCE", 8, 12, 11);
  EXPECT_EQ(judged(run_of_log(first + others)), "inconclusive");
  EXPECT_THAT(judged(run_of_log(first + others + told_to_dump(1, 11, 11))),
              HasSubstr("host-stall world#11 by 1"));
}

TEST(WatchdogGroups, GroupsAreKnownByNameAndPurpose) {
  const auto run = run_of_log(
      timed_out(5, 9, "ALLGATHER", 8, 9, 8, "PG ID 5 PG GUID 22(TENSOR_MODEL_PARALLEL_GROUP)", 1));
  EXPECT_EQ(run.ranks[0].rank, Rank(5));
  EXPECT_EQ(run.tables.str(run.ranks[0].calls[0].group), "TENSOR_MODEL_PARALLEL_GROUP (22)");
}

// The group ranks of the others show that the silent rank is a member.
TEST(WatchdogGroups, ASilentMemberBetweenOthersIsKnown) {
  const auto of = [](std::vector<int> ranks, int first) {
    std::string text;
    for (const int rank : ranks)
      text += timed_out(rank, 40, "ALLREDUCE", 64, 40, 39, "PG ID 1 PG GUID 5(TP)", rank - first);
    return run_of_log(text);
  };
  const auto run = of({4, 5, 7}, 4);
  const RankTrace::Membership* group = membership(run.ranks[0], run.ranks[0].calls[0].group);
  ASSERT_NE(group, nullptr);
  EXPECT_THAT(std::vector<Rank>(group->ranks.begin(), group->ranks.end()),
              testing::ElementsAre(Rank(4), Rank(5), Rank(6), Rank(7)));
  const verify::Report report = verify::verify(run);
  EXPECT_EQ(report.verdict, verify::Verdict::inconclusive);
  ASSERT_FALSE(report.findings.empty());
  EXPECT_THAT(report.findings[0].message,
              HasSubstr("ranks 4, 5, 7 wait in all_reduce of 64 (call 40 of TP), and only "
                        "rank 6 has not come that far"));
  // Nobody is missing between these, and which ranks are is open there.
  EXPECT_TRUE(of({4, 5, 6}, 4).ranks[0].groups.empty());
  const auto strided =
      run_of_log(timed_out(0, 40, "ALLREDUCE", 64, 40, 39, "PG ID 1 PG GUID 5(DP)", 0) +
                 timed_out(8, 40, "ALLREDUCE", 64, 40, 39, "PG ID 1 PG GUID 5(DP)", 2));
  EXPECT_TRUE(strided.ranks[0].groups.empty());
}

// Rank 13 waits in its expert group. Rank 0 only says how far it is in the default group.
TEST(WatchdogGroups, ARankToldToDumpIsNotDeadForOtherGroups) {
  const std::string waits =
      timed_out(13, 40, "ALLTOALL_BASE", 64, 41, 39, "PG ID 3 PG GUID 31(ep)", 5);
  EXPECT_EQ(judged(run_of_log(told_to_dump(0, 1261, 1259) + waits)), "inconclusive");
  EXPECT_EQ(judged(run_of_log(told_to_dump(0, 1261, 1261) + waits)), "inconclusive");
}

// Until PyTorch 2.2 a message names no group: what is unlike may be of two groups.
TEST(WatchdogGroups, WithoutGroupsOnlyLikeCallsAreCompared) {
  const auto old = [](int rank, const std::string& op) {
    return fmt::format(
        "[E ProcessGroupNCCL.cpp:464] [Rank {}] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=1, OpType={}, Timeout(ms)=10000) ran for 10917 milliseconds before timing "
        "out.\n",
        rank, op);
  };
  const auto run = run_of_log(old(0, "ALLREDUCE") + old(1, "BROADCAST"));
  EXPECT_EQ(run.ranks.size(), 2U);
  EXPECT_THAT(judged(run), testing::Not(HasSubstr("op-mismatch")));
}

// "[Rank 3]" is a rank within a group that the message does not name. In one group nobody gets
// further than to the next call, so numbers that are far apart are those of several groups.
TEST(WatchdogGroups, WithoutGroupsNumbersFarApartAreNotCompared) {
  const auto old = [](int rank, int seq) {
    return fmt::format(
        "[E ProcessGroupNCCL.cpp:458] [Rank {}] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum={}, OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1800887 milliseconds "
        "before timing out.\n",
        rank, seq);
  };
  const std::string ahead = old(0, 9120) + old(0, 9117) + old(0, 9125);
  EXPECT_EQ(judged(run_of_log(ahead + old(3, 6088) + old(5, 6088) + old(7, 6088))), "inconclusive");
  EXPECT_EQ(judged(run_of_log(old(0, 41) + old(1, 40) + old(2, 41) + old(3, 41))),
            "findings\ndevice-stall unnamed group (ALLREDUCE)#39 by 1")
      << "the next call may be of the same group";
}

// The size of the job is known, and not who of the silent ranks belongs to a group.
TEST(WatchdogGroups, SilentRanksMayBelongToAGroupThatNobodyDeclares) {
  const std::string size =
      "[rank3]:[E] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, "
      "OpType=_ALLGATHER_BASE, NumelIn=100, NumelOut=800, Timeout(ms)=600000) ran for 600096 "
      "milliseconds before timing out.\n[rank3]:[E] [PG 0 Rank 3] Timeout at NCCL work: 7, last "
      "enqueued NCCL work: 7, last completed NCCL work: 6.\n";
  EXPECT_EQ(judged(run_of_log(
                size + timed_out(5, 40, "ALLREDUCE", 64, 40, 39, "PG ID 1 PG GUID 5(TENSOR)", 1))),
            "inconclusive");
}

TEST(WatchdogGroups, RanksOfSubgroupsAreNoGlobalRanks) {
  std::string text = timed_out(0, 9, "ALLREDUCE", 8, 9, 8, "PG ID 5 PG GUID 22(TP)", 1);
  while (text.find("[rank0]:") != std::string::npos) text.replace(text.find("[rank0]:"), 8, "");
  Tables tables;
  const auto of = [&](const std::string& name) {
    return watchdog_log_format().read(trace_file({name, text}), tables);
  };
  // The first line alone would do for the default group, whose name follows too late.
  ASSERT_TRUE(of("out.log"));
  EXPECT_GT((*of("out.log"))[0].damaged_count, 0U);
  ASSERT_TRUE(of("rank_6.log"));
}

// One rank's output, as its name says, without PyTorch's prefix: "[Rank 0]" is the group rank.
TEST(WatchdogGroups, TheNameOfAFileTellsTheRankOfASubgroupsMember) {
  const auto unprefixed = [](int rank, const std::string& group, int group_rank) {
    std::string text = timed_out(rank, 12, "ALLREDUCE", 8, 12, 11, group, group_rank);
    const std::string label = fmt::format("[rank{}]:", rank);
    for (std::size_t at = text.find(label); at != std::string::npos; at = text.find(label))
      text.erase(at, label.size());
    return text;
  };
  const auto ranks_of = [](const trace::Run& run) {
    std::string out;
    for (const RankTrace& trace : run.ranks) out += fmt::format(" {}", trace.rank.value);
    return out;
  };
  const std::string tensor = "PG ID 1 PG GUID 5(TENSOR)";
  EXPECT_EQ(ranks_of(run_of(watchdog_log_format(), {{"rank_4.log", unprefixed(4, tensor, 0)},
                                                    {"rank_5.log", unprefixed(5, tensor, 1)}})),
            " 4 5");
  const std::string world = "PG ID 0 PG GUID 0(default_pg)";
  EXPECT_EQ(ranks_of(run_of(watchdog_log_format(),
                            {{"rank_0.log", unprefixed(0, world, 0) + unprefixed(1, world, 1)}})),
            " 0 1")
      << "the output of several ranks";
}

}  // namespace
}  // namespace lockstep::trace
