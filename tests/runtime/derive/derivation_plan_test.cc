// What must be looked at to know all that a job can call.
#include "runtime/derive/derivation_plan.h"

#include <algorithm>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "runtime/derive/plan_scenarios.h"

namespace lockstep::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Scenario parsed_for_plan(const std::string& rest) {
  return parse_scenario("lockstep: 1\nname: x\nranks: 4\n" + rest, "job.yaml").value();
}

DerivationPlan plan_of(const std::string& rest) {
  return derivation_plan(parsed_for_plan(rest)).value();
}

std::vector<std::string> names_of_plan(const DerivationPlan& plan) {
  std::vector<std::string> out;
  for (const Condition& c : plan.conditions) out.push_back(c.name);
  return out;
}

TEST(DerivationPlan, AJobWithBatchesOfOneKindHasOneCondition) {
  const DerivationPlan plan = plan_of("");
  EXPECT_THAT(names_of_plan(plan), ElementsAre("image+text"));
  EXPECT_FALSE(plan.agreed);
  EXPECT_THAT(plan.later_steps(), ElementsAre(0, 0));
}

TEST(DerivationPlan, RulesDecideTheConditionsOfEachRank) {
  const DerivationPlan plan =
      plan_of("data: {modality: [{ranks: [1], steps: [2], has: [text]}, {has: [image, text]}]}");
  EXPECT_THAT(names_of_plan(plan), ElementsAre("image+text", "text"));
  ASSERT_EQ(plan.allowed.size(), 2U);
  EXPECT_THAT(plan.allowed[0].ranks, ElementsAre(1));
  EXPECT_THAT(plan.allowed[0].steps, ElementsAre(2));
  EXPECT_THAT(plan.allowed[0].conditions, ElementsAre(1));
  EXPECT_THAT(plan.allowed[1].conditions, ElementsAre(0));
}

TEST(DerivationPlan, RulesWithoutImagesLeaveNoneToLookAt) {
  EXPECT_THAT(names_of_plan(plan_of("data: {modality: [{has: [text]}]}")), ElementsAre("text"));
  const DerivationPlan one = plan_of("data: {modality: [{ranks: [3], has: [text]}]}");
  EXPECT_EQ(one.conditions.size(), 2U);
  ASSERT_EQ(one.kinds.size(), 2U);
  EXPECT_THAT(one.kinds[0].ranks, ElementsAre(3));
  EXPECT_THAT(one.kinds[0].has, ElementsAre(std::vector{Modality::text}));
  EXPECT_THAT(one.kinds[1].ranks, IsEmpty());  // all others
  ASSERT_EQ(one.allowed.size(), 2U);
  EXPECT_TRUE(one.allowed[1].ranks.empty());
  EXPECT_THAT(one.allowed[1].conditions, ElementsAre(0));
}

TEST(DerivationPlan, ImagesAndVideosAreAConditionOfTheirOwn) {
  const DerivationPlan plan = plan_of(
      "data: {text_only: 0.5, modality: [{ranks: [1], steps: [2], has: [image, text, video]}]}");
  EXPECT_THAT(names_of_plan(plan), ElementsAre("image+text", "text", "image+text+video"));
  ASSERT_EQ(plan.allowed.size(), 2U);
  EXPECT_THAT(plan.allowed[0].conditions, ElementsAre(2));
  EXPECT_THAT(plan.allowed[1].conditions, ElementsAre(0, 1));  // the sampler draws no videos
}

TEST(DerivationPlan, SamplersLeaveTheChoiceFreeOrAgree) {
  EXPECT_TRUE(plan_of("data: {text_only: 0.5, sampler: dealt}").agreed);
  EXPECT_FALSE(plan_of("data: {text_only: 0.5, sampler: grouped}").agreed);
  EXPECT_TRUE(plan_of("data: {text_only: 0.5, sampler: balanced}").agreed);
  EXPECT_TRUE(plan_of("remedy: alternating").agreed);
  const DerivationPlan wrong = plan_of("remedy: alternating\nfault: alternating-per-rank");
  EXPECT_FALSE(wrong.agreed);
  EXPECT_EQ(wrong.conditions.size(), 2U);
}

