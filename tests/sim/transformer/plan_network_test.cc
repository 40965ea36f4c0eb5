// Plans on machines whose links are shared, and on machines some of whose GPUs are slow.
#include "sim/transformer/plan_network.h"

#include <gtest/gtest.h>

#include "sim/transformer/plan_forecast.h"
#include "sim/transformer/predict.h"
#include "tests/sim/transformer/small_transformer.h"

namespace lockstep::sim {
namespace {

TrainingPlan data_parallel(std::int32_t ranks) {
  TrainingPlan out;
  out.sequence = 1024;
  out.global_batch = 64;
  out.data = ranks;
  return out;
}

StepPrediction step(const TrainingPlan& plan, const CostParameters& cost) {
  const Result<StepPrediction> out = predict_step(small_transformer(), plan, cost);
  EXPECT_TRUE(out) << out.error().str();
  return *out;
}

// Whose GPUs do not wait for their hosts.
CostParameters fast_hosts() {
  CostParameters out;
  out.launch_forward = out.launch_backward = out.launch_micro_batch = 1e-6;
  return out;
}

CostParameters on_tree(std::int64_t nodes, double oversubscription) {
  CostParameters out;
  out.network.emplace();
  out.network->tiers = {{nodes, oversubscription}};
  return out;
}

// Eight rings of one rank a node, all across four leaves of one node: at 2:1 the exchange takes
// twice as long, except for its overhead.
TEST(PlanNetwork, TheExchangeIsSlowedByOversubscription) {
  TrainingPlan plan = data_parallel(4);
  plan.tensor = 8;
  const CostParameters plain;
  const double alone = step(plan, plain).exchange_seconds;
  EXPECT_NEAR(step(plan, on_tree(1, 1)).exchange_seconds, alone, 1e-9 * alone);
  EXPECT_NEAR(step(plan, on_tree(1, 2)).exchange_seconds, 2 * alone, 0.02 * alone);
  // Below one leaf nothing crosses.
  EXPECT_EQ(step(plan, on_tree(4, 100)).seconds, step(plan, plain).seconds);
  // One ring of all ranks leaves each leaf once, over all of its ports.
  TrainingPlan flat = data_parallel(32);
  EXPECT_NEAR(step(flat, on_tree(2, 2)).exchange_seconds, step(flat, plain).exchange_seconds, 1e-9);
}

// Messages between stages and gradients at the same time, from the same ports.
TEST(PlanNetwork, MessagesAndGradientsShareThePorts) {
  TrainingPlan plan = data_parallel(8);
  plan.tensor = 8;
  plan.pipeline = 4;
  plan.global_batch = 128;
  plan.sharding = Sharding::zero1;
  plan.overlapped_gradients = plan.overlapped_pipeline = true;
  const CostParameters plain;
  const double alone = step(plan, plain).seconds;
  const double shared = step(plan, on_tree(64, 1)).seconds;
  EXPECT_GT(shared, alone);
  EXPECT_LT(shared, 1.2 * alone);
  EXPECT_GT(step(plan, on_tree(2, 16)).seconds, shared);
}

// Tensor ranks over two nodes of different leaves: the calls within tasks take longer, too.
TEST(PlanNetwork, CallsWithinTasksAreSlowedByNarrowLinks) {
  TrainingPlan plan = data_parallel(2);
  plan.tensor = 16;
  const auto tensor = [&](CostParameters cost) {
    cost.call_overhead = 0;
    return step(plan, cost).parts.tensor;
  };
  // The ring over 16 ranks leaves each node over all of its ports: a quarter of them is left.
  EXPECT_EQ(tensor(on_tree(1, 1)), tensor({}));
  EXPECT_GT(tensor(on_tree(1, 4)), 2.5 * tensor({}));  // latency takes no bandwidth
  EXPECT_EQ(tensor(on_tree(2, 4)), tensor({}));
}

// Four stages of a node each, two of them below each leaf: only what the second sends to the third
// leaves a leaf.
TEST(PlanNetwork, MessagesBetweenAllStagesCount) {
  TrainingPlan plan = data_parallel(1);
  plan.tensor = 8;
  plan.pipeline = 4;
  const auto handover = [&](const CostParameters& cost) { return step(plan, cost).parts.handover; };
  EXPECT_EQ(handover(on_tree(2, 1)), handover({}));
  EXPECT_GT(handover(on_tree(2, 64)), 5 * handover({}));
  EXPECT_EQ(handover(on_tree(4, 64)), handover({}));
}

// Replicas that hardly differ are simulated one by one, with as many messages as before.
TEST(PlanNetwork, ReplicasHaveMessagesOfTheirOwn) {
  TrainingPlan plan = data_parallel(4);
  plan.tensor = 8;
  plan.pipeline = 4;
  plan.overlapped_pipeline = true;
  CostParameters cost = on_tree(2, 64);
  const double alike = step(plan, cost).seconds;
  EXPECT_GT(alike, 1.2 * step(plan, {}).seconds);
  for (int replica = 1; replica < 4; ++replica)
    cost.slow.push_back({8 * replica, 8 * replica, 1 + 1e-9 * replica});
  EXPECT_NEAR(step(plan, cost).seconds, alike, 1e-4 * alike);
}

TEST(PlanNetwork, ATooSmallNetworkIsRefused) {
  CostParameters cost;
  cost.network.emplace();
  cost.network->kind = Topology::Kind::torus;
  cost.network->sides = {2, 1};
  const Result<StepPrediction> out = predict_step(small_transformer(), data_parallel(32), cost);
  ASSERT_FALSE(out);
  EXPECT_EQ(out.error().message, "the job needs 4 nodes, and the machine's torus has 2");
}

// All wait for the slowest replica; which one it is does not matter.
TEST(SlowGpus, AReplicaHoldsUpAllOthers) {
  const TrainingPlan plan = data_parallel(8);
  const CostParameters plain = fast_hosts();
  CostParameters slow = plain;
  slow.slow = {{3, 3, 1.5}};
  const StepPrediction usual = step(plan, plain), held_up = step(plan, slow);
  CostParameters all = plain;
  all.slow = {{0, 7, 1.5}};
  EXPECT_GT(held_up.seconds, 1.2 * usual.seconds);
  EXPECT_NEAR(held_up.seconds, step(plan, all).seconds, 1e-9);
  // The parts are of the seven others, which wait.
  EXPECT_EQ(held_up.parts.layers, usual.parts.layers);
  EXPECT_GT(held_up.parts.data, usual.parts.data);
  EXPECT_NEAR(held_up.parts.total(), held_up.seconds, 1e-9);
  slow.slow = {{7, 7, 1.5}};
  EXPECT_EQ(step(plan, slow).seconds, held_up.seconds);
  slow.slow = {{8, 20, 1.5}};  // no GPU of this plan
  EXPECT_EQ(step(plan, slow).seconds, usual.seconds);
}

// One GPU slows its tensor group, that its stage, and that every micro-batch of its replica.
TEST(SlowGpus, AStageIsAsSlowAsItsSlowestGpu) {
  TrainingPlan plan = data_parallel(2);
  plan.tensor = 2;
  plan.pipeline = 4;
  const CostParameters plain = fast_hosts();
  CostParameters slow = plain;
  slow.slow = {{13, 13, 2}};  // tensor rank 1 of replica 0 on the last stage, which has the most
  CostParameters stage = plain;
  stage.slow = {{12, 15, 2}};  // all of the stage
  EXPECT_NEAR(step(plan, slow).seconds, step(plan, stage).seconds, 1e-9);
  EXPECT_GT(step(plan, slow).seconds, 1.3 * step(plan, plain).seconds);
  CostParameters last = plain;
  last.slow = {{0, 15, 2}};
  EXPECT_LT(step(plan, slow).seconds, step(plan, last).seconds);
  // A stage with less to do has time to spare.
  last.slow = {{9, 9, 1.1}};
  EXPECT_LT(step(plan, last).seconds, 1.02 * step(plan, plain).seconds);
}

TEST(SlowGpus, TooManyKindsAreRefused) {
  CostParameters cost;
  for (int r = 0; r < 300; ++r) cost.slow.push_back({r, r, 1 + 0.001 * r});
  TrainingPlan plan = data_parallel(300);
  plan.global_batch = 300;
  const Result<StepPrediction> out = predict_step(small_transformer(), plan, cost);
  ASSERT_FALSE(out);
  EXPECT_EQ(out.error().message,
            "slow ranks make 300 different kinds of replicas, at most 256 are simulated");
}

// Each kind has tasks of its own: 200 of 16,000 would fill the memory.
TEST(SlowGpus, TooManyTasksAreRefused) {
  CostParameters cost;
  for (int r = 0; r < 200; ++r) cost.slow.push_back({r, r, 1 + 0.001 * r});
  TrainingPlan plan = data_parallel(200);
  plan.pipeline = 4;
  plan.global_batch = 200 * 2000;
  const Result<StepPrediction> out = predict_step(small_transformer(), plan, cost);
  ASSERT_FALSE(out);
  EXPECT_NE(out.error().message.find("200 different kinds"), std::string::npos)
      << out.error().str();
}

}  // namespace
}  // namespace lockstep::sim
