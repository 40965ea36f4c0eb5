// PyTorch's desync report: how far each rank of a group got, by the store.
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/trace/formats/format_testing.h"
#include "tests/trace/formats/watchdog_log/watchdog_messages.h"
#include "trace/run.h"

namespace lockstep::trace {
namespace {

// A report that ends in `rest`.
std::string desync(int rank, const std::string& rest,
                   const std::string& group = "[PG ID 0 PG GUID 0(default_pg) Rank 0]") {
  return fmt::format(
      "[E709 17:05:39.1 ProcessGroupNCCL.cpp:2025] {} \n\t - [{}] Timeout at "
      "collective: ALLREDUCE, #29{}\n",
      group, rank, rest);
}
const std::string kSnapshot =
    "\n\t - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:"
    "\n\t     [2] finished collective #28, but didn't join collective #29 (count from 1)"
    "\n\t - Snapshot of ranks' latest states:"
    "\n\t   #28 finished ranks:\n\t     [2] finished ALLREDUCE"
    "\n\t   #29 started ranks:\n\t     [0, 1, 3] started ALLREDUCE";

TEST(DesyncReport, NamesWhoDidNotJoin) {
  EXPECT_EQ(judged(run_of_log(desync(0, kSnapshot))), "findings\nhost-stall world#28 by 2");
  const trace::Run run = run_of_log(desync(0, kSnapshot) + "more\n");
  EXPECT_EQ(run.ranks[0].world_size, 4) << "it lists all ranks";
  // The watchdog's own message of the same call adds the size.
  EXPECT_EQ(judged(run_of_log(timed_out(0, 29, "ALLREDUCE", 8, 29, 28) + desync(0, kSnapshot))),
            "findings\nhost-stall world#28 by 2");
  // Before PyTorch 2.2 nothing names the group.
  EXPECT_EQ(judged(run_of_log(desync(0, kSnapshot, "[Rank 0]"))),
            "findings\nhost-stall world#28 by 2");
}

TEST(DesyncReport, NamesWhoJoinedAndDidNotFinish) {
  EXPECT_EQ(judged(run_of_log(desync(0,
                                     "\n\t   #28 started ranks:\n\t     [1] started ALLREDUCE"
                                     "\n\t   #29 started ranks:\n\t     [0, 2] started "
                                     "ALLREDUCE"))),
            "findings\ndevice-stall world#27 by 1");
}

TEST(DesyncReport, NamesWhoNeverJoined) {
  std::string text = desync(
      0,
      "\n\t - To our best knowledge, ranks [1, 3] are the lagging ranks that caused this timeout. "
      "They never joined any collectives");
  for (const int rank : {0, 2, 4}) text += timed_out(rank, 29, "ALLREDUCE", 8, 29, 28);
  EXPECT_EQ(judged(run_of_log(text)), "findings\nhost-stall world#28 by 1 3");
}

TEST(DesyncReport, BlamesNobodyWhereAllJoined) {
  EXPECT_EQ(judged(run_of_log(desync(0,
                                     "\n\t   #29 started ranks:\n\t     [0, 1, 2] started "
                                     "ALLREDUCE") +
                              "more\n")),
            "findings\ndevice-stall world#28 by");
}

// Its ranks are those of the group: only who says its own group rank is known.
TEST(DesyncReport, OfASubgroupNamesNoOtherRanks) {
  const std::string tensor = "PG ID 1 PG GUID 5(TENSOR)";
  const trace::Run run = run_of_log(timed_out(4, 29, "ALLREDUCE", 8, 29, 28, tensor, 0) +
                                    desync(0, kSnapshot, "[" + tensor + " Rank 0]"));
  ASSERT_EQ(run.ranks.size(), 1U);
  EXPECT_EQ(run.ranks[0].rank, Rank(4));
  EXPECT_EQ(judged(run), "inconclusive");
}

}  // namespace
}  // namespace lockstep::trace
