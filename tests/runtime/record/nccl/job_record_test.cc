#include "runtime/record/nccl/job_record.h"

#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/record/nccl/ranks.h"
#include "tests/support/temp_dir.h"

namespace lockstep::runtime {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Record : public testing::Test {
 protected:
  std::unique_ptr<NcclJobRecord> job(Variables variables) {
    variables.emplace("LOCKSTEP_RECORD_DIR", folder_.path());
    return std::make_unique<NcclJobRecord>("test", [variables](const char* name) -> const char* {
      const auto found = variables.find(name);
      return found == variables.end() ? nullptr : found->second.c_str();
    });
  }
  static bool call(NcclJobRecord& job, const char* name, int group_rank, int size,
                   const Communicator* parent = nullptr) {
    Communicator* const made = job.open({name, {}, group_rank, size, parent});
    if (made == nullptr) return false;
    made->issue({trace::Op::all_reduce, {}, 8, 7, 0, trace::kNone, trace::kNone});
    return true;
  }
  TempDir folder_;
};

TEST_F(Record, TakesTheRankFromTheLauncher) {
  const auto record = job({{"SLURM_PROCID", "2"}, {"SLURM_NTASKS", "4"}});
  EXPECT_TRUE(call(*record, "first", 1, 2));
  EXPECT_TRUE(call(*record, "second", 0, 2));
  EXPECT_THAT(calls(folder_.path(), 2),
              ElementsAre("all_reduce first float32 8>8 sum", "all_reduce second float32 8>8 sum"));
}

TEST_F(Record, WithoutALauncherTakesTheFirstCommunicatorForAll) {
  const auto record = job({});
  EXPECT_TRUE(call(*record, "first", 3, 4));
  EXPECT_TRUE(call(*record, "second", 0, 2));
  EXPECT_THAT(calls(folder_.path(), 3),
              ElementsAre("all_reduce world float32 8>8 sum", "all_reduce second float32 8>8 sum"));
  testing::internal::CaptureStderr();
  EXPECT_FALSE(call(*record, "larger", 0, 8));
  EXPECT_FALSE(call(*record, "larger still", 0, 9));
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "test: communicators of more than 4 ranks are not recorded: the first one had no more, "
            "and no launcher says otherwise; set RANK and WORLD_SIZE\n");
}

TEST_F(Record, GivesEachDeviceOfAProcessAFile) {
  // Two processes with two devices each: the launcher's ranks are not the communicator's.
  const auto record = job({{"RANK", "1"}, {"WORLD_SIZE", "2"}});
  Communicator* const third = record->open({"first", {}, 2, 4, nullptr});
  ASSERT_NE(third, nullptr);
  EXPECT_TRUE(call(*record, "first", 2, 4));
  EXPECT_TRUE(call(*record, "first", 3, 4));
  EXPECT_TRUE(call(*record, "split", 0, 2, third));
  testing::internal::CaptureStderr();
  EXPECT_FALSE(call(*record, "whose", 0, 2));
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("nothing says which of them made the communicator"));
  EXPECT_THAT(calls(folder_.path(), 2),
              ElementsAre("all_reduce world float32 8>8 sum", "all_reduce split float32 8>8 sum"));
  EXPECT_THAT(calls(folder_.path(), 3), ElementsAre("all_reduce world float32 8>8 sum"));
}

TEST_F(Record, GivesTheSameRecorderForTheSameGroupRank) {
  const auto record = job({{"RANK", "0"}, {"WORLD_SIZE", "2"}});
  Communicator* const first = record->open({"comm", {}, 0, 2, nullptr});
  EXPECT_EQ(record->open({"comm", {}, 0, 2, nullptr}), first);
  testing::internal::CaptureStderr();
  EXPECT_EQ(record->open({"comm", {}, 1, 2, nullptr}), nullptr);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("unset RANK"));
}

TEST_F(Record, RefusesImpossibleGroupRanks) {
  const auto record = job({});
  testing::internal::CaptureStderr();
  EXPECT_FALSE(call(*record, "a", -1, 2));
  EXPECT_FALSE(call(*record, "a", 2, 2));
  EXPECT_FALSE(call(*record, "a", 0, 0));
  EXPECT_FALSE(call(*record, "a", 0, 1 << 30));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("it has no group rank -1 of 2"));
  EXPECT_TRUE(call(*record, "a", 0, 2)) << "the next one may be right";
}

