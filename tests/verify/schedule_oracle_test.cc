// verify() against all schedules of small programs: a deadlock in every schedule is proven, one in
// some schedule is said to be possible (or the bound is said to be met), and where there is none
// nothing is said.
#include "tests/verify/schedule_oracle.h"

#include <random>

#include <gtest/gtest.h>

#include "tests/support/sanitized.h"
#include "tests/verify/program.h"
#include "tests/verify/words.h"
#include "verify/verify.h"

namespace lockstep::verify {
namespace {

std::string show_words(const Words& words, bool mpi) {
  std::string out = mpi ? "mpi: " : "c10d: ";
  for (const std::string& word : words) out += "\"" + word + "\" ";
  return out;
}

// Requests that are never waited for may be beside the question, but keep nobody waiting.
bool says_with(const Report& report, Certainty certainty) {
  return std::any_of(report.findings.begin(), report.findings.end(), [&](const Finding& f) {
    return f.certainty == certainty && f.rule != RuleId::never_waited;
  });
}

// What all schedules come to. Elsewhere than in MPI a send waits for its receive.
Ends ends_of(const Words& words, bool mpi) {
  Ends ends = explore_all(words, /*buffered=*/false);
  if (mpi) {
    const Ends buffered = explore_all(words, /*buffered=*/true);
    ends.some_hang |= buffered.some_hang;
    ends.some_end |= buffered.some_end;
  }
  return ends;
}

// How many programs of each kind a test saw: one that saw none of a kind shows nothing of it.
struct Seen {
  int always = 0, sometimes = 0, never = 0, bounded = 0;
};

void compare_words(const Words& words, bool mpi, Seen& seen) {
  const Ends ends = ends_of(words, mpi);
  ++(!ends.some_hang ? seen.never : ends.some_end ? seen.sometimes : seen.always);
  std::vector<std::string> programs;
  for (std::size_t r = 0; r < words.size(); ++r) {
    programs.push_back(
        word_as_program(words[r], static_cast<int>(r), static_cast<int>(words.size()), mpi));
  }
  const Report report = verify(program(programs, /*timed=*/false));
  EXPECT_EQ(proves_stuck(report), ends.some_hang && !ends.some_end)
      << show_words(words, mpi) << "\n"
      << summary(report);
  if (ends.some_hang) {
    const bool said =
        says_with(report, Certainty::possible) || says_with(report, Certainty::proven) ||
        says_with(report, Certainty::observed) || report.verdict == Verdict::inconclusive;
    seen.bounded += report.verdict == Verdict::inconclusive;
    EXPECT_TRUE(said) << show_words(words, mpi) << "\n" << summary(report);
  } else {
    EXPECT_FALSE(says_with(report, Certainty::possible)) << show_words(words, mpi) << "\n"
                                                         << summary(report);
  }
}

void compare_both(const Words& words, Seen& seen) {
  compare_words(words, false, seen);
  compare_words(words, true, seen);
}

void expect_all_kinds(const Seen& seen) {
  constexpr int kEnough = kSanitized ? 50 : 100;
  EXPECT_GT(seen.always, kEnough);
  EXPECT_GT(seen.sometimes, kEnough);
  EXPECT_GT(seen.never, kEnough);
  EXPECT_EQ(seen.bounded, 0) << "programs this small are within the bound";
}

TEST(ScheduleOracle, AllProgramsOfTwoRanks) {
  Seen seen;
  const auto all = words_over("sr*A", 3);
  for (const std::string& x : all) {
    for (const std::string& y : all) {
      compare_both({x, y}, seen);
      if (::testing::Test::HasFailure()) return;
    }
  }
  expect_all_kinds(seen);
}

TEST(ScheduleOracle, AllProgramsOfThreeRanksThatSendToOne) {
  Seen seen;
  const auto receiver = words_over("rR*?", kSanitized ? 2 : 3);
  const auto second = words_over("SAt", 2);  // rank 1's previous one is rank 0
  const auto third = words_over("sAt", 2);   // so is rank 2's next one
  for (const std::string& x : receiver) {
    for (const std::string& y : second) {
      for (const std::string& z : third) {
        compare_both({x, y, z}, seen);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
  expect_all_kinds(seen);
}

// Programs of three ranks with up to four letters each.
class Sampler {
 public:
  explicit Sampler(unsigned seed) : random_(seed) {}
  Words words() {
    const std::string shared = "AaasSSiItrRj**?++www";
    return {word(shared + "Bb"), word(shared + "Bb"), word(shared)};
  }
  std::mt19937& random() { return random_; }

 private:
  std::string word(const std::string& letters) {
    std::string out;
    const std::size_t length = random_() % 5;
    while (out.size() < length) out += letters[random_() % letters.size()];
    return out;
  }

  std::mt19937 random_;
};

constexpr unsigned kSeed = 20240611;
constexpr int kSamples = kSanitized ? 3000 : 12000;

TEST(ScheduleOracle, SampledProgramsOfThreeRanks) {
  Sampler sampler(kSeed);
  Seen seen;
  for (int i = 0; i < kSamples; ++i) {
    compare_both(sampler.words(), seen);
    if (::testing::Test::HasFailure()) FAIL() << "seed " << kSeed << ", sample " << i;
  }
  expect_all_kinds(seen);
}

// A run shows one schedule only, so that less can be said: but a hang is never passed over, a proof
// always holds, and a program that always ends is never accused.
void compare_recorded(const Words& words, bool mpi, std::mt19937& random, Seen& seen) {
  const Ends ends = ends_of(words, mpi);
  ++(!ends.some_hang ? seen.never : ends.some_end ? seen.sometimes : seen.always);
  const RecordedRun recorded = run_once(words, mpi && random() % 2 == 0, mpi, random);
  const Report report = verify(program(recorded.programs));
  const bool said = says_with(report, Certainty::possible) ||
                    says_with(report, Certainty::proven) || says_with(report, Certainty::observed);
  const auto context = [&] {
    std::string out = show_words(words, mpi) + (recorded.hung ? "hung" : "ended") + "\n";
    for (const std::string& p : recorded.programs) out += p + "\n";
    return out + summary(report);
  };
  EXPECT_TRUE(!recorded.hung || said) << context();
  EXPECT_FALSE(proves_stuck(report) && ends.some_end) << context();
  EXPECT_FALSE(!ends.some_hang && says_with(report, Certainty::possible)) << context();
}

TEST(ScheduleOracle, RecordedRunsOfSampledPrograms) {
  Sampler sampler(kSeed + 1);
  Seen seen;
  for (int i = 0; i < kSamples / 2; ++i) {
    const Words words = sampler.words();
    compare_recorded(words, false, sampler.random(), seen);
    compare_recorded(words, true, sampler.random(), seen);
    if (::testing::Test::HasFailure()) FAIL() << "seed " << kSeed + 1 << ", sample " << i;
  }
  expect_all_kinds(seen);
}

}  // namespace
}  // namespace lockstep::verify
