// Faults put into healthy runs from disk: real programs, run again with one fault each.
#include <gtest/gtest.h>

#include "tests/support/sanitized.h"
#include "tests/verify/injection/judging.h"
#include "tests/verify/injection/recorded_programs.h"
#include "tests/verify/injection/trial.h"

namespace lockstep::verify::injection {
namespace {

constexpr int kSeedsPerRecording = kSanitized ? 4 : 12;

struct Corpus {
  const char* name;
  std::vector<Recorded> (*load)(const std::string& shared);
  Form form;
};

class FromDisk : public testing::TestWithParam<Corpus> {
 protected:
  void SetUp() override {
    recorded_ = GetParam().load(shared_data());
    if (recorded_.empty()) GTEST_SKIP() << "no healthy runs under " << shared_data();
  }
  std::vector<Recorded> recorded_;
};

TEST_P(FromDisk, HealthyRunsStayHealthyWhenRunAgain) {
  for (const Recorded& recorded : recorded_) {
    const Programs same = [&](const Recording&, Random&) { return recorded.program; };
    for (std::uint32_t seed = 0; seed < 5; ++seed) {
      Random random(seed);
      const Trial trial = make_healthy(same, GetParam().form, random);
      const Report report = verify(read_files(trial.files));
      EXPECT_NE(report.verdict, Verdict::findings)
          << recorded.name << " seed " << seed << " (" << trial.words << ") " << text_of(report);
      if (report.verdict == Verdict::findings) keep(trial.files);
    }
  }
}

TEST_P(FromDisk, EveryFaultIsFound) {
  int judged = 0;
  for (int f = 0; f < kFaults; ++f) {
    const auto fault = static_cast<Fault>(f);
    for_each_seed(kSeedsPerRecording, [&](std::uint32_t seed) {
      Random random(seed * 1000 + static_cast<std::uint32_t>(f));
      const auto trial = make_trial(fault, any_of(recorded_), GetParam().form, random);
      if (!trial || trial->overwritten) return;
      ++judged;
      const Report report = verify(read_files(trial->files));
      const Judgement judgement = judge(report, trial->expected);
      if (judgement.complaint.empty()) return;
      keep(trial->files);
      ADD_FAILURE() << to_string(fault) << " seed " << seed << " (" << trial->words << ")\n  "
                    << judgement.complaint << "; culprit "
                    << text_of(trial->expected.culprits.value_or(std::vector<int>{})) << "\n  got "
                    << text_of(report);
    });
  }
  EXPECT_GT(judged, kSeedsPerRecording);
}

INSTANTIATE_TEST_SUITE_P(Corpora, FromDisk,
                         testing::Values(Corpus{"native", recorded_traces, Form::traces},
                                         Corpus{"fr", recorded_dumps, Form::dumps},
                                         Corpus{"mpi", recorded_mpi, Form::traces}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace lockstep::verify::injection
