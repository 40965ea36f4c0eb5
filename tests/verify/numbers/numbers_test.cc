// Do the ranks agree on their numbers? One fault at a time in a small training, and what looks like
// one and is none.
#include <algorithm>
#include <bit>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/trace_text.h"
#include "tests/verify/numbers/tiny_training.h"
#include "tests/verify/program.h"
#include "verify/verify.h"

namespace lockstep::verify {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr std::uint32_t kWorld = 4;

TinyTraining training(std::uint32_t world = kWorld, std::uint64_t seed = 1) {
  return TinyTraining(world, {64, 256, 64, 1}, seed);
}

std::vector<std::uint32_t> all_of(const TinyTraining& t) {
  std::vector<std::uint32_t> out(t.world());
  std::iota(out.begin(), out.end(), 0U);
  return out;
}

// Good steps, then one that `fault` makes, then good ones.
template <class Fault>
Report with_fault(TinyTraining& t, Fault fault, int good = 2) {
  for (int i = 0; i < good; ++i) t.good_step();
  fault(t);
  t.end_step();
  for (int i = 0; i < good; ++i) t.good_step();
  return verify(t.run());
}

// A clean report whose one finding is a note of that rule.
bool is_note(const Report& report, RuleId rule) {
  return report.verdict == Verdict::clean && report.findings.size() == 1 &&
         report.findings[0].rule == rule && report.findings[0].severity == Severity::note;
}

TEST(Numbers, AHealthyTrainingIsClean) {
  TinyTraining t = training();
  for (int i = 0; i < 5; ++i) t.good_step();
  EXPECT_EQ(summary(verify(t.run())), "verdict clean");
}

// Property: no order of summation, world size or recorded detail is a finding.
TEST(Numbers, AnotherOrderOfSummationIsNoFinding) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
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
  for (std::uint32_t r = 0; r < 2; ++r) {
    texts[r] = R"({"header":1,"rank":)" + std::to_string(r) + R"(,"world_size":2})" + "\n";
  }
  const auto line = [](const std::string& name, const std::string& when, double norm,
                       const std::vector<double>& sketch) {
    std::string values;
    for (const double x : sketch) values += (values.empty() ? "" : ",") + std::to_string(x);
    return R"({"ev":"state","n":1,"name":")" + name + R"(","kind":"grad","when":")" + when +
           R"(","dtype":"bfloat16","shape":[64],"norm":)" + std::to_string(norm) +
           R"(,"sketch":[)" + values + "]}\n";
  };
  for (int t = 0; t < 20; ++t) {
    const std::string name = "p" + std::to_string(t);
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
      EXPECT_EQ(summary(report), "reduction-wrong error proven culprits=" + std::to_string(left) +
                                     " step=2\nverdict findings");
      EXPECT_THAT(report.findings[0].what, ElementsAre("p1"));
      EXPECT_THAT(report.findings[0].message, HasSubstr("leave out rank " + std::to_string(left)));
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
  EXPECT_THAT(report.unknown,
              testing::Contains(HasSubstr("4 synchronised gradients: not compared")));
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

TEST(ParamDivergence, BeforeTheFirstUpdateNoCallWasLeftOut) {
  const auto rank = [](int r) {
    const std::string n = std::to_string(r);
    const std::string param = R"(,"name":"w","kind":"param","hash":"0)" + n + "\"}\n";
    const std::string grad = R"(,"name":"w","kind":"grad","when":"synced","hash":"7"})";
    std::string text = R"({"header":1,"rank":)" + n + R"(,"world_size":2})" + "\n";
    text += R"({"ev":"state","n":0)" + param;
    for (const char* const step : {"1", "2"}) {
      text += std::string(R"({"ev":"state","n":)") + step + grad + "\n";
      text += std::string(R"({"ev":"state","n":)") + step + param;
    }
    return text + R"({"end":"clean"})";
  };
  const Report report = verify(run_from_text({rank(1), rank(0)}));
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].rule, RuleId::param_divergence) << summary(report);
  EXPECT_EQ(report.findings[0].step, 0);
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

TEST(ParamDivergence, NamesTheFirstStepTensorsRanksAndHowFarItSpreads) {
  TinyTraining t = training(5);
  for (int i = 0; i < 3; ++i) {
    t.record_params();
    t.end_step();
  }
  t.param(1, 2)[5] += 1;
  t.record_params();
  t.end_step();
  t.param(1, 0)[5] += 1;
  t.record_params();
  const Report report = verify(t.run());
  EXPECT_EQ(summary(report), "param-divergence error proven culprits=1 step=3\nverdict findings");
  const Finding& f = report.findings[0];
  EXPECT_THAT(f.what, ElementsAre("p2"));
  EXPECT_THAT(f.message, AllOf(HasSubstr("rank 1 against ranks 0, 2-4"),
                               HasSubstr("1 parameter of 4"), HasSubstr("2 of 4 in step 4")));
}

