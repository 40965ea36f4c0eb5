// Dumps of two attempts in one folder.
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"
#include "trace/load.h"

namespace lockstep::trace {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr std::int64_t kOneSecond = 1'000'000'000;
constexpr std::int64_t kAttemptBegan = 1'700'000'000 * kOneSecond;

// A dump of four ranks' group: `calls` calls, one a second from `begin` on, the last one open.
std::string dump_of_attempt(std::int64_t begin, int calls, int first = 1,
                            std::string_view op = "all_reduce") {
  std::string entries;
  for (int n = first; n <= calls; ++n) {
    const std::int64_t created = begin + n * kOneSecond;
    entries += fmt::format(
        R"({}{{"collective_seq_id":{},"input_dtypes":["Float"],"input_sizes":[[8]],"is_p2p":false,)"
        R"("output_dtypes":["Float"],"output_sizes":[[8]],"p2p_seq_id":0,"pg_id":0,)"
        R"("process_group":["0","default_pg"],"profiling_name":"nccl:{}","record_id":{},)"
        R"("retired":true,"state":"{}","time_created_ns":{},"time_discovered_completed_ns":{},)"
        R"("time_discovered_started_ns":0}})",
        n == first ? "" : ",", n, op, n, n < calls ? "completed" : "scheduled", created,
        n < calls ? created + kOneSecond / 2 : 0);
  }
  return fmt::format(
      R"({{"entries":[{}],"pg_config":{{"0":{{"name":"0","desc":"default_pg","ranks":"[0,1,2,3]"}}}},)"
      R"("pg_status":{{}},"version":"2.10"}})",
      entries);
}

class OtherAttempts : public testing::Test {
 protected:
  void write(int rank, std::int64_t begin, int calls = 5) {
    dir_.write(fmt::format("rank_{}.json", rank), dump_of_attempt(begin, calls));
  }
  std::vector<int> read() {
    const Result<trace::Run> run = load_run({dir_.path()});
    EXPECT_TRUE(run) << (run ? "" : run.error().str());
    std::vector<int> ranks;
    for (const RankTrace& trace : run->ranks) ranks.push_back(trace.rank.value);
    left_out_.clear();
    for (const trace::Run::Unreadable& file : run->unreadable)
      left_out_.push_back(file.error.message);
    return ranks;
  }
  TempDir dir_;
  std::vector<std::string> left_out_;
};

TEST_F(OtherAttempts, ADumpOfAnEarlierOneIsLeftOut) {
  for (int r = 0; r < 4; ++r) write(r, kAttemptBegan);
  write(2, kAttemptBegan - 3600 * kOneSecond, 9);
  EXPECT_THAT(read(), ElementsAre(0, 1, 3));
  ASSERT_THAT(left_out_, SizeIs(1));
  EXPECT_THAT(left_out_[0], HasSubstr("rank 2 completed call 1 of default_pg 1 h before ranks "
                                      "0,1,3 issued it"));
  // Also where it is the first one, by which the others are compared.
  write(2, kAttemptBegan);
  write(0, kAttemptBegan - 3600 * kOneSecond);
  EXPECT_THAT(read(), ElementsAre(1, 2, 3));
}

TEST_F(OtherAttempts, ANewerOneBesideMostOfAnOlderOneIsLeftOut) {
  for (int r = 0; r < 4; ++r) write(r, kAttemptBegan);
  write(3, kAttemptBegan + 3600 * kOneSecond);
  EXPECT_THAT(read(), ElementsAre(0, 1, 2));
}

// Its ring holds no call that the others came to.
TEST_F(OtherAttempts, AnEarlierOneThatWasFurtherIsLeftOut) {
  for (int r = 0; r < 4; ++r) write(r, kAttemptBegan);
  dir_.write("rank_3.json", dump_of_attempt(kAttemptBegan - 3600 * kOneSecond, 50, 41));
  EXPECT_THAT(read(), ElementsAre(0, 1, 2));
  EXPECT_THAT(left_out_[0], HasSubstr("rank 3 completed call 41 of default_pg 59 min 24 s before "
                                      "ranks 0-2 issued call 5"));
}

TEST_F(OtherAttempts, TheOlderOfEqualSidesIsLeftOut) {
  for (int r = 0; r < 4; ++r) write(r, r < 2 ? kAttemptBegan : kAttemptBegan - 3600 * kOneSecond);
  EXPECT_THAT(read(), ElementsAre(0, 1));
  for (int r = 0; r < 4; ++r) write(r, r >= 2 ? kAttemptBegan : kAttemptBegan - 3600 * kOneSecond);
  EXPECT_THAT(read(), ElementsAre(2, 3));
}

TEST_F(OtherAttempts, ClocksDifferByMinutes) {
  for (int r = 0; r < 4; ++r) write(r, kAttemptBegan + r * 60 * kOneSecond);
  EXPECT_THAT(read(), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(left_out_, IsEmpty());
}

// A rank may issue a call long before the others; it then completes when they come.
TEST_F(OtherAttempts, ARankThatWaitsForHoursIsOfTheSameOne) {
  for (int r = 0; r < 4; ++r) write(r, kAttemptBegan);
  write(2, kAttemptBegan + 3600 * kOneSecond,
        1);  // comes an hour late to a call that nobody completed
  for (int r : {0, 1, 3}) write(r, kAttemptBegan, 1);
  EXPECT_THAT(read(), ElementsAre(0, 1, 2, 3));
}

// Its root completes a broadcast as soon as it has sent.
TEST_F(OtherAttempts, ALateReceiverIsOfTheSameOne) {
  for (int r = 0; r < 4; ++r) {
    const std::int64_t late = r == 2 ? 3600 * kOneSecond : 0;
    dir_.write(fmt::format("rank_{}.json", r),
               dump_of_attempt(kAttemptBegan + late, 2, 1, "broadcast"));
  }
  EXPECT_THAT(read(), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(left_out_, IsEmpty());
}

}  // namespace
}  // namespace lockstep::trace