// What FSDP gathers ahead depends on the step before.
TEST(DerivationPlan, WhereFsdpPrefetchesEachConditionFollowsEach) {
  const std::string vote = "data: {text_only: 0.5}\nremedy: presence-vote\n";
  const DerivationPlan plan = plan_of(vote + "strategy: fsdp");
  EXPECT_TRUE(plan.looks_back);
  EXPECT_THAT(plan.later_steps(),
              ElementsAre(0, 0, 1, 0, 2, 1, 1, 2, 2, 0, 0, 1, 0, 2, 1, 1, 2, 2, 0));
  EXPECT_THAT(
      plan_of("data: {text_only: 0.5}\nfault: zero-grad-forgotten\nstrategy: fsdp").later_steps(),
      ElementsAre(1, 1, 0, 0, 1, 1, 0, 0, 1));
  EXPECT_FALSE(plan_of(vote + "strategy: {kind: fsdp, prefetch: false}").looks_back);
  EXPECT_FALSE(plan_of(vote + "strategy: ddp").looks_back);
  EXPECT_FALSE(plan_of("strategy: fsdp").looks_back);  // one condition
  EXPECT_FALSE(plan_of(vote + "strategy: fsdp\ntrain: {generate: {every: 2}}").looks_back);
}

// DDP knows a static graph after the first step and arranges its buckets after the second.
TEST(DerivationPlan, WithAStaticGraphAHistoryIsTwoSteps) {
  const DerivationPlan plan =
      plan_of("data: {text_only: 0.5}\nstrategy: {kind: ddp, static_graph: true}");
  ASSERT_EQ(plan.histories().size(), 4U);
  EXPECT_EQ(plan.histories()[2].first, 1U);
  EXPECT_EQ(plan.histories()[2].second, 0U);
  EXPECT_THAT(plan.steps_of(plan.histories()[2]), ElementsAre(1, 0, 0, 1, 0, 1));
  const DerivationPlan other = plan_of("data: {text_only: 0.5}\nstrategy: ddp");
  ASSERT_EQ(other.histories().size(), 2U);
  EXPECT_FALSE(other.histories()[1].second);
}

// A rule counts only where no rule before it decides, and a rank never gets what it cannot have.
TEST(DerivationPlan, RanksKeepWhatTheyCanHave) {
  EXPECT_THAT(names_of_plan(plan_of("data: {modality: [{has: [image, text]}, {has: [text]}]}")),
              ElementsAre("image+text"));
  EXPECT_THAT(names_of_plan(plan_of("data: {modality: [{steps: [1], has: [image, text]}, {ranks: "
                                    "[2], steps: [1], has: [text]}, {has: [image, text]}]}")),
              ElementsAre("image+text"));
  const std::string text =
      "lockstep: 1\nname: x\nranks: 4\nstrategy: {kind: ddp, static_graph: true}\n"
      "data: {modality: [{ranks: [0], steps: [3], has: [text]}, {ranks: [1], has: [text]}, "
      "{has: [image, text]}]}\n";
  const DerivationPlan plan = derivation_plan(parse_scenario(text, "job.yaml").value()).value();
  ASSERT_EQ(plan.kinds.size(), 3U);
  const Scenario history =
      parse_scenario(history_scenario(text, "first-3.yaml", plan, {1, 1}).value(), "first-3.yaml")
          .value();
  const std::vector<std::size_t> steps = plan.steps_of({1, 1});
  for (std::int64_t step = 0; step < history.train.steps; ++step) {
    const auto has_image = [&](int rank) {
      return history.rule_for(rank, step)->shows(Modality::image);
    };
    EXPECT_EQ(has_image(0), plan.conditions[steps[static_cast<std::size_t>(step)]].has.size() > 1);
    EXPECT_FALSE(has_image(1));
    EXPECT_TRUE(has_image(2));
    EXPECT_TRUE(has_image(3));
  }
}

TEST(DerivationPlan, AVoteMakesPhases) {
  const DerivationPlan plan = plan_of("data: {text_only: 0.5}\nremedy: presence-vote");
  ASSERT_EQ(plan.conditions.size(), 3U);
  EXPECT_NE(plan.conditions[0].phase, plan.conditions[1].phase);
  EXPECT_EQ(plan.conditions[1].phase, plan.conditions[2].phase);
  EXPECT_FALSE(plan.conditions[0].dissent);
  EXPECT_TRUE(plan.conditions[1].dissent);
  EXPECT_THAT(history_dissent(plan, {1}), ElementsAre(0, 2, 3, 5, 6));
}