TEST(ParamDivergence, TwoRanksHaveNoMajority) {
  TinyTraining t = training(2);
  t.record_params();
  t.end_step();
  t.param(1, 2)[5] += 1;
  t.record_params();
  EXPECT_EQ(summary(verify(t.run())), "param-divergence error proven step=1\nverdict findings");
}

TEST(ParamDivergence, BeforeTheFirstSynchronisationItIsANote) {
  TinyTraining t = training();
  t.param(1, 0)[0] += 1;
  t.record_params();
  t.end_step();
  t.param(1, 0) = t.param(0, 0);
  t.record_params();
  EXPECT_TRUE(is_note(verify(t.run()), RuleId::param_divergence));
}

TEST(ParamDivergence, ParametersAveragedEveryFewStepsAreInOrder) {
  TinyTraining t = training();
  for (int round = 0; round < 3; ++round) {
    t.record_params();
    t.end_step();
    for (std::uint32_t r = 0; r < kWorld; ++r) t.param(r, 0)[0] += static_cast<float>(r + 1);
    t.record_params();
    t.end_step();
    for (std::uint32_t r = 0; r < kWorld; ++r) t.param(r, 0)[0] = 0;
  }
  t.record_params();
  EXPECT_THAT(summary(verify(t.run())), HasSubstr("verdict clean"));
}

TEST(ParamDivergence, OneLookBeforeTheFirstStepTellsNothing) {
  TinyTraining t = training();
  t.param(1, 0)[0] += 1;
  t.record_params();
  EXPECT_EQ(verify(t.run()).verdict, Verdict::inconclusive);
}

TEST(ParamDivergence, PartsOfShardedTensorsAreNotCompared) {
  const auto rank = [](int r) {
    return R"({"header":1,"rank":)" + std::to_string(r) + R"(,"world_size":2}
{"ev":"state","n":0,"name":"w","hash":"1","sharded":true}
{"ev":"state","n":1,"name":"w","hash":")" +
           std::to_string(5 + r) + R"(","sharded":true}
{"end":"clean"})";
  };
  EXPECT_EQ(summary(verify(run_from_text({rank(0), rank(1)}))), "verdict clean");
}

TEST(ParamDivergence, RanksOutsideOfTheGroupThatAveragesATensorAreNoReplicasOfIt) {
  const auto rank = [](int r) {
    std::string out = R"({"header":1,"rank":)" + std::to_string(r) + R"(,"world_size":3}
{"group":"world","ranks":[0,1,2]}
{"group":"images","ranks":[0,1]}
)";
    for (int n = 0; n < 3; ++n) {
      const std::string step = std::to_string(n);
      if (r < 2) {
        out += R"({"ev":"issue","id":)" + step +
               R"(,"g":"images","op":"all_reduce","in":[[8]],"what":["image.w"]})"
               "\n"
               R"({"ev":"complete","id":)" +
               step + "}\n";
      }
      out += R"({"ev":"state","n":)" + step + R"(,"name":"image.w","hash":")" +
             std::to_string(r < 2 ? n + 1 : 7) + "\"}\n";
    }
    return out + R"({"end":"clean"})";
  };
  EXPECT_EQ(summary(verify(run_from_text({rank(0), rank(1), rank(2)}))), "verdict clean");
}

TEST(GradDivergence, ParametersThatFollowHangBelow) {
  TinyTraining t = training();
  t.detail = TinyTraining::Detail::hash;
  const Report report = with_fault(t, [](TinyTraining& x) {
    x.backward();
    x.average_all();
    x.grad(2, 1)[3] *= 2;
    x.finish();
  });
  EXPECT_EQ(summary(report), "grad-divergence error proven culprits=2 step=2\nverdict findings");
  ASSERT_FALSE(report.findings[0].consequences.empty());
  EXPECT_EQ(report.findings[0].consequences[0].rule, RuleId::param_divergence);
}

TEST(RankLocalDecision, ARankThatSkipsItsUpdate) {
  TinyTraining t = training();
  const Report report = with_fault(t, [](TinyTraining& x) {
    x.backward();
    x.record_local();
    x.average_all();
    x.record_synced();
    for (const std::uint32_t r : {0U, 2U, 3U}) x.update(r);
    x.record_params();
  });
  EXPECT_EQ(summary(report),
            "rank-local-decision error proven culprits=1 step=2\nverdict findings");
  EXPECT_THAT(report.findings[0].why, HasSubstr("rank 1 skipped it"));
}

