// Are gradients reduced as they should be? A sum instead of a mean, a rank left out, a tensor in
// the place of another, gradients that nobody synchronised; and what looks like these and is not.
#include <algorithm>
#include <bit>
#include <random>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/trace_lines.h"
#include "tests/support/trace_text.h"
#include "tests/verify/numbers/tiny_training.h"
#include "tests/verify/program.h"
#include "verify/verify.h"

namespace lockstep::verify {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Numbers, AHealthyTrainingIsClean) {
  TinyTraining t = training();
  for (int i = 0; i < 5; ++i) t.good_step();
  EXPECT_EQ(summary(verify(t.run())), "verdict clean");
}

// Property: no order of summation, world size or recorded detail is a finding.
TEST(Numbers, AnotherOrderOfSummationIsNoFinding) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937_64 random(seed);
    const auto world = static_cast<std::uint32_t>(2 + seed % 15);
    TinyTraining t(world, {1, 2, 3, 1000, 17}, seed);
    t.calls = seed % 2 == 0;
    t.detail = static_cast<TinyTraining::Detail>(seed % 3);
    for (int step = 0; step < 3; ++step) {
      t.backward();
      t.record_local();
      for (std::size_t i = 0; i < t.tensors(); ++i) {
        std::vector<std::uint32_t> order = all_of(t);
        std::shuffle(order.begin(), order.end(), random);
        t.average(i, order, static_cast<float>(world));
      }
      t.finish();
      t.end_step();
    }
    EXPECT_EQ(summary(verify(t.run())), "verdict clean");
  }
}

TEST(ReductionWrong, OtherDivisorsAreNamed) {
  struct Case {
    float divisor;
    const char* words;
  };
  for (const Case& c :
       {Case{1, "are the sum over the 4 ranks, not their mean"}, Case{3, "divided by 3"},
        Case{5, "divided by 5"}, Case{16, "divided by the number of ranks twice"}}) {
    TinyTraining t = training();
    const Report report = with_fault(t, [&](TinyTraining& x) {
      x.backward();
      x.record_local();
      for (std::size_t i = 0; i < x.tensors(); ++i) x.average(i, all_of(x), c.divisor);
      x.finish();
    });
    EXPECT_EQ(summary(report), "reduction-wrong error proven step=2\nverdict findings");
    EXPECT_THAT(report.findings[0].message, HasSubstr(c.words));
    EXPECT_THAT(report.findings[0].what, ElementsAre("p0", "p1", "p2", "p3"));
  }
}

// In 16 bits the divisor of each tensor comes out a little different; it is one fault.
TEST(ReductionWrong, ASumInBfloat16IsOneFinding) {
  std::mt19937_64 random(3);
  std::normal_distribution<double> any;
  std::vector<std::string> texts(2);
  for (int r : {0, 1}) texts[static_cast<std::size_t>(r)] = header_line(r, 2);
  const auto line = [](const std::string& name, const std::string& when, double norm,
                       const std::vector<double>& sketch) {
    return json_line({{"ev", "state"},
                      {"n", 1},
                      {"name", name},
                      {"kind", "grad"},
                      {"when", when},
                      {"dtype", "bfloat16"},
                      {"shape", {64}},
                      {"norm", norm},
                      {"sketch", sketch}});
  };
  for (int t = 0; t < 20; ++t) {
    const std::string name = fmt::format("p{}", t);
    std::vector<double> own[2], sum(8);
    for (std::uint32_t r = 0; r < 2; ++r) {
      for (std::size_t j = 0; j < 8; ++j) own[r].push_back(any(random));
      for (std::size_t j = 0; j < 8; ++j) sum[j] += own[r][j];
      texts[r] += line(name, "local", 2.8, own[r]);
    }
    for (double& x : sum) x *= 1 + 0.003 * any(random);  // what the rounding to 8 bits does
    for (std::string& text : texts) text += line(name, "synced", 4, sum);
  }
  const Report report = verify(run_from_text(texts));
  ASSERT_EQ(report.findings.size(), 1);
  EXPECT_THAT(report.findings[0].message, HasSubstr("are the sum over the 2 ranks"));
}

