// Files of two jobs in one folder.
#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"
#include "tests/support/trace_lines.h"
#include "trace/load.h"

namespace lockstep::trace {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr std::int64_t kJobBegan = 1'700'000'000'000'000'000;  // in 2023
constexpr std::int64_t kASecond = 1'000'000'000;

// A rank's dump of all-reduces of so many elements, a second apart, of which the last is open.
std::string dump_of_job(std::int64_t begin, int elements, const char* backend = "nccl") {
  std::string entries;
  for (int n = 1; n <= 3; ++n) {
    entries += fmt::format(
        R"({}{{"collective_seq_id":{},"frames":[],"input_dtypes":["Float"],"input_sizes":[[{}]],)"
        R"("is_p2p":false,"op_id":{},"output_dtypes":["Float"],"output_sizes":[[{}]],)"
        R"("p2p_seq_id":0,"pg_id":0,"process_group":["0","default_pg"],)"
        R"("profiling_name":"{}:all_reduce","record_id":{},"retired":{},"state":"scheduled",)"
        R"("time_created_ns":{},"time_discovered_completed_ns":0,"time_discovered_started_ns":0}})",
        n == 1 ? "" : ",", n, elements, n, elements, backend, n - 1, n < 3, begin + n * kASecond);
  }
  return fmt::format(R"({{"entries":[{}],"pg_config":{{}},"pg_status":{{}},"version":"2.10"}})",
                     entries);
}

class OtherJobs : public testing::Test {
 protected:
  // The ranks that were read, each with the file that it came from.
  std::vector<std::string> read(const std::vector<std::string>& paths) {
    const Result<trace::Run> run = load_run(paths);
    EXPECT_TRUE(run) << (run ? "" : run.error().str());
    std::vector<std::string> out;
    said_.clear();
    if (!run) return out;
    for (const RankTrace& trace : run->ranks)
      out.push_back(trace.source.substr(trace.source.rfind('/') + 1));
    said_ = run->header_conflicts;
    return out;
  }
  TempDir dir_;
  std::vector<std::string> said_;
};

TEST_F(OtherJobs, TheNewerOfTwoSetsOfDumpsIsJudged) {
  for (int r = 0; r < 2; ++r) dir_.write(fmt::format("rank_{}.json", r), dump_of_job(kJobBegan, 8));
  for (int r = 0; r < 3; ++r)
    dir_.write(fmt::format("old_rank_{}.json", r), dump_of_job(kJobBegan - 60 * kASecond, 4));
  EXPECT_THAT(read({dir_.path()}), ElementsAre("rank_0.json", "rank_1.json"));
  ASSERT_THAT(said_, SizeIs(1));
  EXPECT_THAT(said_[0], HasSubstr("old_rank_2.json (3 files, to 22:12:23 UTC on 2023-11-14) were "
                                  "left out"));
  // Also where the older files come first by name and hold more ranks, and where a number that is
  // not the rank's tells the jobs apart.
  TempDir numbered;
  for (const int job : {17, 18})
    for (int r = 0; r < 2; ++r)
      numbered.write(fmt::format("job{}_rank_{}.json", job, r),
                     dump_of_job(kJobBegan + (job == 17 ? 60 * kASecond : 0), 8));
  EXPECT_THAT(read({numbered.path()}), ElementsAre("job17_rank_0.json", "job17_rank_1.json"));
}

TEST_F(OtherJobs, NamedAloneTheOlderIsJudged) {
  dir_.write("rank_0.json", dump_of_job(kJobBegan, 8));
  dir_.write("old_rank_0.json", dump_of_job(kJobBegan - 60 * kASecond, 4));
  EXPECT_THAT(read({dir_.file("old_rank_0.json")}), ElementsAre("old_rank_0.json"));
  EXPECT_THAT(said_, IsEmpty());
}

// The names differ by a number of the process, and do not tell which files belong together.
TEST_F(OtherJobs, WhatBelongsTogetherIsToldByTheTimes) {
  dir_.write("rank_0_pid11.json", dump_of_job(kJobBegan, 8));
  dir_.write("rank_1_pid12.json", dump_of_job(kJobBegan, 8));
  dir_.write("rank_0_pid13.json", dump_of_job(kJobBegan - 60 * kASecond, 4));
  dir_.write("rank_1_pid14.json", dump_of_job(kJobBegan - 60 * kASecond, 4));
  EXPECT_THAT(read({dir_.path()}), ElementsAre("rank_0_pid11.json", "rank_1_pid12.json"));
}

// One process, dumped in both forms: not two jobs, and the other rank of the second is read.
TEST_F(OtherJobs, DumpsOfOneProcessAreOneJob) {
  dir_.write("rank_0.json", dump_of_job(kJobBegan, 8));
  dir_.write("rank_0.again.json", dump_of_job(kJobBegan, 8));
  dir_.write("rank_1.again.json", dump_of_job(kJobBegan, 8));
  EXPECT_THAT(read({dir_.path()}), SizeIs(2));
}

// A rank that today's smaller job does not have.
TEST_F(OtherJobs, ADumpOverGlooOfYesterdayIsLeftOut) {
  for (int r = 0; r < 3; ++r)
    dir_.write(fmt::format("rank_{}.json", r), dump_of_job(kJobBegan, 8, "gloo"));
  const std::string old =
      dir_.write("rank_3.json", dump_of_job(kJobBegan - 86400 * kASecond, 4, "gloo"));
  namespace fs = std::filesystem;
  const auto written = std::chrono::sys_seconds(std::chrono::seconds(kJobBegan / kASecond - 86000));
  fs::last_write_time(old, fs::file_time_type::clock::from_sys(written));
  EXPECT_THAT(read({dir_.path()}), ElementsAre("rank_0.json", "rank_1.json", "rank_2.json"));
}

TEST_F(OtherJobs, ARankOfALargerJobIsLeftOutBesideAWholeOne) {
  const auto trace = [](int rank, std::size_t world) {
    return header_line(rank, world) + json_line({{"ev", "step"}, {"n", 1}}) + end_line("clean");
  };
  for (int r = 0; r < 2; ++r) dir_.write(fmt::format("rank_{}.trace.jsonl", r), trace(r, 2));
  dir_.write("rank_2.trace.jsonl", trace(2, 3));
  EXPECT_THAT(read({dir_.path()}), ElementsAre("rank_0.trace.jsonl", "rank_1.trace.jsonl"));
  ASSERT_THAT(said_, SizeIs(1));
  EXPECT_THAT(said_[0], HasSubstr("the file of rank 2 is of a job of 3 ranks"));
  // Where no job is whole, nothing shows which of the sizes is right.
  dir_.write("rank_1.trace.jsonl", trace(1, 3));
  EXPECT_THAT(read({dir_.path()}), SizeIs(3));
}

}  // namespace
}  // namespace lockstep::trace
