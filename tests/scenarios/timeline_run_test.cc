// Timelines of real runs, of derivations and of simulations, in the reader that people open them
// with.
#include <gmock/gmock.h>

#include "tests/reports/findings/trace_reader.h"
#include "tests/scenarios/program_test.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

class Timelines : public ProgramTest {
 protected:
  void SetUp() override {
    if (const std::string why = reports::why_no_perfetto(); !why.empty()) GTEST_SKIP() << why;
  }
  std::string file() const { return folder_.file("timeline.json"); }
  // Runs the command, which must end with `status`, and reads what it wrote.
  void write_and_read(std::vector<std::string> arguments, int status) {
    arguments.insert(arguments.end(), {"--output", "timeline=" + file()});
    ASSERT_EQ(lockstep(std::move(arguments)), status) << log();
    reports::expect_perfetto_reads(file());
  }
  Json ask(const std::string& query) {
    reports::Perfetto perfetto;
    const auto answers = perfetto.ask(file(), {query});
    EXPECT_TRUE(answers) << perfetto.complaint();
    return answers ? (*answers)[0] : Json::array();
  }
  static constexpr const char* kUnfinished =
      "select count(*) as n from slice where name glob '*(unfinished)'";
  static constexpr const char* kFindings =
      "select distinct name from slice where category = 'finding'";
};

TEST_F(Timelines, OfARunThatHung) {
  write_and_read({"run", shipped("modality/manual_hang_bad"), "--output-dir", folder_.file("run")},
                 1);
  EXPECT_EQ(ask(kFindings), Json::parse(R"([{"name":"error modality-divergence"}])"));
  EXPECT_EQ(ask(kUnfinished)[0]["n"], 4) << "each rank waits";
}

TEST_F(Timelines, OfADerivationsCounterexample) {
  write_and_read({"derive", shipped("modality/manual_hang_bad")}, 1);
  EXPECT_EQ(ask(kFindings), Json::parse(R"([{"name":"error modality-divergence"}])"));
  EXPECT_EQ(ask(kUnfinished)[0]["n"], 4) << "as it hung";
}

TEST_F(Timelines, OfMessagesThatWaitForEachOther) {
  write_and_read({"derive", shipped("pipeline/crossed_bad")}, 1);
  EXPECT_EQ(ask(kFindings), Json::parse(R"([{"name":"error p2p-cycle"}])"));
  EXPECT_GT(ask(kUnfinished)[0]["n"], 1);
}

TEST_F(Timelines, OfASafeJob) {
  write_and_read({"derive", shipped("pipeline/gpipe_ok")}, 0);
  EXPECT_GT(ask("select count(*) as n from flow")[0]["n"], 0);
  EXPECT_EQ(ask(kUnfinished)[0]["n"], 0);
}

TEST_F(Timelines, OfASimulationWithWhatRanksHold) {
  write_and_read({"simulate", shipped("modality/manual_hang_ok"), "--machine",
                  LOCKSTEP_SOURCE_DIR "/sim/machines/dgx-h100.yaml"},
                 0);
  const Json held = ask(
      "select t.name, max(value) as most from counter join process_counter_track t on track_id = "
      "t.id where t.name glob '*in all*' or t.name glob '*parameters' group by 1 order by 1");
  ASSERT_GE(held.size(), 2U);
  EXPECT_THAT(std::string(held[0]["name"]), ::testing::StartsWith("memory (bytes), ranks 0"));
  for (const Json& one : held) EXPECT_GT(one["most"], 0) << one;
  EXPECT_EQ(ask("select count(*) as n from thread where name = 'host (2)'")[0]["n"], 0);
}

}  // namespace
}  // namespace lockstep