TEST(ReductionWrong, ASumThatTheProgramDeclaresIsNone) {
  for (const std::string tag : {"average=sum", "manual.grad average=sum"}) {
    TinyTraining t = training();
    t.calls = true;
    t.tag = tag;
    t.backward();
    t.record_local();
    for (std::size_t i = 0; i < t.tensors(); ++i) t.average(i, all_of(t), 1);
    t.record_synced();
    EXPECT_EQ(summary(verify(t.run())), "verdict clean");
  }
}

TEST(ReductionWrong, ARankLeftOutIsNamed) {
  for (std::uint32_t left = 0; left < kWorld; ++left) {
    for (const float divisor : {3.0F, 4.0F}) {
      TinyTraining t = training();
      const Report report = with_fault(t, [&](TinyTraining& x) {
        x.backward();
        x.record_local();
        for (std::size_t i = 0; i < x.tensors(); ++i) {
          if (i == 1) std::fill(x.grad(left, i).begin(), x.grad(left, i).end(), 0.0F);
          x.average(i, all_of(x), i == 1 ? divisor : 4);
        }
        x.finish();
      });
      EXPECT_EQ(
          summary(report),
          fmt::format("reduction-wrong error proven culprits={} step=2\nverdict findings", left));
      EXPECT_THAT(report.findings[0].what, ElementsAre("p1"));
      EXPECT_THAT(report.findings[0].message, HasSubstr(fmt::format("leave out rank {}", left)));
    }
  }
}

TEST(ReductionWrong, AnotherTensorInARanksPlaceIsIdentified) {
  TinyTraining t = training();
  const Report report = with_fault(t, [&](TinyTraining& x) {
    x.backward();
    x.record_local();
    std::swap(x.grad(2, 0), x.grad(2, 2));  // of one size
    for (std::size_t i = 0; i < x.tensors(); ++i) x.average(i, all_of(x), 4);
    std::swap(x.grad(2, 0), x.grad(2, 2));
    x.finish();
  });
  ASSERT_FALSE(report.findings.empty());
  const Finding& f = report.findings[0];
  EXPECT_EQ(f.rule, RuleId::reduction_wrong);
  EXPECT_THAT(f.culprits, ElementsAre(trace::Rank(2)));
  EXPECT_EQ(f.step, 2);
  EXPECT_THAT(f.message, HasSubstr("its p2 was summed with the others'"));
}

TEST(ReductionWrong, AFlippedBitInTransferIsFound) {
  for (const unsigned bit : {20U, 24U, 27U, 30U}) {
    TinyTraining t = training();
    const Report report = with_fault(t, [&](TinyTraining& x) {
      x.backward();
      x.record_local();
      x.average_all();
      float& value = x.grad(3, 1)[17];
      value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) ^ (1U << bit));
      x.finish();
    });
    ASSERT_EQ(report.findings.size(), 1U) << bit;
    const Finding& f = report.findings[0];
    EXPECT_TRUE(f.rule == RuleId::reduction_wrong || f.rule == RuleId::grad_divergence) << bit;
    EXPECT_THAT(f.culprits, ElementsAre(trace::Rank(3)));
    EXPECT_THAT(f.what, ElementsAre("p1"));
    EXPECT_EQ(f.step, 2);
    EXPECT_FALSE(f.consequences.empty()) << "the parameters follow";
  }
}

TEST(ReductionWrong, NormsAloneShowWhatIsTooLarge) {
  TinyTraining t = training();
  t.detail = TinyTraining::Detail::norm;
  const Report report = with_fault(t, [&](TinyTraining& x) {
    x.backward();
    x.record_local();
    for (std::size_t i = 0; i < x.tensors(); ++i) x.average(i, all_of(x), 1);
    x.finish();
  });
  EXPECT_THAT(summary(report), HasSubstr("reduction-wrong error proven step=2"));
}

