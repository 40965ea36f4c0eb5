// The same faults seen through Flight Recorder dumps: pickles written here and read back by the
// reader. A failure prints its seed, as in injection_test.cc.

#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"
#include "tests/verify/injection/judging.h"
#include "tests/verify/injection/trial.h"
#include "trace/load.h"

namespace lockstep::verify::injection {
namespace {

constexpr int kSeedsPerSnapshot = 30;

// Per cent of the cases that may be wrong: what docs/accuracy.md shows today, with room for chance.
// Lower one when the verifier learns more; raising one needs a reason.
constexpr int allowed(Fault fault) {
  switch (fault) {
    case Fault::skip_from_a_step_on:
      return 25;
    case Fault::p2p_unmatched:
      // A short ring forgot most of a channel: a message without its other side is lined up with a
      // neighbour that has completed, and may as well only have been looked at earlier.
      return 20;
    case Fault::skip_call:
    case Fault::modality_branch:
    case Fault::swapped_calls:
    case Fault::wrong_size:
    case Fault::p2p_size:
    case Fault::device_stall:
      return 15;
    default:
      return 7;
  }
}

class InDumps : public testing::TestWithParam<int> {};

TEST_P(InDumps, IsMostlyFound) {
  const auto fault = static_cast<Fault>(GetParam());
  int judged = 0;
  int wrong = 0;
  std::string words;
  for_each_seed(kSeedsPerSnapshot, [&](std::uint32_t seed) {
    Random random(seed * 1000 + static_cast<std::uint32_t>(fault));
    const auto trial = make_trial(fault, generated_program, Form::dumps, random);
    if (!trial || trial->overwritten) return;
    ++judged;
    const Report report = verify(read_files(trial->files));
    const Judgement judgement = judge(report, trial->expected);
    if (judgement.complaint.empty()) return;
    ++wrong;
    keep(trial->files);
    words += "\nseed " + std::to_string(seed) + " (" + trial->words + ")\n  " +
             judgement.complaint + "\n  got " + text_of(report);
  });
  // What a dump does not record has no trials.
  EXPECT_LE(wrong * 100, allowed(fault) * judged)
      << to_string(fault) << ": " << wrong << " of " << judged << words;
}

INSTANTIATE_TEST_SUITE_P(Faults, InDumps, testing::Range(0, kFaults), [](const auto& param) {
  return std::string(to_string(static_cast<Fault>(param.param)));
});

// In a job that had hung, a message whose peer's ring lost the start of the channel was not just
// read too early.
TEST(HungDumps, NameTheRankThatLeftOutAMessage) {
  for_each_seed(200, [&](std::uint32_t seed) {
    Random random(seed * 1000 + static_cast<std::uint32_t>(Fault::p2p_unmatched));
    const auto trial = make_trial(Fault::p2p_unmatched, generated_program, Form::dumps, random);
    if (!trial || trial->overwritten) return;
    const Report report = verify(read_files(trial->files), {.hung = true});
    const Judgement judgement = judge(report, trial->expected);
    EXPECT_EQ(judgement.complaint, "")
        << "seed " << seed << " (" << trial->words << ") " << text_of(report);
  });
}

// Rings that kept everything: completions seen late by some, groups of all kinds.
TEST(HealthyDumps, RaiseNoAlarmWhereTheRingKeptTheMessages) {
  int alarms = 0;
  for_each_seed(150, [&](std::uint32_t seed) {
    Random random(seed + 31);
    const Trial trial = make_healthy(generated_program, Form::dumps, random);
    // A ring that forgot one side of a message does not tell whether it was posted.
    const bool messages = trial.words.starts_with("pipeline") || trial.words.starts_with("ring");
    if (messages && !trial.words.ends_with("ring 2000")) return;
    const Report report = verify(read_files(trial.files));
    if (report.verdict != Verdict::findings) return;
    ++alarms;
    keep(trial.files);
    ADD_FAILURE() << "seed " << seed << " (" << trial.words << ") " << text_of(report);
  });
  EXPECT_EQ(alarms, 0);
}

TEST(HealthyDumps, AreReadFromAFolderAsFromMemory) {
  for_each_seed(8, [&](std::uint32_t seed) {
    Random random(seed + 77);
    const auto trial = make_trial(Fault::wrong_dtype, generated_program, Form::dumps, random);
    if (!trial) return;
    const TempDir folder;
    for (const auto& [name, bytes] : trial->files) folder.write(name, bytes);
    const auto run = trace::load_run({folder.path()});
    ASSERT_TRUE(run) << run.error().str();
    EXPECT_EQ(text_of(verify(*run)), text_of(verify(read_files(trial->files))));
  });
}

}  // namespace
}  // namespace lockstep::verify::injection