// Nobody votes against images where no batch can lack them, or where all ranks' batches are alike.
TEST(DerivationPlan, AVoteIsLostOnlyWhereARankMayLackImages) {
  EXPECT_THAT(names_of_plan(plan_of("remedy: presence-vote")),
              ElementsAre("image+text, as all have"));
  EXPECT_THAT(names_of_plan(plan_of("remedy: presence-vote\n"
                                    "data: {text_only: 0.5, sampler: balanced}")),
              ElementsAre("image+text, as all have", "text"));
  const DerivationPlan plan = plan_of(
      "remedy: presence-vote\n"
      "data: {modality: [{ranks: [1], steps: [2, 3], has: [text]}, {has: [image, text]}]}");
  ASSERT_EQ(plan.allowed.size(), 3U);
  EXPECT_THAT(plan.allowed[0].steps, ElementsAre(2, 3));
  EXPECT_THAT(plan.allowed[0].conditions, ElementsAre(2));
  EXPECT_THAT(plan.allowed[1].steps, ElementsAre(2, 3));  // the other ranks
  EXPECT_THAT(plan.allowed[1].conditions, ElementsAre(0, 1));
  EXPECT_THAT(plan.allowed[2].steps, IsEmpty());
  EXPECT_THAT(plan.allowed[2].conditions, ElementsAre(0));
}

TEST(DerivationPlan, ABatchThatIsBroadcastIsRankZeros) {
  const DerivationPlan plan =
      plan_of("data: {broadcast: true, modality: {rank 0: [image, text], rank 1: [text]}}");
  EXPECT_TRUE(plan.agreed);
  EXPECT_THAT(names_of_plan(plan), ElementsAre("image+text"));
}

TEST(DerivationPlan, RankZeroBeginsAsTheJobSays) {
  const DerivationPlan free = plan_of("data: {text_only: 0.5}");
  EXPECT_TRUE(rank_0_may_be_in(free, 4, 0, 0));
  EXPECT_TRUE(rank_0_may_be_in(free, 4, 0, 1));
  const DerivationPlan ruled = plan_of("data: {modality: {rank 0: [text]}}");
  EXPECT_FALSE(rank_0_may_be_in(ruled, 4, 0, 0));
  EXPECT_TRUE(rank_0_may_be_in(ruled, 4, 0, 1));
  // All cannot have images if rank 1 never has.
  const DerivationPlan vote = plan_of("remedy: presence-vote\ndata: {modality: {rank 1: [text]}}");
  EXPECT_FALSE(rank_0_may_be_in(vote, 4, 0, 0));
  EXPECT_TRUE(rank_0_may_be_in(vote, 4, 0, 1));
}

TEST(DerivationPlan, GradientsThatStayShowAfterAPoorerBatch) {
  EXPECT_THAT(plan_of("data: {text_only: 0.5}\nfault: zero-grad-forgotten").later_steps(),
              ElementsAre(1, 0, 0, 1));
}

TEST(DerivationPlan, AnOverflowIsAgreedOrTheRanksOwn) {
  const DerivationPlan agreed = plan_of("train: {precision: float16}");
  ASSERT_EQ(agreed.conditions.size(), 2U);
  EXPECT_TRUE(agreed.conditions[1].dissent);
  EXPECT_NE(agreed.conditions[0].phase, agreed.conditions[1].phase);
  const DerivationPlan own = plan_of("train: {precision: float16}\nfault: local-overflow");
  ASSERT_EQ(own.conditions.size(), 2U);
  EXPECT_TRUE(own.conditions[1].overflow);
  EXPECT_EQ(own.conditions[0].phase, own.conditions[1].phase);
}

using Tokens = std::optional<int>;

