// Files are read by several threads (LoadOptions::threads): what comes of them is what one thread
// makes of them, in every format. ThreadSanitizer runs this (scripts/test --tsan).
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"
#include "tests/support/trace_dump.h"
#include "trace/load.h"

namespace lockstep::trace {
namespace {

namespace fs = std::filesystem;

// All of a run, or why there is none.
std::string outcome(const std::string& folder, unsigned threads) {
  LoadOptions options;
  options.threads = threads;
  const Result<Run> run = load_run({folder}, options);
  if (!run) return run.error().message;
  std::string out;
  for (const RankTrace& trace : run->ranks) out += dump(trace, run->tables);
  return out;
}

class ReadingThreads : public testing::TestWithParam<const char*> {};

// Each input of the fuzz targets' corpus, as the files of six ranks.
TEST_P(ReadingThreads, MakeTheSameOfAFormatAsOne) {
  for (const fs::directory_entry& seed :
       fs::directory_iterator(fs::path(LOCKSTEP_SOURCE_DIR) / "tests/fuzz/corpus" / GetParam())) {
    const TempDir folder;
    for (int rank = 0; rank < 6; ++rank)
      fs::copy_file(seed.path(), folder.file("seed_rank_" + std::to_string(rank) +
                                             seed.path().extension().string()));
    EXPECT_EQ(outcome(folder.path(), 4), outcome(folder.path(), 1)) << seed.path();
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, ReadingThreads,
                         testing::Values("chakra", "clog", "detail_log", "digest",
                                         "execution_trace", "flight_recorder", "kineto", "nccl_log",
                                         "nsys", "ring_trace", "text_trace", "watchdog_log"));

}  // namespace
}  // namespace lockstep::trace