TEST(RankLocalDecision, ScalarsThatDiffer) {
  TinyTraining t = training();
  const Report report = with_fault(t, [](TinyTraining& x) {
    x.backward();
    x.record_local();
    x.average_all();
    x.record_synced();
    for (std::uint32_t r = 0; r < kWorld; ++r) {
      x.record_scalar(r, "lr", r == 3 ? 0.2 : 0.1);
      x.update(r, r == 3 ? 0.2F : 0.1F);
    }
    x.record_params();
  });
  EXPECT_EQ(summary(report),
            "rank-local-decision error proven culprits=3 step=2\nverdict findings");
  EXPECT_THAT(report.findings[0].what, ElementsAre("lr"));
}

// A clip factor is 1 wherever nothing is clipped, so that it agrees in most steps even where each
// rank clips by its own norm.
TEST(RankLocalDecision, AClipFactorThatDiffersInSomeStepsOnly) {
  TinyTraining t = training();
  for (int i = 0; i < 6; ++i) {
    for (std::uint32_t r = 0; r < kWorld; ++r) {
      t.record_scalar(r, "clip_factor", i % 2 == 1 && r == 3 ? 0.5 : 1);
    }
    t.good_step();
  }
  EXPECT_EQ(summary(verify(t.run())),
            "rank-local-decision error proven culprits=3 step=1\nverdict findings");
}

// Gradients are recorded as the optimizer gets them; each rank has clipped its own before.
TEST(RankLocalDecision, GradientsThatAreClippedBeforeTheyAreReduced) {
  TinyTraining t = training(2);
  const Report report = with_fault(t, [](TinyTraining& x) {
    x.backward();
    x.record_local();
    for (std::uint32_t r = 0; r < 2; ++r) {
      x.record_scalar(r, "clip.norm", 3 + r);
      for (std::size_t i = 0; i < x.tensors(); ++i) {
        for (float& g : x.grad(r, i)) g *= r == 0 ? 0.5F : 0.3F;
      }
    }
    x.average_all();
    x.finish();
  });
  EXPECT_EQ(summary(report), "rank-local-decision error proven step=2\nverdict findings");
  EXPECT_THAT(report.findings[0].what, ElementsAre("clip.norm"));
  EXPECT_THAT(report.findings[0].why, HasSubstr("before they were reduced"));
}

// A run of which no value is said to be the same on several ranks.
trace::Run undeclared(const TinyTraining& t) {
  trace::Run run = t.run();
  for (trace::RankTrace& rank : run.ranks) {
    for (trace::StateMark& mark : rank.states) mark.sharded = true;
  }
  return run;
}

TEST(UndeclaredReplicas, AreKnownByTheirEqualGradients) {
  TinyTraining t = training();
  for (int i = 0; i < 2; ++i) t.good_step();
  EXPECT_EQ(summary(verify(undeclared(t))), "verdict clean");
  t.backward();
  t.average_all();
  t.record_synced();
  for (std::uint32_t r = 0; r < kWorld; ++r) t.update(r, r == 3 ? 0.2F : 0.1F);
  t.record_params();
  EXPECT_EQ(summary(verify(undeclared(t))),
            "rank-local-decision error proven culprits=3 step=2\nverdict findings");
}

TEST(UndeclaredReplicas, PartsOfAModelAreNone) {
  TinyTraining t = training();
  for (int i = 0; i < 3; ++i) {
    t.backward();
    t.average(0, all_of(t), 4);  // a norm; everything else is each rank's own
    t.finish();
    t.end_step();
  }
  const Report report = verify(undeclared(t));
  EXPECT_EQ(report.verdict, Verdict::clean);
  EXPECT_THAT(report.unknown, ::testing::Contains(HasSubstr("so not compared")));
}

TEST(RankLocalDecision, APartThatTheOptimizerOfOneRankLacks) {
  TinyTraining t = training(3);
  for (int i = 0; i < 2; ++i) {  // each rank's own part
    t.backward();
    t.finish();
    t.end_step();
  }
  EXPECT_EQ(verify(undeclared(t)).verdict, Verdict::clean);
  t.backward();
  t.record_synced();
  const TinyTraining::Tensor kept = t.param(2, 1);
  t.update_all();
  t.param(2, 1) = kept;
  t.record_params();
  const Report report = verify(undeclared(t));
  EXPECT_EQ(summary(report),
            "rank-local-decision error observed culprits=2 step=2\nverdict findings");
  EXPECT_THAT(report.findings[0].what, ElementsAre("p1"));
}