TEST(ReductionWrong, HashesAloneCannotTell) {
  TinyTraining t = training();
  t.detail = TinyTraining::Detail::hash;
  const Report report = with_fault(t, [&](TinyTraining& x) {
    x.backward();
    x.record_local();
    for (std::size_t i = 0; i < x.tensors(); ++i) x.average(i, all_of(x), 1);
    x.finish();
  });
  EXPECT_EQ(summary(report), "verdict clean");
}

TEST(ReductionWrong, WithoutARanksTraceItIsUnknown) {
  TinyTraining t = training(3);
  t.calls = true;
  t.good_step();
  auto run = t.run();
  run.ranks.pop_back();
  const Report report = verify(run);
  EXPECT_EQ(report.verdict, Verdict::inconclusive);
  EXPECT_THAT(report.unknown, Contains(HasSubstr("4 synchronised gradients: not compared")));
}

// Ranks 0 and 1 have images, 2 and 3 do not; the image path's gradient is divided by `divisor`.
Report half_without_images(float divisor, const std::string& tag, bool modalities = true) {
  TinyTraining t = training();
  t.calls = true;
  t.tag = tag;
  for (std::uint32_t r = 0; modalities && r < kWorld; ++r) {
    t.line(r, R"({"ev":"modality","n":0,"has":[)" + std::string(r < 2 ? R"("image",)" : "") +
                  R"("text"]})");
  }
  t.backward();
  for (const std::uint32_t r : {2U, 3U}) std::fill(t.grad(r, 1).begin(), t.grad(r, 1).end(), 0.0F);
  t.record_local();
  for (std::size_t i = 0; i < t.tensors(); ++i) t.average(i, all_of(t), i == 1 ? divisor : 4);
  t.record_synced();
  return verify(t.run());
}

TEST(DummyDilution, AMeanOverRanksThatHadNoGradient) {
  const Report undeclared = half_without_images(4, "");
  EXPECT_EQ(summary(undeclared), "dummy-dilution warning proven step=0\nverdict findings");
  EXPECT_THAT(undeclared.findings[0].message, HasSubstr("50 %"));
  EXPECT_EQ(summary(half_without_images(4, "average=contributors")),
            "dummy-dilution error proven step=0\nverdict findings");
}

TEST(DummyDilution, DeclaredOrOverTheContributorsIsNone) {
  EXPECT_EQ(summary(half_without_images(4, "average=world")), "verdict clean");
  EXPECT_EQ(summary(half_without_images(2, "")), "verdict clean");
  EXPECT_EQ(summary(half_without_images(2, "average=contributors")), "verdict clean");
  EXPECT_EQ(summary(half_without_images(4, "", false)), "verdict clean") << "zeros by chance";
}

TEST(UnsynchronisedStep, GradientsThatStayedTheRanksOwn) {
  TinyTraining t = training();
  t.detail = TinyTraining::Detail::hash;
  const Report report = with_fault(t, [](TinyTraining& x) {
    x.backward();
    x.record_local();
    x.finish();
  });
  EXPECT_EQ(summary(report), "unsynchronised-step error proven step=2\nverdict findings");
  EXPECT_THAT(report.findings[0].what, ElementsAre("p0", "p1", "p2", "p3"));
}

TEST(UnsynchronisedStep, SeenInTheCallsWhereOnlyParametersWereRecorded) {
  TinyTraining t = training();
  t.calls = true;
  const auto step = [](TinyTraining& x, bool synchronise) {
    x.backward();
    if (synchronise) x.average_all();
    x.update_all();
    x.record_params();
    x.end_step();
  };
  for (int i = 0; i < 3; ++i) step(t, true);
  step(t, false);
  step(t, true);
  EXPECT_EQ(summary(verify(t.run())), "unsynchronised-step error proven step=3\nverdict findings");
}

TEST(UnsynchronisedStep, AStepWithoutUpdateIsNone) {
  TinyTraining t = training();
  t.calls = true;
  t.good_step();
  t.record_params();  // accumulation: no synchronisation, no update
  t.end_step();
  t.good_step();
  EXPECT_EQ(summary(verify(t.run())), "verdict clean");
}

}  // namespace
}  // namespace lockstep::verify
