// How fast the simulator is, without reading and writing:
//
//   message level   ring all-reduce of 1 MiB over 1,024 ranks, 2,095,104 messages
//   collectives     64 ranks x 100 x (50 us of work, ring all-reduce of 16 MiB)
//   network         4,096 ranks in eight rings over full uplinks, 100 x (work, all-reduce)
//   programs        16,384 ranks x 2,000 operations, all ranks different, and all ranks alike
//
// The first two beside other simulators, as programs: against_peers.
#include <cstdint>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "sim/collectives/closed_form.h"
#include "sim/engine/executor.h"
#include "sim/engine/shared_links.h"
#include "sim/machine/job_network.h"
#include "sim/machine/machine.h"
#include "sim/machine/simulated_job.h"
#include "sim/machine/work_time.h"
#include "sim/messages/message_level.h"

namespace lockstep::sim {
namespace {

const Links kLinks = {{Picos{500'000}, Bandwidth{400'000'000'000}, std::nullopt}};

void message_level_ring(benchmark::State& state) {
  const Collective ring = {trace::Op::all_reduce, Algorithm::ring, state.range(0), Bytes{1 << 20}};
  std::uint64_t messages = 0;
  for (auto _ : state) {
    const Result<MessageResult> result = message_level({&ring, 1}, kLinks, Wiring::ports);
    if (!result || result->finished[0] != *closed_form(ring, kLinks)) {
      state.SkipWithError("not the formula's time");
      return;
    }
    messages += result->messages;
  }
  state.counters["messages/s"] =
      benchmark::Counter(static_cast<double>(messages), benchmark::Counter::kIsRate);
}
BENCHMARK(message_level_ring)->Arg(64)->Arg(1024)->Unit(benchmark::kMillisecond);

// `ranks` in one group: work and a blocking all-reduce, `pairs` times. `different`: each rank has a
// program of its own, with other lengths of work.
ProgramJob make_job(std::uint32_t ranks, std::uint32_t pairs, bool different) {
  ProgramJob job;
  ProgramCall call;
  call.bytes = Bytes{16 << 20};
  job.calls.push_back(call);
  job.groups.emplace_back();
  for (std::uint32_t r = 0; r < ranks; ++r) {
    job.groups[0].members.push_back(static_cast<std::int32_t>(r));
    job.ranks.push_back({different ? r : 0, {0}});
    if (!different && r > 0) continue;
    Program program{{}, 1, 1};
    program.steps.reserve(std::size_t{2} * pairs);
    for (std::uint32_t p = 0; p < pairs; ++p) {
      ProgramStep work;
      work.duration =
          Picos{50'000'000 + (different ? (r * 7919LL + p * 104'729LL) % 1'000'003 : 0)};
      work.stream = ProgramStep::kHost;
      program.steps.push_back(work);
      ProgramStep step;
      step.kind = StepKind::call;
      step.blocks = true;
      program.steps.push_back(step);
    }
    job.programs.push_back(std::move(program));
  }
  return job;
}

void run_programs(benchmark::State& state, bool different, bool folded) {
  const auto ranks = static_cast<std::uint32_t>(state.range(0));
  const auto pairs = static_cast<std::uint32_t>(state.range(1));
  const ProgramJob job = make_job(ranks, pairs, different);
  const Collective ring = {trace::Op::all_reduce, Algorithm::ring, ranks, Bytes{16 << 20}};
  const CostOfCall cost = [&](std::uint32_t, const ProgramCall&) {
    return CallCost{*closed_form(ring, kLinks)};
  };
  for (auto _ : state) {
    const Folding folding = folded ? fold(job) : unfolded(job);
    const ExecutionResult result = execute(job, folding, cost);
    if (result.stuck) {
      state.SkipWithError("stuck");
      return;
    }
    benchmark::DoNotOptimize(result.end);
  }
  state.counters["operations/s"] =
      benchmark::Counter(2.0 * ranks * pairs, benchmark::Counter::kIsIterationInvariantRate);
}
void programs_apart(benchmark::State& state) { run_programs(state, false, false); }
void programs_folded(benchmark::State& state) { run_programs(state, false, true); }
void programs_different(benchmark::State& state) { run_programs(state, true, true); }
BENCHMARK(programs_apart)->Args({64, 100})->Unit(benchmark::kMillisecond);
BENCHMARK(programs_folded)->Args({16'384, 1000})->Unit(benchmark::kMillisecond);
BENCHMARK(programs_different)->Args({16'384, 1000})->Unit(benchmark::kMillisecond);

// `ranks` in nodes of eight on rails of 32 nodes with uplinks of a quarter of their ports, in eight
// groups of one rank a node: work of two lengths and an all-reduce, `pairs` times. All rings cross
// full uplinks.
void programs_on_a_network(benchmark::State& state, bool folded) {
  const auto ranks = static_cast<std::uint32_t>(state.range(0));
  ProgramJob job = make_job(ranks, static_cast<std::uint32_t>(state.range(1)), false);
  job.groups.assign(8, {});
  // One group in two begins later.
  job.programs.push_back(job.programs[0]);
  job.programs[1].steps[0].duration = Picos{90'000'000};
  for (std::uint32_t r = 0; r < ranks; ++r) {
    // Neighbours of a ring are in different units, so that every hop crosses.
    job.ranks[r] = {r % 2, {r % 8}};
    job.groups[r % 8].members.push_back(
        static_cast<std::int32_t>(r / 8 % 2 * (ranks / 2) + r / 16 * 8 + r % 8));
  }
  Machine machine;
  machine.ranks_per_node = 8;
  machine.links = {{Picos{1'000'000}, Bandwidth{3'600'000'000'000}, std::nullopt},
                   {Picos{5'000'000}, Bandwidth{400'000'000'000}, std::nullopt}};
  machine.network.emplace();
  machine.network->kind = Topology::Kind::rails;
  machine.network->tiers = {{32, 4}};
  const std::vector<GroupLayout> layouts = layouts_of(job, machine);
  const Result<Prices> prices = prices_on(machine, job, layouts);
  const Result<JobNetwork> network = JobNetwork::of(machine, job, layouts);
  for (auto _ : state) {
    const Folding folding = folded ? network->fold(job) : unfolded(job);
    const SharedLinks links = network->links(job, folding);
    const ExecutionResult result =
        execute(job, folding, prices->cost_in(job), {{}, false, nullptr, &links});
    if (result.stuck || result.slowed_calls == 0) {
      state.SkipWithError("stuck, or nothing was shared");
      return;
    }
    benchmark::DoNotOptimize(result.end);
  }
}
void network_apart(benchmark::State& state) { programs_on_a_network(state, false); }
void network_folded(benchmark::State& state) { programs_on_a_network(state, true); }
BENCHMARK(network_apart)->Args({4096, 100})->Unit(benchmark::kMillisecond);
BENCHMARK(network_folded)->Args({4096, 100})->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace lockstep::sim
