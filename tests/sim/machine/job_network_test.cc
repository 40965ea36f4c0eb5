// Jobs on networks: calls that cross the same links slow each other down, as worked out by hand.
#include "sim/machine/job_network.h"

#include <algorithm>
#include <numeric>
#include <string>

#include <gtest/gtest.h>

#include "sim/collectives/price.h"
#include "sim/machine/machine.h"
#include "sim/machine/simulated_job.h"
#include "sim/machine/work_time.h"
#include "sim/messages/message_level.h"
#include "tests/sim/small_jobs.h"

namespace lockstep::sim {
namespace {

Machine machine_with(const std::string& network, int ranks_per_node = 1) {
  const std::string text =
      "machine: 1\nname: m\nranks_per_node: " + std::to_string(ranks_per_node) +
      "\ncompute:\n  float32: {peak: 1TFLOP/s}\nmemory: {bandwidth: 1TB/s}\n"
      "links:\n  - {alpha: 0us, beta: 400GB/s}\n  - {alpha: 0us, beta: 50GB/s}\n" +
      (network.empty() ? "" : "network: " + network + "\n");
  const Result<Machine> machine = parse_machine(text, "m.yaml");
  EXPECT_TRUE(machine) << machine.error().str();
  return *machine;
}

// A call of `op` in each group, all at the same time, with `bytes` each.
ProgramJob at_once(const std::vector<std::vector<std::int32_t>>& groups, std::int32_t ranks,
                   std::int64_t bytes, trace::Op op = trace::Op::all_reduce) {
  ProgramJob job;
  ProgramCall call;
  call.op = op;
  call.bytes = Bytes{bytes};
  job.calls = {call};
  job.programs = {{{issue(0, 0, true)}, 1, 1}, {{}, 0, 0}};
  for (const auto& members : groups) job.groups.push_back({members});
  job.ranks.resize(static_cast<std::size_t>(ranks), {1, {}});
  for (std::uint32_t g = 0; g < groups.size(); ++g)
    for (const std::int32_t member : groups[g])
      job.ranks[static_cast<std::size_t>(member)] = {0, {g}};
  return job;
}

Picos time_of(const ProgramJob& job, const Machine& machine, bool apart = false) {
  const std::vector<GroupLayout> layouts = layouts_of(job, machine);
  const Result<Prices> prices = prices_on(machine, job, layouts);
  EXPECT_TRUE(prices) << prices.error().str();
  RunProgram program;
  program.job = job;
  const Result<SimulatedProgram> out =
      simulate_on_machine(std::move(program), layouts, *prices, machine, apart);
  EXPECT_TRUE(out) << out.error().str();
  return out->result.end;
}

constexpr std::int64_t kMega = 1'000'000;

// Ranks 0 and 1 below one leaf, 2 and 3 below the other. A ring of two sends B each way: 50 MB at
// 50 GB/s take a millisecond. Two rings cross the uplinks, which have the bandwidth of two ports,
// or of one.
TEST(JobNetwork, RingsThatCrossOneUplinkSlowEachOtherDown) {
  const std::string tree = "{topology: fat-tree, tiers: [{nodes: 2, oversubscription: ";
  const Machine wide = machine_with(tree + "1}]}"), narrow = machine_with(tree + "2}]}");
  const ProgramJob one = at_once({{0, 2}}, 4, 50 * kMega);
  const ProgramJob both = at_once({{0, 2}, {1, 3}}, 4, 50 * kMega);
  const ProgramJob below = at_once({{0, 1}, {2, 3}}, 4, 50 * kMega);
  constexpr Picos kAlone{1'000'000'000};
  for (const bool apart : {false, true}) {
    for (const ProgramJob& job : {one, both, below}) EXPECT_EQ(time_of(job, wide, apart), kAlone);
    EXPECT_EQ(time_of(one, narrow, apart), kAlone);
    EXPECT_EQ(time_of(below, narrow, apart), kAlone);
    EXPECT_EQ(time_of(both, narrow, apart), kAlone * 2);
  }
  // Without a network nothing is shared.
  EXPECT_EQ(time_of(both, machine_with("")), kAlone);
}

// The second begins when the first is half done: 0.5 ms alone, 1 ms together, 0.5 ms alone.
TEST(JobNetwork, ACallIsSlowedOnlyWhileTheOtherIsUnderWay) {
  const Machine machine =
      machine_with("{topology: fat-tree, tiers: [{nodes: 2, oversubscription: 2}]}");
  ProgramJob job = at_once({{0, 2}, {1, 3}}, 4, 50 * kMega);
  job.programs.push_back({{compute(500'000'000), issue(0, 0, true)}, 1, 1});
  job.ranks[1].program = job.ranks[3].program = 2;
  const std::vector<GroupLayout> layouts = layouts_of(job, machine);
  const ExecutedJob executed =
      execute_job(job, machine, layouts, *prices_on(machine, job, layouts));
  const auto end = [&](std::size_t rank) {
    return executed.result.classes[executed.folding.class_of[rank]].end.value;
  };
  EXPECT_EQ(end(0), 1'500'000'000);
  EXPECT_EQ(end(1), 2'000'000'000);
  EXPECT_EQ(executed.result.slowed_calls, 2);
}

// A rank whose port carries a ring of its data-parallel group and one of another group at once.
TEST(JobNetwork, CallsOfOneRankShareItsPort) {
  ProgramJob job = at_once({{0, 1}, {0, 2}}, 3, 50 * kMega);
  job.programs = {{{issue(0, 0, false, 0), issue(0, 1, false, 1), wait(0), wait(1)}, 2, 2},
                  {{issue(0, 0, true)}, 1, 1}};
  job.ranks = {{0, {0, 1}}, {1, {0}}, {1, {1}}};
  EXPECT_EQ(time_of(job, machine_with("{topology: fat-tree, tiers: [{nodes: 4}]}")),
            Picos{2'000'000'000});
  EXPECT_EQ(time_of(job, machine_with("")), Picos{1'000'000'000});
}

// Every group has a member in each pod: all of its traffic crosses, and 2:1 halves its speed.
TEST(JobNetwork, OversubscriptionOfTwoHalvesCrossPodAllToAll) {
  std::vector<std::vector<std::int32_t>> groups(4);
  for (std::int32_t r = 0; r < 16; ++r) groups[static_cast<std::size_t>(r % 4)].push_back(r);
  const ProgramJob job = at_once(groups, 16, 40 * kMega, trace::Op::all_to_all);
  const std::string tree = "{topology: fat-tree, tiers: [{nodes: 4, oversubscription: ";
  const Picos full = time_of(job, machine_with(tree + "1}]}"));
  EXPECT_EQ(full, Picos{600'000'000});  // 3/4 of 40 MB at 50 GB/s
  EXPECT_EQ(time_of(job, machine_with(tree + "2}]}")), full * 2);
  EXPECT_EQ(time_of(job, machine_with(tree + "4}]}")), full * 4);
  // Within pods nothing crosses.
  const ProgramJob local =
      at_once({{0, 1, 2, 3}, {4, 5, 6, 7}}, 16, 40 * kMega, trace::Op::all_to_all);
  EXPECT_EQ(time_of(local, machine_with(tree + "4}]}")), full);
}

// The message level runs the same two rings message by message over the same ports.
TEST(JobNetwork, AgreesWithTheMessageLevelOnSharedPorts) {
  const Links links = {{Picos{0}, Bandwidth{400'000'000'000}, std::nullopt}};
  for (const std::int64_t ranks : {2, 4, 8, 16}) {
    const Collective one{trace::Op::all_reduce, Algorithm::ring, ranks, Bytes{16 * kMega}, 1, 1};
    const auto messages = message_level(std::vector{one, one}, links, Wiring::ports);
    ASSERT_TRUE(messages);
    std::vector<std::int32_t> members;
    for (std::int32_t r = 0; r < ranks; ++r) members.push_back(r);
    ProgramJob job = at_once({members, members}, static_cast<std::int32_t>(ranks), 16 * kMega);
    job.programs = {{{issue(0, 0, false, 0), issue(0, 1, false, 1), wait(0), wait(1)}, 2, 2}};
    for (ProgramJob::Member& member : job.ranks) member = {0, {0, 1}};
    Machine machine = machine_with("{topology: fat-tree, tiers: [{nodes: 64}]}");
    machine.links = links;
    const Picos here = time_of(job, machine);
    EXPECT_NEAR(here.seconds() / messages->finished.back().seconds(), 1, 1e-6) << ranks;
  }
}

// Folding is exact on every kind of network.
TEST(JobNetwork, EqualRanksAreFoldedAndTheResultIsTheSame) {
  Draw random;
  int folded = 0;
  for (int round = 0; round < 60; ++round) {
    ProgramJob job = drawn_job(random);
    job.calls[0].op = random(2) == 0 ? trace::Op::all_reduce : trace::Op::all_to_all;
    job.calls[0].bytes = Bytes{1 + random(1000)};
    for (const char* network :
         {"{topology: fat-tree, tiers: [{nodes: 2, oversubscription: 2}, {nodes: 4, "
          "oversubscription: 3}]}",
          "{topology: rails, tiers: [{nodes: 4, oversubscription: 4}]}",
          "{topology: torus, sides: [4, 2], link: 10GB/s}",
          "{topology: dragonfly, nodes_per_router: 2, routers_per_group: 2, global_links: 1}"}) {
      const Machine machine = machine_with(network, 2);
      const std::vector<GroupLayout> layouts = layouts_of(job, machine);
      const Result<Prices> prices = prices_on(machine, job, layouts);
      ASSERT_TRUE(prices);
      const Result<JobNetwork> on = JobNetwork::of(machine, job, layouts);
      ASSERT_TRUE(on) << on.error().str();
      const auto run = [&](const Folding& folding) {
        const SharedLinks links = on->links(job, folding);
        return execute(job, folding, prices->cost_in(job), {{}, true, nullptr, &links});
      };
      const Folding fold = on->fold(job);
      const ExecutionResult one = run(fold), all = run(unfolded(job));
      EXPECT_EQ(one.stuck, all.stuck);
      for (std::size_t r = 0; r < job.ranks.size(); ++r) {
        const RankOutcome& a = one.classes[fold.class_of[r]];
        const RankOutcome& b = all.classes[r];
        EXPECT_EQ(a.next, b.next);
        for (std::size_t s = 0; s < a.ended.size(); ++s)
          EXPECT_LE(std::abs(a.ended[s].value - b.ended[s].value), 2) << network << " rank " << r;
      }
      folded += fold.representatives.size() < job.ranks.size() ? 1 : 0;
    }
  }
  EXPECT_GT(folded, 20);
}

// A ring of 4,096 ranks and rings of their own on every node fold to a few classes.
TEST(JobNetwork, LargeJobsFold) {
  std::vector<std::vector<std::int32_t>> groups(8);
  for (std::int32_t r = 0; r < 4096; ++r) groups[static_cast<std::size_t>(r % 8)].push_back(r);
  const ProgramJob job = at_once(groups, 4096, kMega);
  const Machine machine =
      machine_with("{topology: rails, tiers: [{nodes: 32, oversubscription: 8}]}", 8);
  const Result<JobNetwork> on = JobNetwork::of(machine, job, layouts_of(job, machine));
  ASSERT_TRUE(on);
  EXPECT_LE(on->fold(job).representatives.size(), 4U);
  EXPECT_GT(time_of(job, machine), Picos{0});
}

TEST(JobNetwork, SaysThatANetworkIsTooSmall) {
  const ProgramJob job = at_once({{0, 1, 2, 3, 4}}, 5, kMega);
  const Machine machine = machine_with("{topology: torus, sides: [2, 2]}");
  const Result<JobNetwork> on = JobNetwork::of(machine, job, layouts_of(job, machine));
  ASSERT_FALSE(on);
  EXPECT_EQ(on.error().message, "the job needs 5 nodes, and the machine's torus has 4");
}

// Each link between switches adds to the latency of each step: a ring of 4 single-rank nodes has
// 2 log2(4) of them by formula, here 2 links each.
TEST(JobNetwork, LinksBetweenSwitchesAddLatency) {
  const ProgramJob job = at_once({{0, 1, 2, 3}}, 4, 0);
  EXPECT_EQ(time_of(job, machine_with("{topology: fat-tree, tiers: [{nodes: 1}], hop: 300ns}")),
            Picos{4 * 2 * 300'000});
  EXPECT_EQ(time_of(job, machine_with("{topology: fat-tree, tiers: [{nodes: 4}], hop: 300ns}")),
            Picos{0});
}

// Four nodes, two to a switch of the second tier: 2, 4, 2, 4 links around, 2, 4, 4 to the others.
TEST(JobNetwork, EachAlgorithmPaysForItsOwnWay) {
  const std::string tiers = "{topology: fat-tree, tiers: [{nodes: 1}, {nodes: 2}], hop: 300ns";
  const ProgramJob reduce = at_once({{0, 1, 2, 3}}, 4, 0);
  const ProgramJob broadcast = at_once({{0, 1, 2, 3}}, 4, 0, trace::Op::broadcast);
  EXPECT_EQ(time_of(reduce, machine_with(tiers + ", sharp: true}")), Picos{4 * 300'000});
  EXPECT_EQ(time_of(reduce, machine_with(tiers + "}")), Picos{4 * 1'000'000});
  EXPECT_EQ(time_of(broadcast, machine_with(tiers + "}")), Picos{2 * 1'000'000});
}

TEST(JobNetwork, TooManyPairsAreRefused) {
  const Machine machine = machine_with("{topology: torus, sides: [64, 128]}");
  const Result<PricedCalls> priced =
      price_calls(trace::Op::all_to_all, 8192, {Bytes{kMega}}, machine);
  ASSERT_FALSE(priced);
  EXPECT_NE(priced.error().message.find("on this torus"), std::string::npos);
  EXPECT_TRUE(price_calls(trace::Op::all_reduce, 8192, {Bytes{kMega}}, machine));
  std::vector<std::int32_t> all(8192);
  std::iota(all.begin(), all.end(), 0);
  const ProgramJob job = at_once({all}, 8192, kMega, trace::Op::all_to_all);
  EXPECT_FALSE(JobNetwork::of(machine, job, layouts_of(job, machine)));
}

// Up to the switches and down once: latency twice, and each byte once.
TEST(JobNetwork, SwitchesThatReduceHalveAnAllReduce) {
  const std::string tiers = "{topology: fat-tree, tiers: [{nodes: 4}]";
  const ProgramJob job = at_once({{0, 1, 2, 3, 4, 5, 6, 7}}, 8, 50 * kMega);
  EXPECT_EQ(time_of(job, machine_with(tiers + "}")), Picos{1'750'000'000});  // 2 · 7/8
  EXPECT_EQ(time_of(job, machine_with(tiers + ", sharp: true}")), Picos{1'000'000'000});
  // Uplinks of an eighth of the ports do not slow it down: one buffer goes up.
  const std::string narrow = "{topology: fat-tree, tiers: [{nodes: 4, oversubscription: 4}]";
  EXPECT_EQ(time_of(job, machine_with(narrow + ", sharp: true}")), Picos{1'000'000'000});
}

}  // namespace
}  // namespace lockstep::sim
