// Do the ranks agree on their parameters, gradients, buffers and decisions? One fault at a time in
// a small training, and what looks like one and is not.
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

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ParamDivergence, BeforeTheFirstUpdateNoCallWasLeftOut) {
  const auto rank = [](int r) {
    const auto state = [](int step, const char* kind, const std::string& hash) {
      LineKeys keys = {{"ev", "state"}, {"n", step}, {"name", "w"}, {"kind", kind}, {"hash", hash}};
      if (kind == std::string("grad")) keys["when"] = "synced";
      return json_line(keys);
    };
    const std::string own = fmt::format("0{}", r);
    std::string text = header_line(r, 2) + state(0, "param", own);
    for (const int step : {1, 2}) text += state(step, "grad", "7") + state(step, "param", own);
    return text + end_line("clean");
  };
  const Report report = verify(run_from_text({rank(1), rank(0)}));
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].rule, RuleId::param_divergence) << summary(report);
  EXPECT_EQ(report.findings[0].step, 0);
}

// Rank 1 has a batch less, and stands in for it under Join: its second step is the third of rank 0.
TEST(ParamDivergence, StepsAfterARankWithoutBatchesAreNotCompared) {
  const auto rank = [](int r, const char* third, const std::string& tag) {
    const auto value = [](int step, const std::string& hash) {
      return json_line(
          {{"ev", "state"}, {"n", step}, {"name", "w"}, {"kind", "param"}, {"hash", hash}});
    };
    const auto reduce = [](int id, int step, const std::string& by) {
      LineKeys keys = {{"in", {{8}}}, {"step", step}};
      if (!by.empty()) keys["tag"] = by;
      return issue_line(id, "world", "all_reduce", keys) + event_line("complete", id);
    };
    const int behind = tag.empty() ? 0 : 1;
    std::string text = header_line(r, 2) + world_line(2) + value(0, "a") + reduce(0, 1, "") +
                       value(1, "b") + reduce(1, 2, tag);
    if (behind == 0) text += value(2, "c");
    return text + reduce(2, 3 - behind, "") + value(3 - behind, third) + end_line("clean");
  };
  const Report joined = verify(run_from_text({rank(0, "d", ""), rank(1, "d", "join")}));
  EXPECT_TRUE(joined.findings.empty()) << summary(joined);
  EXPECT_THAT(joined.unknown, Contains(HasSubstr("values from step 2 on")));
  const Report without = verify(run_from_text({rank(0, "d", ""), rank(1, "e", "")}));
  EXPECT_THAT(summary(without), HasSubstr("param-divergence"));
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
    return fmt::format(R"({{"header":1,"rank":{},"world_size":2}}
{{"ev":"state","n":0,"name":"w","hash":"1","sharded":true}}
{{"ev":"state","n":1,"name":"w","hash":"{}","sharded":true}}
{{"end":"clean"}})",
                       r, 5 + r);
  };
  EXPECT_EQ(summary(verify(run_from_text({rank(0), rank(1)}))), "verdict clean");
}

