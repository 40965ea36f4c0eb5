// Programs by chance, one fault each, run by an executor of our own: is the fault found and nothing
// else? A failure prints its seed; INJECTION_SEED=<n> with --gtest_filter repeats that one, and
// INJECTION_DUMP=<folder> keeps its traces.
#include <gtest/gtest.h>

#include "support/trace_text.h"
#include "verify/injection/healthy_jobs.h"
#include "verify/injection/judging.h"

namespace lockstep::injection {
namespace {

constexpr int kSeedsPerFault = 40;

struct Case {
  Job job;
  Recording recording;
  Behaviour behaviour;
  std::optional<Expectation> expected;  // nothing: no program with a place for the fault was found
};

Case any_case(Fault fault, Random& random) {
  Case c;
  c.behaviour = any_behaviour(random);
  c.recording = any_recording(random);
  for (int attempt = 0; attempt < 20 && !c.expected; ++attempt) {
    c.job = healthy_job(any_shape(random), random);
    c.expected = inject(fault, c.job, c.recording, c.behaviour, random);
  }
  return c;
}

class Injected : public testing::TestWithParam<int> {};

TEST_P(Injected, IsFoundAndNothingElse) {
  const auto fault = static_cast<Fault>(GetParam());
  int judged = 0;
  for_each_seed(kSeedsPerFault, [&](std::uint32_t seed) {
    Random random(seed * 1000 + static_cast<std::uint32_t>(fault));
    const Case c = any_case(fault, random);
    if (!c.expected) return;
    const Outcome outcome = execute(c.job, c.recording, c.behaviour, random);
    if (c.expected->only_if_hung && !outcome.hung) return;
    ++judged;
    const Report report = verify(run_from_text(outcome.traces));
    const std::string wrong = complaint(report, *c.expected);
    if (wrong.empty()) return;
    keep(outcome.traces);
    ADD_FAILURE() << to_string(fault) << " seed " << seed << " ("
                  << describe(c.job, c.recording, c.behaviour) << ")\n  " << wrong << "; culprit "
                  << text_of(c.expected->culprits.value_or(std::vector<int>{})) << "\n  got "
                  << text_of(report);
  });
  EXPECT_GT(judged, 0);
}

// The same where the trace of a rank that has nothing to do with it is not there.
TEST_P(Injected, IsFoundWithoutABystandersTrace) {
  const auto fault = static_cast<Fault>(GetParam());
  for_each_seed(kSeedsPerFault / 4, [&](std::uint32_t seed) {
    Random random(seed * 1000 + 500 + static_cast<std::uint32_t>(fault));
    Case c = any_case(fault, random);
    if (!c.expected || !c.expected->culprits || c.job.world() < 5) return;
    // In small groups, and between two neighbours, the rank may be the only witness.
    const std::string& shape = c.job.shape;
    if (shape == "dp x tp" || shape == "pipeline" || shape == "ring") return;
    Outcome outcome = execute(c.job, c.recording, c.behaviour, random);
    if (c.expected->only_if_hung && !outcome.hung) return;
    const int gone =
        (c.expected->culprits->at(0) + pick(random, 1, c.job.world() - 1)) % c.job.world();
    outcome.traces.erase(outcome.traces.begin() + gone);
    c.expected->culprits_needed = false;
    c.expected->certainty.clear();
    c.expected->steps.clear();
    c.expected->vague.insert("deadlock");
    const Report report = verify(run_from_text(outcome.traces));
    const std::string wrong = complaint(report, *c.expected);
    if (wrong.empty()) return;
    keep(outcome.traces);
    ADD_FAILURE() << to_string(fault) << " seed " << seed << " ("
                  << describe(c.job, c.recording, c.behaviour) << ", without rank " << gone
                  << ")\n  " << wrong << "; culprit " << text_of(*c.expected->culprits)
                  << "\n  got " << text_of(report);
  });
}

INSTANTIATE_TEST_SUITE_P(Faults, Injected, testing::Range(0, kFaults), [](const auto& param) {
  return std::string(to_string(static_cast<Fault>(param.param)));
});

}  // namespace
}  // namespace lockstep::injection
