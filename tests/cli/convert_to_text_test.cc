// `lockstep convert` to text, and `lockstep verify` of what it wrote: a copy says what the original
// does. Every reader's recordings are compared so in tests/fuzz.
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/run_lockstep.h"
#include "tests/support/temp_dir.h"
#include "tests/support/trace_lines.h"

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;

class ConvertToText : public ::testing::Test {
 protected:
  // What `verify` says in JSON, without places in files.
  static nlohmann::json verdict(const std::string& path) {
    nlohmann::json report = nlohmann::json::parse(
        run_lockstep({"verify", "--output", "json=-", path}).out, nullptr, false);
    report.erase("sources");
    for (nlohmann::json& finding : report["findings"]) finding.erase("evidence");
    return report;
  }
  std::string copy_of(const std::string& path, int status = 0) {
    const std::string out = dir_.file("copy" + std::to_string(++copies_));
    const Outcome outcome = run_lockstep({"convert", path, "-o", out, "--quiet"});
    EXPECT_EQ(outcome.status, status) << outcome.err;
    return out;
  }

  TempDir dir_;
  int copies_ = 0;
};

// Dumps: their calls are numbered, and their ranks still run.
TEST_F(ConvertToText, ACopyOfDumpsSaysTheSame) {
  const std::string dumps = LOCKSTEP_SOURCE_DIR "/examples/hung-job";
  const std::string copy = copy_of(dumps);
  const nlohmann::json whole = verdict(dumps);
  EXPECT_EQ(whole["verdict"], "findings");
  EXPECT_EQ(verdict(copy), whole);
  EXPECT_EQ(verdict(copy_of(copy)), whole) << "a copy of the copy";
}

// The watchdog's messages do not tell the size of the job, so that a further rank may be missing.
TEST_F(ConvertToText, ACopyKnowsNoSizeThatTheOriginalDoesNot) {
  std::string log;
  for (const char* rank : {"0", "1"}) {
    const std::string prefix = std::string("[rank") + rank + "]:[E709 ProcessGroupNCCL.cpp:632] ";
    log += prefix + "[Rank " + rank +
           "] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, "
           "NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600001 milliseconds before timing "
           "out.\n" +
           prefix + "[PG ID 0 PG GUID 0(default_pg) Rank " + rank +
           "] failure detected by watchdog at work sequence id: 7 PG status: last enqueued work: "
           "7, last completed work: 6\n";
  }
  const std::string path = dir_.write("job.out", log);
  const std::string copy = copy_of(path);
  EXPECT_EQ(verdict(copy)["verdict"], "inconclusive");
  const std::vector<std::string> told = {"verify", "--expect-ranks", "2", "--output", "json=-"};
  for (const std::string& one : {path, copy}) {
    std::vector<std::string> arguments = told;
    arguments.push_back(one);
    EXPECT_THAT(run_lockstep(arguments).out, HasSubstr("device-stall"));
  }
}

TEST_F(ConvertToText, DamageAndMissingFilesStayKnown) {
  std::filesystem::create_directory(dir_.file("job"));
  dir_.write("job/rank_0.trace.jsonl",
             header_line(0, 2) + "{\"ev\":\"issue\",\"id\":0}\n" + end_line("clean"));
  dir_.write("job/rank_1.trace.jsonl", header_line(1, 2) + end_line("clean"));
  const nlohmann::json damaged = verdict(dir_.file("job"));
  EXPECT_EQ(damaged["verdict"], "inconclusive");
  EXPECT_EQ(verdict(copy_of(dir_.file("job"))), damaged);
  dir_.write("job/rank_0.trace.jsonl", header_line(0, 2) + end_line("clean"));
  EXPECT_EQ(verdict(copy_of(dir_.file("job")))["verdict"], "clean");
  dir_.write("job/rank_2.trace.jsonl", "{\"header\":7}\n");
  EXPECT_EQ(verdict(copy_of(dir_.file("job"), 3))["verdict"], "inconclusive");
}

// What has nothing further to say stays as it was.
TEST_F(ConvertToText, ACopyOfTextIsTheSameText) {
  std::filesystem::create_directory(dir_.file("job"));
  const std::string text =
      "{\"header\":1,\"rank\":0,\"world_size\":1,\"clock\":\"ns\"}\n"
      "{\"ev\":\"step\",\"n\":1}\n{\"end\":\"clean\"}\n";
  dir_.write("job/rank_0.trace.jsonl", text);
  EXPECT_EQ(TempDir::read(copy_of(dir_.file("job")) + "/rank_0.trace.jsonl"), text);
}

}  // namespace
}  // namespace lockstep::cli