// After how many tokens the rank's texts may end in that step.
std::vector<Tokens> tokens_at(const DerivationPlan& plan, int rank, std::int64_t step) {
  for (const DerivationPlan::Allowed& a : plan.allowed) {
    const bool names =
        a.ranks.empty() || std::find(a.ranks.begin(), a.ranks.end(), rank) != a.ranks.end();
    if (!names) continue;
    if (!a.steps.empty() && std::find(a.steps.begin(), a.steps.end(), step) == a.steps.end())
      continue;
    std::vector<Tokens> out;
    for (const std::size_t c : a.conditions) out.push_back(plan.conditions[c].tokens);
    return out;
  }
  return {};
}

// Rank 2's texts end early in step 1.
std::string ends_early(int every, bool synced = false) {
  return fmt::format(
      "strategy: fsdp\ntrain: {{generate: {{every: {}, tokens: 6, synced: {}, ends: [{{ranks: [2], "
      "steps: [1], after: 2}}]}}}}",
      every, synced);
}

TEST(DerivationPlan, TextsEndWhereTheScenarioSays) {
  const DerivationPlan own = plan_of(ends_early(1));
  EXPECT_THAT(names_of_plan(own),
              ElementsAre("image+text, then 2 tokens", "image+text, then 6 tokens"));
  EXPECT_THAT(tokens_at(own, 2, 1), ElementsAre(2));
  EXPECT_THAT(tokens_at(own, 1, 1), ElementsAre(6));
  EXPECT_THAT(tokens_at(own, 2, 5), ElementsAre(6));
  EXPECT_FALSE(own.only_steps);
  EXPECT_THAT(own.later_steps(), ElementsAre(0, 1, 0, 1));
  // Synced, all ranks go on until the last has ended.
  const DerivationPlan synced = plan_of(ends_early(1, /*synced=*/true));
  EXPECT_THAT(tokens_at(synced, 2, 1), ElementsAre(6));
  EXPECT_EQ(synced.conditions.size(), 1U);
}

TEST(DerivationPlan, TextsAfterSomeStepsAreHeldAgainstTheOthers) {
  const DerivationPlan plan = plan_of(ends_early(2));
  EXPECT_THAT(names_of_plan(plan),
              ElementsAre("image+text, then no texts", "image+text, then 2 tokens",
                          "image+text, then 6 tokens"));
  EXPECT_EQ(plan.first_conditions(), 1U);
  EXPECT_EQ(plan.only_steps, 6);
  EXPECT_THAT(tokens_at(plan, 2, 0), ElementsAre(Tokens()));
  EXPECT_THAT(tokens_at(plan, 2, 1), ElementsAre(2));
  EXPECT_THAT(tokens_at(plan, 2, 3), ElementsAre(6));
  // Step 0 has none, and after it every second one has.
  EXPECT_THAT(plan.later_steps(), ElementsAre(1, 0, 2, 0, 1, 0, 2, 0));
}

TEST(DerivationPlan, RanksThatAgreeOnTheirBatchesMayEndApart) {
  const DerivationPlan plan = plan_of(
      "data: {text_only: 0.5, sampler: dealt}\nstrategy: fsdp\n"
      "train: {generate: {every: 1, ends: [{ranks: [1], after: 2}]}}");
  EXPECT_FALSE(plan.agreed);
  ASSERT_EQ(plan.conditions.size(), 4U);
  EXPECT_NE(plan.conditions[0].phase, plan.conditions[1].phase);
  EXPECT_EQ(plan.conditions[0].phase, plan.conditions[2].phase);
}