TEST(ParamDivergence, RanksOutsideOfTheGroupThatAveragesATensorAreNoReplicasOfIt) {
  const auto rank = [](int r) {
    std::string out = header_line(r, 3) + world_line(3) + group_line("images", {0, 1});
    for (int n = 0; n < 3; ++n) {
      if (r < 2) {
        out += issue_line(n, "images", "all_reduce", {{"in", {{8}}}, {"what", {"image.w"}}}) +
               event_line("complete", n);
      }
      out += json_line({{"ev", "state"},
                        {"n", n},
                        {"name", "image.w"},
                        {"hash", std::to_string(r < 2 ? n + 1 : 7)}});
    }
    return out + end_line("clean");
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

// An optimizer that averages the gradients itself, before or after its momentum.
TEST(GradDivergence, WhereTheOptimizerReducesItIsANote) {
  const auto rank = [](int r, const std::string& op, int elements, bool momentum_differs) {
    const auto state = [](int n, const char* name, const char* kind, const std::string& hash) {
      LineKeys keys = {{"ev", "state"}, {"n", n},       {"name", name},
                       {"kind", kind},  {"hash", hash}, {"shape", {4}}};
      if (kind == std::string("grad")) keys["when"] = "synced";
      return json_line(keys);
    };
    std::string out = header_line(r, 2) + world_line(2) + state(0, "w", "param", "1");
    for (int n = 1; n < 4; ++n) {
      out += state(n, "w", "grad", fmt::format("{}{}", n, r)) + state(n, "lr", "optim", "5") +
             issue_line(n, "world", op, {{"in", {{elements}}}}) + event_line("complete", n) +
             state(n, "buf/w", "optim", momentum_differs ? fmt::format("{}{}", n, r) : "6") +
             json_line({{"ev", "step"}, {"n", n}}) + state(n, "w", "param", std::to_string(n + 1));
    }
    return out + end_line("clean");
  };
  const auto judged = [&](const std::string& op, int elements, bool momentum_differs) {
    return verify(run_from_text(
        {rank(0, op, elements, momentum_differs), rank(1, op, elements, momentum_differs)}));
  };
  EXPECT_TRUE(is_note(judged("all_reduce", 4, false), RuleId::grad_divergence));
  EXPECT_EQ(summary(judged("all_reduce", 4, true)), "verdict clean");
  const std::string found = "grad-divergence error proven step=1";
  EXPECT_THAT(summary(judged("broadcast", 4, false)), HasSubstr(found));
  EXPECT_THAT(summary(judged("all_reduce", 1, false)), HasSubstr(found)) << "a norm";
}

TEST(BufferDivergence, IsAWarningUnlessBroadcastsKeepThemTogether) {
  const auto rank = [](int r, bool broadcast) {
    std::string out = header_line(r, 2) + world_line(2);
    for (int n = 0; n < 4; ++n) {
      if (broadcast) {
        out += issue_line(n, "world", "broadcast",
                          {{"in", {{8}}}, {"root", 0}, {"what", {"bn.mean"}}}) +
               event_line("complete", n);
      }
      out += json_line({{"ev", "state"},
                        {"n", n},
                        {"name", "bn.mean"},
                        {"kind", "buffer"},
                        {"hash", std::to_string(10 * n + r)}});
    }
    return out + end_line("clean");
  };
  EXPECT_EQ(summary(verify(run_from_text({rank(0, false), rank(1, false)}))),
            "buffer-divergence warning proven step=0\nverdict findings");
  EXPECT_TRUE(
      is_note(verify(run_from_text({rank(0, true), rank(1, true)})), RuleId::buffer_divergence));
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

// Each rank may read data of its own.
TEST(UndeclaredReplicas, WhoseDataDiffers) {
  TinyTraining t = training();
  for (int i = 0; i < 2; ++i) t.good_step();
  trace::Run run = undeclared(t);
  const auto name = run.tables.strings.intern("data_set");
  for (trace::RankTrace& rank : run.ranks) {
    trace::StateMark mark;
    mark.n = 1;
    mark.name = name;
    mark.kind = trace::StateMark::Kind::optim;
    mark.hash = static_cast<std::uint64_t>(7 + rank.rank.value);
    mark.norm = 7.0 + rank.rank.value;
    mark.sharded = true;
    rank.states.push_back(mark);
    rank.events.own().push_back({trace::kNoTime, static_cast<std::uint32_t>(rank.states.size() - 1),
                                 trace::EventKind::state});
  }
  EXPECT_EQ(summary(verify(run)), "verdict clean");
}

// The hash that each rank holds of each gradient; "": it has none.
trace::Run with_gradients(const std::vector<std::vector<std::string>>& hashes) {
  std::vector<std::string> texts;
  for (const std::vector<std::string>& own : hashes) {
    std::string out = header_line(static_cast<int>(texts.size()), hashes.size());
    for (std::size_t i = 0; i < own.size(); ++i) {
      const std::string name = fmt::format("{}.weight", i);
      out += json_line(
          {{"ev", "state"}, {"n", 0}, {"name", name}, {"kind", "param"}, {"sharded", true}});
      if (own[i].empty()) continue;
      out += json_line({{"ev", "state"},
                        {"n", 1},
                        {"name", name},
                        {"kind", "grad"},
                        {"when", "synced"},
                        {"sharded", true},
                        {"norm", 1.5},
                        {"hash", own[i]}});
    }
    texts.push_back(out + end_line("clean"));
  }
  return run_from_text(texts);
}

TEST(UndeclaredReplicas, WhoseGradientsAreReducedCrosswise) {
  const Report report = verify(with_gradients({{"a", "b", "c"}, {"c", "b", "a"}}));
  EXPECT_EQ(summary(report), "grad-divergence error proven step=1\nverdict findings");
  EXPECT_THAT(report.findings[0].why,
              AllOf(HasSubstr("the gradient of 0.weight on rank 0 is that of 2.weight on rank 1"),
                    HasSubstr("in different orders")));
  EXPECT_THAT(report.findings[0].fix, HasSubstr("in one order on all ranks"));
  EXPECT_EQ(summary(verify(with_gradients({{"a", "b", "c"}, {"b", "c", "a"}, {"a", "b", "c"}}))),
            "grad-divergence error proven culprits=1 step=1\nverdict findings");
  // Ranks that train parts of a model have own gradients, and perhaps one in common.
  EXPECT_EQ(verify(with_gradients({{"a", "b", "c"}, {"d", "e", "a"}})).verdict, Verdict::clean);
  EXPECT_EQ(verify(with_gradients({{"a", "b", "c"}, {"d", "e", "f"}})).verdict, Verdict::clean);
}

// Norms of the gradients of each rank, all of them different to the last bit.
trace::Run with_norms(const std::vector<std::vector<double>>& norms) {
  std::vector<std::string> texts;
  int hash = 0;
  for (const std::vector<double>& own : norms) {
    std::string out = header_line(static_cast<int>(texts.size()), norms.size());
    for (std::size_t i = 0; i < own.size(); ++i) {
      const std::string name = fmt::format("{}.weight", i);
      out += json_line(
          {{"ev", "state"}, {"n", 0}, {"name", name}, {"kind", "param"}, {"sharded", true}});
      out += json_line({{"ev", "state"},
                        {"n", 1},
                        {"name", name},
                        {"kind", "grad"},
                        {"when", "synced"},
                        {"sharded", true},
                        {"norm", own[i]},
                        {"hash", fmt::format("{:x}", ++hash)}});
    }
    texts.push_back(out + end_line("clean"));
  }
  return run_from_text(texts);
}

// Rank 1 divides by 6 what the others divide by 3.
TEST(UndeclaredReplicas, OfWhichOneDividesByAnotherNumber) {
  const Report report = verify(with_norms({{3, 0.7, 1.1, 5}, {1.5, 0.35, 0.55, 2.5}}));
  EXPECT_EQ(summary(report), "grad-divergence error proven step=1\nverdict findings");
  EXPECT_THAT(report.findings[0].why, HasSubstr("those of rank 1 are 0.5 times those of rank 0"));
  // Other gradients: each rank's are of its own, as where ranks train parts.
  EXPECT_EQ(verify(with_norms({{3, 0.7, 1.1, 5}, {1.5, 0.35, 0.55, 2.6}})).verdict, Verdict::clean);
  // Too few to tell from chance.
  EXPECT_EQ(verify(with_norms({{3, 0.7, 1.1}, {1.5, 0.35, 0.55}})).verdict, Verdict::clean);
}

TEST(GradDivergence, OfRanksThatRanDifferentPartsOfTheModel) {
  const std::vector<std::string> one = {"a", "b", "c", "d", "e", "f", "9", ""};
  const Report report = verify(with_gradients({one, {"a", "b", "c", "d", "e", "f", "5", "6"}}));
  EXPECT_EQ(summary(report), "grad-divergence error proven step=1\nverdict findings");
  EXPECT_THAT(report.findings[0].why,
              HasSubstr("rank 1 has gradients of 7.weight in that step, and rank 0 has none"));
  EXPECT_THAT(report.findings[0].fix, HasSubstr("run the same parts of the model"));
}

TEST(GradDivergence, OfWhichSomeAreNowhereElseIsNoExchange) {
  const Report report =
      verify(with_gradients({{"a", "b", "c", "d", "e"}, {"b", "a", "c", "d", "f"}}));
  EXPECT_EQ(summary(report), "grad-divergence error proven step=1\nverdict findings");
  EXPECT_THAT(report.findings[0].why, HasSubstr("every rank must hold the same gradient"));
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
  EXPECT_THAT(report.unknown, Contains(HasSubstr("so not compared")));
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

// Moments in steps 0 to 2: "-" where a rank holds none yet.
TEST(RankLocalDecision, MomentsThatOneRankLoaded) {
  const auto rank = [](int r, const std::vector<std::string>& hashes) {
    std::string out = header_line(r, 2);
    for (std::size_t n = 0; n < hashes.size(); ++n) {
      if (hashes[n] == "-") continue;
      out += json_line({{"ev", "state"},
                        {"n", n},
                        {"name", "exp_avg/w"},
                        {"kind", "optim"},
                        {"hash", hashes[n]}});
    }
    return out + end_line("clean");
  };
  const auto judged = [&](const std::vector<std::string>& a, const std::vector<std::string>& b) {
    const Report report = verify(run_from_text({rank(0, a), rank(1, b)}));
    EXPECT_EQ(summary(report), "rank-local-decision error proven step=1\nverdict findings");
    return report.findings[0];
  };
  const Finding loaded = judged({"1", "2", "3"}, {"-", "4", "5"});
  EXPECT_THAT(loaded.why, HasSubstr("only rank 0 held them before the first step"));
  EXPECT_THAT(loaded.fix, HasSubstr("load the optimizer's state on every rank"));
  EXPECT_EQ(judged({"1", "2", "3"}, {"1", "4", "5"}).why, "");
  EXPECT_EQ(judged({"-", "2", "3"}, {"-", "4", "5"}).why, "");
}

TEST(RankLocalDecision, EqualScalarsAreNone) {
  TinyTraining t = training();
  for (int i = 0; i < 3; ++i) {
    for (std::uint32_t r = 0; r < kWorld; ++r) t.record_scalar(r, "lr", 0.1 * i);
    t.good_step();
  }
  EXPECT_EQ(summary(verify(t.run())), "verdict clean");
}

}  // namespace
}  // namespace lockstep::verify
