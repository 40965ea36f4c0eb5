// Calls queued as on a GPU: what the program sees of them, what the trace says, and that training
// comes to the same numbers.
#include <chrono>
#include <thread>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/groups/collectives.h"
#include "runtime/record/c10d/recording_work.h"
#include "tests/runtime/rank_job.h"

namespace lockstep::runtime {
namespace {

using testing::Each;
using testing::ElementsAre;

constexpr std::chrono::seconds kTimeout(20);

c10d::AllreduceOptions synchronous() {
  c10d::AllreduceOptions options;
  options.asyncOp = false;
  return options;
}

// How a call went on the device. Waits are left out: where a rank reads what a call fills, one is
// recorded only if it took long.
std::vector<trace::EventKind> events_of(const Recorded& run, std::uint32_t call) {
  std::vector<trace::EventKind> out;
  for (const trace::Event& event : run.trace.events) {
    const bool of_device = event.kind == trace::EventKind::issue ||
                           event.kind == trace::EventKind::start ||
                           event.kind == trace::EventKind::complete;
    if (of_device && event.index == call) out.push_back(event.kind);
  }
  return out;
}

// Where in the trace the event of that call is.
std::size_t event_index(const Recorded& run, trace::EventKind kind, std::uint32_t call) {
  std::size_t i = 0;
  while (run.trace.events[i].kind != kind || run.trace.events[i].index != call) ++i;
  return i;
}

// Rank 1 calls when rank 0 is through with `ahead`.
std::vector<ExitStatus> run_two(
    const TempDir& folder, const std::function<bool(c10d::ProcessGroup& world)>& ahead,
    const std::function<bool(c10d::ProcessGroup& world)>& other,
    const std::function<bool()>& afterwards = [] { return true; }) {
  const auto body = [&](ProcessGroups& groups, Recorder&) {
    const auto world = groups.world();
    if (groups.who().rank == 0) {
      if (!ahead(*world)) return 1;
      groups.announce("ahead");
      return afterwards() ? 0 : 2;
    }
    if (!groups.wait_until_announced("ahead", {0}, kTimeout)) return 3;
    return other(*world) ? 0 : 4;
  };
  return run_ranks(2, folder, body, QueuedCalls::per_group);
}

TEST(QueuedCalls, ASynchronousCallHasNoWorkAndIsCompleteWhenTheDeviceSaysSo) {
  const TempDir folder;
  std::vector<at::Tensor> a = {at::ones({4})};
  std::vector<at::Tensor> b = {at::ones({2})};
  const auto call_both = [&](c10d::ProcessGroup& world) {
    const bool none = !world.allreduce(a, synchronous()) && !world.allreduce(b, synchronous());
    return none;  // and rank 0 comes here while rank 1 has called nothing
  };
  const auto statuses = run_two(folder, call_both, call_both, [&] {
    // An operation that uses what the call fills has its result.
    return a.front().sum().item<double>() == 8 && b.front().sum().item<double>() == 4;
  });
  EXPECT_THAT(statuses, Each(0));
  const Recorded run = recorded(folder.path(), 0);
  ASSERT_EQ(run.trace.calls.size(), 2U);
  for (const std::uint32_t call : {0U, 1U}) {
    EXPECT_TRUE(run.trace.calls[call].has(trace::kAsync));  // it returned before it was complete
    EXPECT_THAT(events_of(run, call), ElementsAre(trace::EventKind::issue, trace::EventKind::start,
                                                  trace::EventKind::complete));
  }
  // The first was not complete when the second was issued.
  EXPECT_LT(event_index(run, trace::EventKind::issue, 1),
            event_index(run, trace::EventKind::complete, 0));
  EXPECT_LT(event_index(run, trace::EventKind::complete, 0),
            event_index(run, trace::EventKind::complete, 1));
}

TEST(QueuedCalls, AWaitDoesNotBlockTheHost) {
  const TempDir folder;
  std::vector<at::Tensor> tensors = {at::ones({4})};
  const auto call = [&](c10d::ProcessGroup& world) { return world.allreduce(tensors)->wait(); };
  EXPECT_THAT(
      run_two(folder, call, call, [&] { return tensors.front().sum().item<double>() == 8; }),
      Each(0));
  const Recorded run = recorded(folder.path(), 0);
  EXPECT_LT(event_index(run, trace::EventKind::waited, 0),
            event_index(run, trace::EventKind::complete, 0));
}

TEST(QueuedCalls, ABarrierBlocksTheHost) {
  const TempDir folder;
  const auto statuses = run_ranks(
      2, folder,
      [](ProcessGroups& groups, Recorder& recorder) {
        const auto world = groups.world();
        barrier(*world);
        // Only the watch may still have to see it.
        groups.announce("behind");
        if (!groups.wait_until_announced("behind", {0, 1}, kTimeout)) return 1;
        world->barrier()->wait();
        while (recorder.outstanding()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return 0;
      },
      QueuedCalls::per_group);
  EXPECT_THAT(statuses, Each(0));
  const Recorded run = recorded(folder.path(), 0);
  EXPECT_FALSE(run.trace.calls[0].has(trace::kAsync));
  EXPECT_TRUE(run.trace.calls[1].has(trace::kAsync));
}

TEST(QueuedCalls, ABatchIsOneCallOfWhichAllPartsAreRecorded) {
  const TempDir folder;
  std::vector<at::Tensor> a = {at::ones({4})};
  std::vector<at::Tensor> b = {at::ones({2})};
  const auto call_both = [&](c10d::ProcessGroup& world) {
    const auto backend = world.getBackend(c10::DeviceType::CPU);
    for (const bool is_async : {false, true}) {
      c10d::AllreduceOptions options;
      options.asyncOp = is_async;
      backend->startCoalescing();
      const bool none = !backend->allreduce(a, options) && !backend->allreduce(b, options);
      const auto work = backend->endCoalescing();
      if (!none || (work != nullptr) != is_async) return false;
      if (work) work->wait();
    }
    return true;
  };
  const auto statuses =
      run_two(folder, call_both, call_both, [&] { return b.front().sum().item<double>() == 8; });
  EXPECT_THAT(statuses, Each(0));
  const Recorded run = recorded(folder.path(), 0);
  ASSERT_EQ(run.trace.calls.size(), 4U);
  for (const trace::Call& call : run.trace.calls) EXPECT_TRUE(call.has(trace::kCompleted));
  EXPECT_TRUE(run.trace.calls[3].has(trace::kWaitEnded));
}

// Rank 0 calls in the group "a", then in "b"; rank 1 the other way round, and in "a" only when rank
// 0 has recorded "b" as complete, or (where that cannot be) both have called.
std::vector<ExitStatus> run_crossed(const TempDir& folder, QueuedCalls queued) {
  return run_ranks(
      2, folder,
      [&](ProcessGroups& groups, Recorder& recorder) {
        const auto a = groups.make("a", "one");
        const auto b = groups.make("b", "another");
        std::vector<at::Tensor> one = {at::ones({1})};
        std::vector<at::Tensor> two = {at::ones({1})};
        const auto first = groups.who().rank == 0 ? a : b;
        const auto second = groups.who().rank == 0 ? b : a;
        first->allreduce(one);
        if (queued == QueuedCalls::per_group) {
          if (groups.who().rank == 1)
            return groups.wait_until_announced("b", {0}, kTimeout) && second->allreduce(two) ? 0
                                                                                             : 1;
          second->allreduce(two);
          // What the device tells is recorded a little later.
          while (!recorded(folder.path(), 0).trace.calls[1].has(trace::kCompleted))
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          groups.announce("b");
          return 0;
        }
        second->allreduce(two);
        groups.announce("called");
        if (!groups.wait_until_announced("called", {0, 1}, kTimeout)) return 1;
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        return recorder.outstanding() ? 42 : 2;  // and ends without waiting for them
      },
      queued);
}

TEST(QueuedCalls, GroupsOfARankDoNotWaitForEachOther) {
  const TempDir folder;
  EXPECT_THAT(run_crossed(folder, QueuedCalls::per_group), Each(0));
  const Recorded run = recorded(folder.path(), 0);
  EXPECT_LT(event_index(run, trace::EventKind::complete, 1),
            event_index(run, trace::EventKind::complete, 0));
}

TEST(QueuedCalls, UnlessKernelsKeepEachOtherFromRunning) {
  const TempDir folder;
  EXPECT_THAT(run_crossed(folder, QueuedCalls::one_at_a_time), Each(42));
  for (const int rank : {0, 1}) {
    const Recorded run = recorded(folder.path(), rank);
    EXPECT_FALSE(run.trace.calls[0].has(trace::kCompleted));
    EXPECT_FALSE(run.trace.calls[1].has(trace::kStarted));
  }
}

// Also in groups of its own, a call comes after what the rank waited for.
TEST(QueuedCalls, WhatWasWaitedForComesFirst) {
  const TempDir folder;
  const auto statuses = run_ranks(
      2, folder,
      [&](ProcessGroups& groups, Recorder&) {
        const auto a = groups.make("a", "one");
        const auto b = groups.make("b", "another");
        std::vector<at::Tensor> one = {at::ones({1})};
        std::vector<at::Tensor> two = {at::ones({1})};
        if (groups.who().rank == 0) {
          a->allreduce(one)->wait();
          b->allreduce(two);
          return 0;
        }
        const auto late = b->allreduce(two);  // nobody waits for it
        a->allreduce(one);
        while (!late->isCompleted()) std::this_thread::yield();
        return 0;
      },
      QueuedCalls::per_group);
  EXPECT_THAT(statuses, Each(0));
  const Recorded run = recorded(folder.path(), 0);
  EXPECT_LT(event_index(run, trace::EventKind::complete, 0),
            event_index(run, trace::EventKind::start, 1));
}

TEST(QueuedCalls, ACallToARankThatDiedNeverCompletes) {
  const TempDir folder;
  const auto statuses = run_ranks(
      2, folder,
      [](ProcessGroups& groups, Recorder& recorder) {
        const auto world = groups.world();
        std::vector<at::Tensor> tensors = {at::ones({1})};
        world->allreduce(tensors)->wait();  // they are connected
        while (recorder.outstanding()) std::this_thread::yield();
        if (groups.who().rank == 1) std::_Exit(7);
        const auto work = world->allreduce(tensors);
        work->wait();
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        return recorder.outstanding() && !work->isCompleted() ? 42 : 1;
      },
      QueuedCalls::per_group);
  EXPECT_THAT(statuses, ElementsAre(42, 7));
}

TEST(QueuedCalls, WhatTheTransportRefusesIsThrownByTheNextCallAtTheLatest) {
  const TempDir folder;
  const auto statuses = run_ranks(
      1, folder,
      [](ProcessGroups& groups, Recorder& recorder) {
        std::vector<at::Tensor> wrong = {at::ones({1}), at::ones({2})};
        std::vector<at::Tensor> right = {at::ones({1})};
        try {
          groups.world()->allreduce(wrong, synchronous());  // throws if it was refused meanwhile
          while (recorder.outstanding()) std::this_thread::yield();
          groups.world()->allreduce(right, synchronous());
        } catch (const std::exception&) {
          return 42;
        }
        return 1;
      },
      QueuedCalls::per_group);
  EXPECT_THAT(statuses, Each(42));
}

// --- in the loop ---------------------------------------------------------------------------------

struct QueuedJob {
  const char* name;
  Scenario::Strategy strategy;
  int ranks = 2;
  // Under 1F1B a stage sends on and back at the same time: in one stream, in front of each other.
  bool may_share_a_stream = true;
};

Scenario::Strategy strategy(Scenario::Strategy::Kind kind) {
  Scenario::Strategy out;
  out.kind = kind;
  return out;
}

std::vector<QueuedJob> jobs() {
  using Kind = Scenario::Strategy::Kind;
  std::vector<QueuedJob> out = {{"ddp", strategy(Kind::ddp)},
                                {"ddp_compressed", strategy(Kind::ddp)},
                                {"manual", strategy(Kind::manual)},
                                {"manual_per_modality", strategy(Kind::manual)},
                                {"fsdp", strategy(Kind::fsdp)},
                                {"fsdp_without_prefetch", strategy(Kind::fsdp)},
                                {"hsdp", strategy(Kind::fsdp), 4},
                                {"gpipe", strategy(Kind::pipeline)},
                                {"one_f_one_b", strategy(Kind::pipeline)},
                                {"four_stages", strategy(Kind::pipeline), 4}};
  out[1].strategy.compression = Scenario::Strategy::Compression::bfloat16;
  out[3].strategy.process_groups = Scenario::Strategy::Groups::per_modality;
  out[5].strategy.prefetch = false;
  out[6].strategy.shard_ranks = 2;
  for (const std::size_t i : {7U, 8U, 9U}) out[i].strategy.micro_batches = 4;
  for (const std::size_t i : {8U, 9U}) {
    out[i].strategy.schedule = Scenario::Strategy::Schedule::one_f_one_b;
    out[i].may_share_a_stream = false;
  }
  out[9].strategy.stages = 4;
  return out;
}

class QueuedJobs : public testing::TestWithParam<QueuedJob> {};

TEST_P(QueuedJobs, ComeToTheNumbersOfGlooAndMakeItsCalls) {
  Scenario s;
  s.ranks = GetParam().ranks;
  s.strategy = GetParam().strategy;
  s.data.items = 64;
  s.train.steps = 3;
  s.train.batch_size = 2;
  const TempDir plain, queued, in_one;
  const std::vector<double> expected = losses(s, plain, s.ranks);
  EXPECT_EQ(losses(s, queued, s.ranks, QueuedCalls::per_group), expected);
  if (GetParam().may_share_a_stream) {
    EXPECT_EQ(losses(s, in_one, s.ranks, QueuedCalls::one_at_a_time), expected);
  }
  EXPECT_EQ(recorded(queued.path(), 1).calls(), recorded(plain.path(), 1).calls());
  for (const trace::Call& call : recorded(queued.path(), 1).trace.calls) {
    EXPECT_TRUE(call.has(trace::kStarted) && call.has(trace::kCompleted));
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, QueuedJobs, testing::ValuesIn(jobs()),
                         [](const auto& job) { return std::string(job.param.name); });

}  // namespace
}  // namespace lockstep::runtime