TEST(DerivationPlan, TheStagesOfAReplicaShareItsBatch) {
  const DerivationPlan plan =
      plan_of("strategy: pipeline\ndata: {modality: [{ranks: [2], steps: [3], has: [text]}]}");
  EXPECT_THAT(plan.together, ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  EXPECT_FALSE(plan.agreed);
  ASSERT_FALSE(plan.allowed.empty());
  EXPECT_THAT(plan.allowed[0].ranks, ElementsAre(2, 3));
  EXPECT_TRUE(plan_of("strategy: {kind: pipeline, stages: 4}\ndata: {text_only: 0.5}").agreed);
  EXPECT_THAT(plan_of("").together, IsEmpty());
}

TEST(DerivationPlan, SaysWhyAJobCannotBeDerived) {
  const auto balanced = derivation_plan(parsed_for_plan("data: {balance: cost}"));
  ASSERT_FALSE(balanced);
  EXPECT_THAT(balanced.error().str(), HasSubstr("cannot be derived"));
  std::string ends;
  for (int step = 0; step < 20; ++step) ends += fmt::format("{{steps: [{0}], after: {0}}},", step);
  const auto many = derivation_plan(parsed_for_plan(
      fmt::format("train: {{steps: 20, generate: {{every: 1, tokens: 30, ends: [{}]}}}}", ends)));
  ASSERT_FALSE(many);
  EXPECT_THAT(many.error().str(), HasSubstr("its texts have 21 different lengths"));
}

TEST(HistoryScenario, GeneratesAsItsConditionsSay) {
  const std::string text = fmt::format("lockstep: 1\nname: x\nranks: 4\n{}\n", ends_early(2));
  const DerivationPlan plan = derivation_plan(parse_scenario(text, "job.yaml").value()).value();
  const Scenario s =
      parse_scenario(history_scenario(text, "first-0.yaml", plan, {0}).value(), "first-0.yaml")
          .value();
  const std::vector<std::size_t> later = plan.later_steps();
  EXPECT_FALSE(s.generates_after(0));
  for (std::size_t i = 0; i < later.size(); ++i) {
    const auto step = static_cast<std::int64_t>(i) + 1;
    const Tokens& tokens = plan.conditions[later[i]].tokens;
    EXPECT_EQ(s.generates_after(step), tokens.has_value());
    EXPECT_EQ(s.generated_tokens(0, step), tokens.value_or(0));
  }
  // A counterexample has the job's own texts, and no rule for a step that it lacks.
  const auto shown = assignment_scenario(text, "c.yaml", plan, {{0, 0, 0, 0}});
  EXPECT_THAT(parse_scenario(shown.value(), "c.yaml")->train.generate.ends, IsEmpty());
}

TEST(HistoryScenario, HasOneConditionAfterTheOther) {
  const std::string text =
      "lockstep: 1\nname: x\nranks: 4\nstrategy: {kind: ddp, bucket_cap_mb: 3}\n"
      "data: {text_only: 0.5, sampler: grouped}\n"
      "train: {steps: 100, evaluate: true, checkpoint: {folder: c, every: 2}}\n"
      "watch: {every: 1}\nexpect: {verdict: clean}\n";
  const DerivationPlan plan = derivation_plan(parse_scenario(text, "job.yaml").value()).value();
  const Scenario s =
      parse_scenario(history_scenario(text, "first-1.yaml", plan, {1}).value(), "first-1.yaml")
          .value();
  EXPECT_EQ(s.train.steps, 5);
  EXPECT_EQ(s.strategy.bucket_cap_mb, 3);
  EXPECT_EQ(s.watch.every, 0);
  EXPECT_EQ(s.train.checkpoint.every, 1);
  EXPECT_FALSE(s.train.evaluate);
  EXPECT_FALSE(s.expect);
  const auto has = [&](std::int64_t step) { return s.rule_for(3, step)->has.size(); };
  EXPECT_EQ(has(0), 1U);
  EXPECT_EQ(has(1), 2U);
  EXPECT_EQ(has(2), 1U);
  EXPECT_EQ(has(3), 2U);
  EXPECT_THAT(history_dissent(plan, {1}), IsEmpty());
}

TEST(AssignmentScenario, GivesEachRankItsCondition) {
  const std::string text = "lockstep: 1\nname: x\nranks: 2\ndata: {text_only: 0.5}\n";
  const DerivationPlan plan = derivation_plan(parse_scenario(text, "job.yaml").value()).value();
  const auto written = assignment_scenario(text, "c.yaml", plan, {{0, 0}, {0, 1}, {0, 0}});
  ASSERT_TRUE(written) << written.error().str();
  const Scenario s = parse_scenario(*written, "c.yaml").value();
  EXPECT_EQ(s.train.steps, 3);
  EXPECT_EQ(s.rule_for(1, 1)->has.size(), 1U);
  EXPECT_EQ(s.rule_for(0, 1)->has.size(), 2U);
  EXPECT_EQ(s.expect->verdict, "findings");
}

TEST(AssignmentScenario, NamesOnlyTheFewerRanksOfThousands) {
  const std::string text = "lockstep: 1\nname: x\nranks: 4096\ndata: {text_only: 0.5}\n";
  const DerivationPlan plan = derivation_plan(parse_scenario(text, "job.yaml").value()).value();
  std::vector<std::vector<std::size_t>> conditions(2, std::vector<std::size_t>(4096, 0));
  for (std::size_t rank = 100; rank < 500; ++rank) conditions[1][rank] = 1;
  const auto written = assignment_scenario(text, "c.yaml", plan, conditions);
  ASSERT_TRUE(written) << written.error().str();
  const Scenario s = parse_scenario(*written, "c.yaml").value();
  EXPECT_EQ(s.data.modality.size(), 4U);
  for (const int rank : {0, 99, 100, 400, 499, 500, 4095}) {
    EXPECT_EQ(s.rule_for(rank, 0)->has.size(), 2U);
    EXPECT_EQ(s.rule_for(rank, 1)->has.size(), rank >= 100 && rank < 500 ? 1U : 2U) << rank;
  }
}

TEST(HistoryScenario, AlternatingBecomesRules) {
  const std::string text = "lockstep: 1\nname: x\nremedy: {kind: alternating}\n";
  const DerivationPlan plan = derivation_plan(parse_scenario(text, "job.yaml").value()).value();
  const auto history = history_scenario(text, "h.yaml", plan, {0});
  ASSERT_TRUE(history) << history.error().str();
  const Scenario s = parse_scenario(*history, "h.yaml").value();
  EXPECT_EQ(s.rule_for(0, 2)->has.size(), 1U);
}

TEST(DissentSteps, AreThoseInWhichAnotherRankHasNone) {
  const Scenario s = parsed_for_plan(
      "data: {modality: [{ranks: [1], steps: [2, 4], has: [text]}, {has: [image, text]}]}\n"
      "remedy: presence-vote");
  EXPECT_THAT(dissent_steps(s, 0), ElementsAre(2, 4));
  EXPECT_THAT(dissent_steps(s, 1), IsEmpty());
}

// Which ranks one of them can stand for.

Scenario parsed_for_classes(const std::string& rest) {
  return parse_scenario("lockstep: 1\nname: x\nranks: 6\n" + rest, "job.yaml").value();
}

TEST(Representatives, Rank0IsTheRootAndTheOthersAreAlike) {
  EXPECT_THAT(representatives(parsed_for_classes("strategy: ddp")), ElementsAre(0, 1, 1, 1, 1, 1));
  EXPECT_THAT(representatives(parsed_for_classes("strategy: fsdp")), ElementsAre(0, 1, 1, 1, 1, 1));
}

TEST(Representatives, ConditionsDistinguishRanksOnlyWhereRequested) {
  const Scenario job = parsed_for_classes("data: {modality: [{ranks: [2], has: [text]}]}");
  EXPECT_THAT(representatives(job), ElementsAre(0, 1, 1, 1, 1, 1));
  EXPECT_THAT(representatives(job, {0, 0, 1, 0, 0, 1}), ElementsAre(0, 1, 2, 1, 1, 2));
}

TEST(Representatives, AGroupOfTheRanksWithImagesDoes) {
  EXPECT_THAT(representatives(parsed_for_classes(
                  "strategy: {kind: manual, process_groups: image-ranks}\n"
                  "data: {modality: [{ranks: [2, 4], has: [text]}, {has: [image, text]}]}")),
              ElementsAre(0, 1, 2, 1, 2, 1));
}

TEST(Representatives, CopiesOfTheModelRepresentEachOtherRankByRank) {
  for (const char* strategy :
       {"strategy: {kind: fsdp, shard_ranks: 2}", "strategy: {kind: pipeline, schedule: gpipe}"}) {
    EXPECT_THAT(representatives(parsed_for_classes(strategy)), ElementsAre(0, 1, 2, 3, 2, 3));
  }
  // Rank 5 differs, and its copy with it.
  EXPECT_THAT(representatives(parsed_for_classes("strategy: {kind: fsdp, shard_ranks: 2}"),
                              {0, 0, 0, 0, 0, 1}),
              ElementsAre(0, 1, 2, 3, 4, 5));
}

}  // namespace
}  // namespace lockstep::runtime