TEST_F(Record, LeavesAFileAloneThatAnotherRecorderWrites) {
  const auto one = job({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  EXPECT_TRUE(call(*one, "a", 0, 1));
  testing::internal::CaptureStderr();
  EXPECT_FALSE(call(*job({{"RANK", "0"}, {"WORLD_SIZE", "1"}}), "b", 0, 1));
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("rank 0 is not recorded: this process writes "));
  EXPECT_TRUE(call(*one, "a", 0, 1));
  EXPECT_THAT(calls(folder_.path(), 0).size(), 2U);
}

TEST_F(Record, ReplacesAFileOfAnEarlierJob) {
  ASSERT_TRUE(call(*job({{"RANK", "0"}, {"WORLD_SIZE", "1"}}), "a", 0, 1));
  EXPECT_TRUE(call(*job({{"RANK", "0"}, {"WORLD_SIZE", "1"}}), "b", 0, 1));
  EXPECT_THAT(calls(folder_.path(), 0), ElementsAre("all_reduce world float32 8>8 sum"));
}

TEST_F(Record, SaysThatTheLaunchersVariablesMakeNoSense) {
  testing::internal::CaptureStderr();
  EXPECT_TRUE(call(*job({{"RANK", "7"}, {"WORLD_SIZE", "four"}}), "a", 1, 2));
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("RANK is 7 and WORLD_SIZE is four"));
  EXPECT_EQ(calls(folder_.path(), 1).size(), 1U);
}

TEST_F(Record, MarksAHangAndTakesItBack) {
  const auto record =
      job({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCKSTEP_RECORD_HUNG_AFTER", "5"}});
  Communicator* const made = record->open({"a", {}, 0, 1, nullptr});
  const std::int64_t second = 1'000'000'000;
  made->rank().on_device = 1;
  record->look_for_hangs(0);
  record->look_for_hangs(4 * second);
  EXPECT_EQ(ending(folder_.path(), 0), "cut");
  record->look_for_hangs(5 * second);
  EXPECT_EQ(ending(folder_.path(), 0), "hung");
  EXPECT_TRUE(call(*record, "a", 0, 1));
  record->look_for_hangs(6 * second);
  EXPECT_EQ(ending(folder_.path(), 0), "cut");
  record->look_for_hangs(60 * second);
  record->finish(trace::End::exception);
  EXPECT_EQ(ending(folder_.path(), 0), "hung") << "what ended it came after";
  record->finish(trace::End::clean);
  EXPECT_EQ(ending(folder_.path(), 0), "clean");
}

TEST_F(Record, AnInfiniteTimeoutNeverMarksAHang) {
  for (const char* seconds : {"inf", "1e300", "nan", "-1", "0"}) {
    SCOPED_TRACE(seconds);
    const TempDir folder;
    const auto record = job({{"RANK", "0"},
                             {"WORLD_SIZE", "1"},
                             {"LOCKSTEP_RECORD_DIR", folder.path()},
                             {"LOCKSTEP_RECORD_HUNG_AFTER", seconds}});
    Communicator* const made = record->open({"a", {}, 0, 1, nullptr});
    ASSERT_NE(made, nullptr);
    made->rank().on_device = 1;
    record->look_for_hangs(0);
    record->look_for_hangs(std::int64_t{100'000'000} * 1'000'000'000);  // three years
    EXPECT_EQ(ending(folder.path(), 0), "cut");
  }
}

TEST_F(Record, HasNoRoomForMoreCommunicatorsThanTheTableHolds) {
  const auto record = job({});
  testing::internal::CaptureStderr();
  int made = 0;
  while (made < 200'000 && record->open({"comm " + std::to_string(made), {}, 0, 1, nullptr}))
    ++made;
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("table is full"));
  EXPECT_GT(made, 10'000);
  EXPECT_LT(made, 200'000);
  EXPECT_TRUE(call(*record, "comm 1", 0, 1)) << "those that are known go on";
}

}  // namespace
}  // namespace lockstep::runtime
