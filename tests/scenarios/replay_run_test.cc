// Recorded failures as scenarios: made, run on real processes, and judged as their traces were.
#include <algorithm>
#include <iomanip>
#include <iostream>
#include <sstream>

#include <gmock/gmock.h>

#include "tests/scenarios/program_test.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

using ReplayRun = ProgramTest;

// The others are in CMakeLists.txt: replayed_<scenario>.
TEST_F(ReplayRun, TheLastCallsInSmallTensors) {
  ASSERT_EQ(lockstep({"run", shipped("modality/manual_hang_bad"), "--quiet", "--output-dir",
                      folder_.file("run")}),
            1)
      << log();
  ASSERT_EQ(lockstep({"convert", "--to", "scenario", folder_.file("run"), "-o",
                      folder_.file("job.yaml"), "--last", "20", "--max-elements", "64"}),
            0)
      << log();
  EXPECT_EQ(
      lockstep({"run", "--check", folder_.file("job.yaml"), "--output-dir", folder_.file("again")}),
      0)
      << log();
}

TEST_F(ReplayRun, SaysWhatItDoesNotReplay) {
  const std::string replay = shipped("replay/stalled_rank_bad");
  EXPECT_EQ(lockstep({"derive", replay}), 2);
  EXPECT_THAT(log(), HasSubstr("a replay has no model to derive calls from"));
  EXPECT_EQ(lockstep({"simulate", replay, "--machine",
                      LOCKSTEP_SOURCE_DIR "/sim/machines/dgx-h100.yaml"}),
            2);
  EXPECT_THAT(log(), HasSubstr("a replay has no model to derive calls from"));
}

TEST_F(ReplayRun, ADamagedCallIsSaidBeforeAnythingStarts) {
  std::filesystem::copy(LOCKSTEP_SOURCE_DIR "/scenarios/replay", folder_.file("replay"),
                        std::filesystem::copy_options::recursive);
  folder_.write("replay/stalled_rank_bad.calls/rank_1.trace.jsonl", "{\"header\":1}\n");
  EXPECT_EQ(lockstep({"run", folder_.file("replay/stalled_rank_bad.yaml"), "--output-dir",
                      folder_.file("run")}),
            2);
  EXPECT_THAT(log(), HasSubstr("rank_1.trace.jsonl"));
  EXPECT_FALSE(std::filesystem::exists(folder_.file("run")));
}

// All recordings that lie beside the repository, where it has such a neighbour: how many of them
// come out as they went in. What is refused says why.
TEST_F(ReplayRun, RecordingsOfOthers) {
  namespace fs = std::filesystem;
  const fs::path data = LOCKSTEP_SOURCE_DIR "/../shared/data";
  if (!fs::exists(data)) GTEST_SKIP() << "no recordings in " << data << ": NOTHING WAS REPLAYED";
  std::vector<fs::path> runs;
  for (const char* part : {"fr", "native"}) {
    for (const auto& entry : fs::directory_iterator(data / part)) {
      if (entry.is_directory()) runs.push_back(entry.path());
    }
  }
  std::sort(runs.begin(), runs.end());
  std::ostringstream table;
  int replayed = 0, as_recorded = 0;
  for (const fs::path& run : runs) {
    const std::string name = run.filename().string();
    const int made =
        lockstep({"convert", "--to", "scenario", run.string(), "-o", folder_.file(name + ".yaml")});
    std::string words = log();
    ASSERT_NE(made, 4) << words;
    std::string result = "refused";
    if (made == 0) {
      ++replayed;
      const int status = lockstep({"run", "--check", "--quiet", folder_.file(name + ".yaml"),
                                   "--output-dir", folder_.file(name)});
      result = status == 0 ? "as recorded" : "DIFFERS";
      if (status == 0) ++as_recorded;
      EXPECT_EQ(status, 0) << name << "\n" << log();
    } else {
      words = words.substr(words.find("error: ") + 7);
    }
    const std::size_t expected = words.find("it expects: ");
    if (expected != std::string::npos) words = words.substr(expected + 16);
    table << std::left << std::setw(34) << name << std::setw(13) << result
          << words.substr(0, words.find('\n')) << "\n";
  }
  std::cout << table.str() << as_recorded << " of " << replayed << " as recorded; "
            << static_cast<int>(runs.size()) - replayed << " refused\n";
  EXPECT_GE(replayed, 30);
}

}  // namespace
}  // namespace lockstep
