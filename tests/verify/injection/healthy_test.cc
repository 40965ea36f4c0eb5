// Healthy runs of every shape of program raise no alarm, however they were recorded, and whatever
// part of the recording was lost.
#include <sstream>

#include <gtest/gtest.h>

#include "tests/support/trace_text.h"
#include "tests/verify/injection/healthy_jobs.h"
#include "tests/verify/injection/judging.h"

namespace lockstep::verify::injection {
namespace {

constexpr int kSeeds = 25;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

std::string text_of_lines(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) out += line + "\n";
  return out;
}

bool is_event(const std::string& line) { return line.starts_with(R"({"ev")"); }

// As a bounded recorder would have it: the oldest events are gone.
std::string without_oldest(const std::string& text, int count) {
  std::vector<std::string> lines = lines_of(text);
  int left = count;
  std::erase_if(lines, [&](const std::string& line) { return is_event(line) && left-- > 0; });
  const std::string none = R"("dropped":0)";
  lines[0].replace(lines[0].find(none), none.size(), R"("dropped":)" + std::to_string(count));
  return text_of_lines(lines);
}

// One event's line damaged, half of it lost or overwritten.
std::string with_damage(const std::string& text, Random& random) {
  std::vector<std::string> lines = lines_of(text);
  const auto at = static_cast<std::size_t>(pick(random, 3, static_cast<int>(lines.size()) - 2));
  if (chance(random, 0.5)) {
    lines[at].resize(lines[at].size() / 2);
  } else {
    lines[at] = "\x01\xFF garbage";
  }
  return text_of_lines(lines);
}

class HealthyJob : public testing::TestWithParam<Shape> {
 protected:
  using Judge = std::function<void(const Job&, const Recording&, Behaviour, Random&)>;

  void each(const Judge& judge) {
    for_each_seed(kSeeds, [&](std::uint32_t seed) {
      Random random(seed + 77);
      const Job job = healthy_job(GetParam(), random);
      const Recording recording = any_recording(random);
      const Behaviour behaviour = any_behaviour(random);
      SCOPED_TRACE("seed " + std::to_string(seed) + " (" + describe(job, recording, behaviour) +
                   ")");
      judge(job, recording, behaviour, random);
    });
  }

  static void expect(Verdict verdict, const std::vector<std::string>& traces,
                     const VerifyOptions& options = {}) {
    const Report report = verify(run_from_text(traces), options);
    EXPECT_EQ(report.verdict, verdict) << text_of(report);
    if (report.verdict != verdict) keep(trace_files(traces));
  }
};

TEST_P(HealthyJob, IsClean) {
  each([](const Job& job, const Recording& recording, const Behaviour& behaviour, Random& random) {
    const Outcome outcome = execute(job, recording, behaviour, random);
    ASSERT_FALSE(outcome.hung);
    expect(Verdict::clean, outcome.traces);
  });
}

TEST_P(HealthyJob, IsCleanWhereTheBackendCannotTellCompletion) {
  each([](const Job& job, const Recording& recording, Behaviour behaviour, Random& random) {
    behaviour.records_completion = false;
    expect(Verdict::clean, execute(job, recording, behaviour, random).traces);
  });
}

TEST_P(HealthyJob, WithoutOneRanksTraceIsInconclusive) {
  each([](const Job& job, const Recording& recording, const Behaviour& behaviour, Random& random) {
    auto traces = execute(job, recording, behaviour, random).traces;
    traces.erase(traces.begin() + pick(random, 0, job.world() - 1));
    expect(Verdict::inconclusive, traces);
  });
}

TEST_P(HealthyJob, WithADamagedLineIsInconclusive) {
  each([](const Job& job, const Recording& recording, const Behaviour& behaviour, Random& random) {
    auto traces = execute(job, recording, behaviour, random).traces;
    auto& damaged = traces[static_cast<std::size_t>(pick(random, 0, job.world() - 1))];
    damaged = with_damage(damaged, random);
    expect(Verdict::inconclusive, traces);
  });
}

TEST_P(HealthyJob, IsCleanWhereTheOldestEventsWereDropped) {
  each([](const Job& job, const Recording& recording, const Behaviour& behaviour, Random& random) {
    auto traces = execute(job, recording, behaviour, random).traces;
    const int most = static_cast<int>(lines_of(traces[0]).size()) / 2;
    for (std::string& trace : traces) trace = without_oldest(trace, pick(random, 1, most));
    expect(Verdict::clean, traces);
  });
}

// Ranks are at different places, and nobody has ended: not yet, or everything was ended at once.
TEST_P(HealthyJob, IsNotAccusedWhileItRuns) {
  each([](const Job& job, const Recording& recording, Behaviour behaviour, Random& random) {
    behaviour.stop_after = pick(random, 5, 400);
    const Outcome outcome = execute(job, recording, behaviour, random);
    expect(Verdict::clean, outcome.traces, {.live = true});
  });
}

TEST_P(HealthyJob, IsNotAccusedWhereEverythingWasEndedAtOnce) {
  each([](const Job& job, Recording recording, Behaviour behaviour, Random& random) {
    behaviour.stop_after = pick(random, 5, 400);
    recording.times = true;
    const Outcome outcome = execute(job, recording, behaviour, random);
    if (outcome.stopped) expect(Verdict::inconclusive, outcome.traces);
  });
}

INSTANTIATE_TEST_SUITE_P(Shapes, HealthyJob, testing::ValuesIn(kShapes));

}  // namespace
}  // namespace lockstep::verify::injection
