// Programs by chance, one fault each, run by an executor of our own: is the fault found and nothing
// else? A failure prints its seed; INJECTION_SEED=<n> with --gtest_filter repeats that one, and
// INJECTION_DUMP=<folder> keeps its traces.
#include <gtest/gtest.h>

#include "tests/support/sanitized.h"
#include "tests/verify/injection/judging.h"
#include "tests/verify/injection/trial.h"

namespace lockstep::verify::injection {
namespace {

constexpr int kSeedsPerInjection = kSanitized ? 8 : 40;

class Injected : public testing::TestWithParam<int> {};

void expect_found(Fault fault, std::uint32_t seed, const Trial& trial) {
  const Report report = verify(read_files(trial.files));
  const Judgement judgement = judge(report, trial.expected);
  if (judgement.complaint.empty()) return;
  keep(trial.files);
  ADD_FAILURE() << to_string(fault) << " seed " << seed << " (" << trial.words << ")\n  "
                << judgement.complaint << "; culprit "
                << text_of(trial.expected.culprits.value_or(std::vector<int>{})) << "\n  got "
                << text_of(report);
}

TEST_P(Injected, IsFoundAndNothingElse) {
  const auto fault = static_cast<Fault>(GetParam());
  if (fault == Fault::device_stall) return;  // traces of calls show nothing of devices
  int judged = 0;
  for_each_seed(kSeedsPerInjection, [&](std::uint32_t seed) {
    Random random(seed * 1000 + static_cast<std::uint32_t>(fault));
    const auto trial = make_trial(fault, generated_program, Form::traces, random);
    if (!trial) return;
    ++judged;
    expect_found(fault, seed, *trial);
  });
  EXPECT_GT(judged, 0);
}

// The same where the trace of a rank that has nothing to do with it is not there.
TEST_P(Injected, IsFoundWithoutABystandersTrace) {
  const auto fault = static_cast<Fault>(GetParam());
  for_each_seed(kSeedsPerInjection / 4, [&](std::uint32_t seed) {
    Random random(seed * 1000 + 500 + static_cast<std::uint32_t>(fault));
    auto trial = make_trial(fault, generated_program, Form::traces, random);
    if (!trial || !trial->expected.culprits || trial->files.size() < 5) return;
    // In small groups, and between two neighbours, the rank may be the only witness.
    for (const char* const shape : {"dp x tp", "pipeline", "ring"}) {
      if (trial->words.starts_with(shape)) return;
    }
    const int world = static_cast<int>(trial->files.size());
    const int gone = (trial->expected.culprits->at(0) + pick(random, 1, world - 1)) % world;
    trial->files.erase("rank_" + std::to_string(gone) + ".trace.jsonl");
    trial->words += ", without rank " + std::to_string(gone);
    trial->expected.culprits_needed = false;
    trial->expected.certainty.clear();
    trial->expected.steps.clear();
    trial->expected.vague.insert("deadlock");
    expect_found(fault, seed, *trial);
  });
}

INSTANTIATE_TEST_SUITE_P(Faults, Injected, testing::Range(0, kFaults), [](const auto& param) {
  return std::string(to_string(static_cast<Fault>(param.param)));
});

}  // namespace
}  // namespace lockstep::verify::injection
