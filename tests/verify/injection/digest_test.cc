// The verdict on digests is that on the traces they were made from: for jobs with faults in them
// and for the recordings that are there, a digest from each rank by itself.
#include "trace/formats/digest/digest.h"

#include <algorithm>
#include <filesystem>
#include <regex>

#include <gtest/gtest.h>

#include "reports/findings/reports.h"
#include "tests/support/temp_dir.h"
#include "tests/verify/injection/judging.h"
#include "tests/verify/injection/recorded_programs.h"
#include "tests/verify/injection/trial.h"
#include "trace/formats/format.h"
#include "trace/load.h"
#include "verify/verify.h"

namespace lockstep::verify::injection {
namespace {

namespace fs = std::filesystem;

// Writes a digest of each share of `files` into `folder`. Returns what tells of all of them: the
// folder, and files of shares of which nothing can be read, which have no digest.
std::vector<std::string> digest_shares(const std::vector<std::string>& files, std::size_t shares,
                                       const TempDir& folder) {
  std::vector<std::string> out = {folder.path()};
  for (std::size_t s = 0; s < shares; ++s) {
    std::vector<std::string> share;
    for (std::size_t f = s; f < files.size(); f += shares) share.push_back(files[f]);
    if (share.empty()) continue;
    const auto loaded = trace::load_traces(share);
    if (!loaded) {
      out.insert(out.end(), share.begin(), share.end());
      continue;
    }
    folder.write("node" + std::to_string(s) + ".digest",
                 trace::write_digest(loaded->traces, loaded->tables,
                                     {std::string(loaded->format->name), loaded->unreadable})
                     .bytes);
  }
  return out;
}

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> out;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name != "expected.json" && name != "README.md") out.push_back(entry.path().string());
  }
  std::sort(out.begin(), out.end());
  return out;
}

// All that a report says, but in which files something is, and when a rank stopped: digests hold no
// times.
std::string said(const trace::Run& run) {
  static const std::regex kWhen(
      " (at [0-9:]{8} UTC on [0-9-]{10}|[0-9]+ (s|min|h [0-9]+ min) ago)(?= before )");
  Report report = verify(run);
  for (Finding& finding : report.findings) {
    if (finding.rule == RuleId::damaged_trace) finding.evidence.clear();
    if (finding.rule == RuleId::inconsistent_header) finding.message.clear();
  }
  return std::regex_replace(reports::json_report(report), kWhen, "");
}

// In two digests, and in one of each file.
void expect_same(const std::vector<std::string>& files) {
  const auto whole = trace::load_run(files);
  ASSERT_TRUE(whole) << whole.error().str();
  for (const std::size_t shares : {std::size_t{2}, files.size()}) {
    const TempDir folder;
    const auto digests = trace::load_run(digest_shares(files, shares, folder));
    ASSERT_TRUE(digests) << digests.error().str();
    EXPECT_EQ(said(*digests), said(*whole)) << shares << " digests";
  }
}

void expect_same(const Files& contents) {
  const TempDir folder;
  std::vector<std::string> files;
  for (const auto& [name, bytes] : contents) files.push_back(folder.write(name, bytes));
  expect_same(files);
}

TEST(DigestVerdict, IsThatOnTheTracesForJobsWithFaults) {
  for (const Form form : {Form::traces, Form::dumps}) {
    for (int fault = 0; fault < kFaults; ++fault) {
      for_each_seed(4, [&](std::uint32_t seed) {
        Random random(seed * 100 + static_cast<std::uint32_t>(fault));
        const auto trial = make_trial(static_cast<Fault>(fault), generated_program, form, random);
        if (!trial) return;
        SCOPED_TRACE("seed " + std::to_string(seed) + ", fault " + std::to_string(fault) + " (" +
                     trial->words + ")");
        expect_same(trial->files);
      });
    }
  }
}

TEST(DigestVerdict, IsThatOnTheTracesForHealthyJobs) {
  for (const Form form : {Form::traces, Form::dumps}) {
    for_each_seed(20, [&](std::uint32_t seed) {
      Random random(seed);
      const Trial trial = make_healthy(generated_program, form, random);
      SCOPED_TRACE("seed " + std::to_string(seed) + " (" + trial.words + ")");
      expect_same(trial.files);
    });
  }
}

// Every format, by the small files that its reader is fuzzed with.
TEST(DigestVerdict, IsThatOnFilesOfEveryFormat) {
  const std::string corpus = std::string(LOCKSTEP_SOURCE_DIR) + "/tests/fuzz/corpus/";
  std::size_t judged = 0;
  for (const char* format : {"ring_trace", "text_trace", "flight_recorder", "kineto", "chakra",
                             "nccl_log", "nsys", "watchdog_log"}) {
    for (const std::string& file : files_in(corpus + format)) {
      SCOPED_TRACE(file);
      const TempDir folder;  // some tell their rank by their name only
      const std::string named = folder.write("x_rank_0", TempDir::read(file));
      const auto run = trace::load_run({named});
      if (!run) continue;  // several in one, or no trace at all
      expect_same(std::vector<std::string>{named});
      ++judged;
    }
  }
  EXPECT_GT(judged, 15U);
}

class DigestOfRecordings : public ::testing::TestWithParam<const char*> {};

TEST_P(DigestOfRecordings, HasTheSameVerdict) {
  const std::string folder = shared_data() + "/" + std::string(GetParam());
  if (!fs::is_directory(folder)) GTEST_SKIP() << "NOT TESTED: " << folder << " is not there";
  std::size_t judged = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (!entry.is_directory()) continue;
    SCOPED_TRACE(entry.path().string());
    const std::vector<std::string> files = files_in(entry.path().string());
    if (files.empty()) continue;
    expect_same(files);
    ++judged;
  }
  EXPECT_GT(judged, 0U);
}

INSTANTIATE_TEST_SUITE_P(Recordings, DigestOfRecordings,
                         ::testing::Values("native", "fr", "mpi/traces", "values"));

}  // namespace
}  // namespace lockstep::verify::injection