TEST(GradDivergence, WhereParametersAreAveragedInsteadItIsANote) {
  TinyTraining t = training(2);
  for (int step = 0; step < 8; ++step) {
    t.backward();
    t.record_synced();
    t.update_all();
    for (std::size_t i = 0; step % 2 == 1 && i < t.tensors(); ++i) t.param(1, i) = t.param(0, i);
    t.record_params();
    t.end_step();
  }
  EXPECT_EQ(verify(t.run()).verdict, Verdict::clean);
}

TEST(RankLocalDecision, EqualScalarsAreNone) {
  TinyTraining t = training();
  for (int i = 0; i < 3; ++i) {
    for (std::uint32_t r = 0; r < kWorld; ++r) t.record_scalar(r, "lr", 0.1 * i);
    t.good_step();
  }
  EXPECT_EQ(summary(verify(t.run())), "verdict clean");
}

TEST(StaleGradient, ZeroGradLeftOut) {
  TinyTraining t = training();
  const Report report = with_fault(t, [](TinyTraining& x) {
    x.record_local();  // what backward finds: the last step's
    x.backward();
    x.record_local();
    x.average_all();
    x.finish();
  });
  EXPECT_THAT(summary(report), HasSubstr("stale-gradient error proven step=2"));
}

TEST(StaleGradient, MicroBatchesThatAddUpAreNone) {
  TinyTraining t = training();
  for (int i = 0; i < 3; ++i) {
    t.backward();
    t.record_local();  // after the first micro-batch
    t.good_step();
  }
  EXPECT_EQ(summary(verify(t.run())), "verdict clean");
}

// A step in which p1's gradient is zero, and weight decay moves it.
void decay_p1(TinyTraining& t) {
  t.backward();
  for (std::uint32_t r = 0; r < kWorld; ++r)
    std::fill(t.grad(r, 1).begin(), t.grad(r, 1).end(), 0.0F);
  t.record_local();
  t.average_all();
  t.record_synced();
  t.update_all();
  for (std::uint32_t r = 0; r < kWorld; ++r) {
    for (float& w : t.param(r, 1)) w *= 0.99F;
  }
  t.record_params();
}

TEST(DecayedUnused, ParametersThatMoveWithoutAGradient) {
  TinyTraining t = training();
  const Report report = with_fault(t, decay_p1);
  EXPECT_EQ(summary(report), "decayed-unused warning observed step=2\nverdict findings");
  EXPECT_THAT(report.findings[0].what, ElementsAre("p1"));
}

// As a factor of LoRA's, which is multiplied by one that is initialised with zeros.
TEST(DecayedUnused, AGradientThatIsZeroInTheFirstStepAloneIsNone) {
  for (const bool again : {false, true}) {
    TinyTraining t = training();
    t.record_params();
    t.end_step();
    decay_p1(t);
    t.end_step();
    t.good_step();
    if (again) decay_p1(t);
    EXPECT_EQ(verify(t.run()).verdict, again ? Verdict::findings : Verdict::clean);
  }
}

TEST(DecayedUnused, AParameterThatStaysIsNone) {
  TinyTraining t = training();
  const Report report = with_fault(t, [](TinyTraining& x) {
    x.backward();
    for (std::uint32_t r = 0; r < kWorld; ++r)
      std::fill(x.grad(r, 1).begin(), x.grad(r, 1).end(), 0.0F);
    x.record_local();
    x.average_all();
    x.finish();
  });
  EXPECT_EQ(summary(report), "verdict clean");
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

TEST(BufferDivergence, IsAWarningUnlessBroadcastsKeepThemTogether) {
  const auto rank = [](int r, bool broadcast) {
    std::string out = R"({"header":1,"rank":)" + std::to_string(r) + R"(,"world_size":2}
{"group":"world","ranks":[0,1]}
)";
    for (int n = 0; n < 4; ++n) {
      const std::string step = std::to_string(n);
      if (broadcast) {
        out += R"({"ev":"issue","id":)" + step +
               R"(,"g":"world","op":"broadcast","in":[[8]],"root":0,"what":["bn.mean"]})"
               "\n"
               R"({"ev":"complete","id":)" +
               step + "}\n";
      }
      out += R"({"ev":"state","n":)" + step + R"(,"name":"bn.mean","kind":"buffer","hash":")" +
             std::to_string(10 * n + r) + "\"}\n";
    }
    return out + R"({"end":"clean"})";
  };
  EXPECT_EQ(summary(verify(run_from_text({rank(0, false), rank(1, false)}))),
            "buffer-divergence warning proven step=0\nverdict findings");
  EXPECT_TRUE(
      is_note(verify(run_from_text({rank(0, true), rank(1, true)})), RuleId::buffer_divergence));
}

}  // namespace
}  // namespace lockstep::verify
