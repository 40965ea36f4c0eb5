// The calls that a scenario names: read, checked, and refused where they are not.
#include <gmock/gmock.h>

#include "runtime/replay/replay_scenario.h"
#include "tests/support/temp_dir.h"
#include "tests/support/trace_lines.h"

namespace lockstep::runtime {
namespace {

using ::testing::HasSubstr;

constexpr const char* kBarrier = R"({"ev":"issue","id":0,"g":"world","op":"barrier"})"
                                 "\n"
                                 R"({"end":"clean"})"
                                 "\n";

class ScenarioProgram : public ::testing::Test {
 protected:
  Scenario scenario(int ranks) {
    const std::string file =
        folder_.write("job.yaml", replay_scenario_text({.name = "x: \"y\"\n",
                                                        .description = "what it was",
                                                        .ranks = ranks,
                                                        .trace = "job.calls",
                                                        .expect = {.verdict = "findings",
                                                                   .rules = {"host-stall"},
                                                                   .culprits = std::vector<int>{1},
                                                                   .step = 12,
                                                                   .ends = {}}}));
    Result<Scenario> loaded = load_scenario(file);
    EXPECT_TRUE(loaded) << (loaded ? "" : loaded.error().str());
    return loaded ? *loaded : Scenario();
  }
  void write_calls(int rank, const std::string& text) {
    std::filesystem::create_directory(folder_.file("job.calls"));
    folder_.write("job.calls/rank_" + std::to_string(rank) + ".trace.jsonl", text);
  }
  std::string refusal(int ranks) {
    const Result<trace::Run> program = load_replay_program(scenario(ranks));
    return program ? "no error" : program.error().str();
  }
  TempDir folder_;
};

TEST_F(ScenarioProgram, TheTextIsTheScenario) {
  const Scenario s = scenario(2);
  EXPECT_TRUE(s.replays());
  EXPECT_EQ(s.name, "x: \"y\"\\x0a");  // safe to print
  EXPECT_EQ(s.ranks, 2);
  EXPECT_EQ(s.replay, "job.calls");
  EXPECT_EQ(s.expect->rules, std::vector<std::string>{"host-stall"});
  EXPECT_EQ(s.expect->culprits, std::vector<int>{1});
  EXPECT_EQ(s.expect->step, 12);  // of the recorded run: more than "train" has
}

TEST_F(ScenarioProgram, ReadsTheCallsBesideTheScenario) {
  write_calls(0, header_line(0, 2) + kBarrier);
  write_calls(1, header_line(1, 2) + kBarrier);
  EXPECT_EQ(refusal(2), "no error");
}

TEST_F(ScenarioProgram, WhatIsNotThereOrDoesNotFitIsSaid) {
  EXPECT_THAT(refusal(2), HasSubstr("\"replay\" is a folder, as seen from the folder"));
  EXPECT_THAT(refusal(2), HasSubstr("job.yaml:7:9"));  // the value of "replay"
  write_calls(0, header_line(0, 2) + kBarrier);
  EXPECT_THAT(refusal(2), HasSubstr("rank 1 left no trace"));
  write_calls(1, header_line(1, 2) + kBarrier);
  EXPECT_THAT(refusal(3), HasSubstr("\"ranks: 3\", and the calls to be replayed are those of 2"));
  EXPECT_THAT(refusal(3), HasSubstr("job.yaml:6:8"));
  write_calls(1, "no trace at all");
  EXPECT_THAT(refusal(2), HasSubstr("rank_1.trace.jsonl"));
}

TEST_F(ScenarioProgram, WhatNcclDoesNotCarryIsSaidWhereItIsTo) {
  const std::string receive = R"({"ev":"issue","id":0,"g":"world","op":"recv_any","out":[[1]]})"
                              "\n";
  write_calls(0, header_line(0, 2) + receive);
  write_calls(1, header_line(1, 2) + kBarrier);
  Scenario s = scenario(2);
  EXPECT_TRUE(load_replay_program(s));
  s.backend = Scenario::Backend::nccl;
  const Result<trace::Run> program = load_replay_program(s);
  ASSERT_FALSE(program);
  EXPECT_THAT(program.error().str(), HasSubstr("NCCL has no receive from any source"));
  EXPECT_THAT(program.error().str(), HasSubstr("rank_0.trace.jsonl"));
}

TEST_F(ScenarioProgram, EveryDamagedByteIsRefusedOrReplayable) {
  write_calls(0, header_line(0, 2) + kBarrier);
  const std::string whole = header_line(1, 2) + kBarrier;
  const Scenario s = scenario(2);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x15);
    write_calls(1, damaged);
    const Result<trace::Run> program = load_replay_program(s);
    if (program) continue;
    EXPECT_FALSE(program.error().message.empty());
  }
}

}  // namespace
}  // namespace lockstep::runtime
