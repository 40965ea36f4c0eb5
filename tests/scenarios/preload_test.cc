// liblockstep_record.so in front of a program that records itself: both must have seen the same.
#include <cstdlib>

#include <gmock/gmock.h>

#include "tests/support/temp_dir.h"
#include "trace/load.h"
#include "verify/compare_calls.h"
#include "verify/verify.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Preload : public ::testing::Test {
 protected:
  // Runs a shipped scenario with the library in front of its workers; what they say is in log().
  void run(const std::string& scenario, const std::string& environment = "") {
    const std::string command =
        "LD_PRELOAD=" LOCKSTEP_RECORD_LIBRARY " LOCKSTEP_RECORD_DIR=" + folder_.file("theirs") +
        " " + environment + " " LOCKSTEP_PROGRAM " run --check " LOCKSTEP_SOURCE_DIR "/scenarios/" +
        scenario + ".yaml --output-dir " + folder_.file("own") + " > " + folder_.file("log") +
        " 2>&1";
    ASSERT_EQ(std::system(command.c_str()), 0) << log();
  }
  std::string log() const { return TempDir::read(folder_.file("log")); }

  // What a folder's traces show of the calls: the library knows no steps and no parameters.
  trace::Run calls_in(const std::string& folder) const {
    trace::Run run = std::move(trace::load_run({folder_.file(folder)}).value());
    for (trace::RankTrace& trace : run.ranks) {
      for (trace::Call& call : trace.calls.own()) {
        call.step = trace::kNone;
        call.what = {};
      }
    }
    return run;
  }

  void expect_the_same_calls(bool to_the_end) const {
    const trace::Run own = calls_in("own");
    const trace::Run theirs = calls_in("theirs");
    ASSERT_EQ(own.ranks.size(), theirs.ranks.size());
    for (std::uint32_t r = 0; r < own.ranks.size(); ++r) {
      EXPECT_GT(own.ranks[r].calls.size(), 8U);
      const verify::CallComparison c = verify::compare_calls(own, r, theirs, r);
      EXPECT_TRUE(c.same()) << "rank " << r << ", call " << c.equal << ": " << c.a.value_or("-")
                            << " and " << c.b.value_or("-");
      EXPECT_TRUE(!to_the_end || theirs.ranks[r].end == trace::End::clean);
    }
  }
  TempDir folder_;
};

class PreloadScenarios : public Preload, public ::testing::WithParamInterface<const char*> {};

TEST_P(PreloadScenarios, SeesWhatTheProgramRecords) {
  run(GetParam());
  expect_the_same_calls(/*to_the_end=*/true);
  EXPECT_EQ(verify::verify(trace::load_run({folder_.file("theirs")}).value()).verdict,
            verify::Verdict::clean);
}

// LibTorch's Reducer, flat collectives, messages, gathers with gradients.
INSTANTIATE_TEST_SUITE_P(Scenarios, PreloadScenarios,
                         ::testing::Values("modality/ddp_find_unused_ok", "fsdp/fsdp_ok",
                                           "pipeline/one_f_one_b_ok",
                                           "training/global_negatives_ok"));

TEST_F(Preload, EverythingUpToAHangIsThere) {
  run("modality/manual_silent_bad");
  expect_the_same_calls(/*to_the_end=*/false);
}

TEST_F(Preload, SaysWhyItRecordsNothing) {
  run("modality/all_text_only_ok", "LOCKSTEP_RECORD_DIR=");
  const std::string said = TempDir::read(folder_.file("own/rank_0.log"));
  EXPECT_THAT(said, HasSubstr("nothing is recorded: LOCKSTEP_RECORD_DIR is not set"));
  EXPECT_FALSE(std::filesystem::exists(folder_.file("theirs")));
}

}  // namespace
}  // namespace lockstep
