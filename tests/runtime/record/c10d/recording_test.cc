#include <atomic>
#include <stdexcept>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/device/device.h"
#include "runtime/record/c10d/recording_work.h"
#include "runtime/record/c10d/work_watch.h"
#include "tests/runtime/rank_job.h"

namespace lockstep::runtime {
namespace {

using testing::Each;
using testing::ElementsAre;

// Two ranks that each do `body` in the group "world"; then rank 0's trace.
Recorded after(const std::function<void(c10d::ProcessGroup& world, Recorder& recorder)>& body) {
  const TempDir folder;
  const auto statuses = run_ranks(2, folder, [&](ProcessGroups& groups, Recorder& recorder) {
    const auto world = groups.make("world", "all");
    body(*world, recorder);
    return 0;
  });
  EXPECT_THAT(statuses, Each(0));
  return recorded(folder.path(), 0);
}

std::vector<at::Tensor> ones(at::IntArrayRef shape) { return {at::ones(shape)}; }

TEST(RecordingBackend, NamesOperationShapeTypeAndReduction) {
  const Recorded run = after([](c10d::ProcessGroup& world, Recorder&) {
    auto a = ones({2, 3});
    world.allreduce(a)->wait();
    c10d::AllreduceOptions max;
    max.reduceOp = c10d::ReduceOp::MAX;
    std::vector<at::Tensor> b = {at::ones({4}, at::kLong)};
    world.allreduce(b, max)->wait();
    c10d::BroadcastOptions from_1;
    from_1.rootRank = 1;
    world.broadcast(a, from_1)->wait();
    EXPECT_EQ(a[0].sum().item<double>(), 12);  // the transport really did it
  });
  EXPECT_THAT(run.calls(),
              ElementsAre("all_reduce world:0 float32[2,3] sum", "all_reduce world:1 int64[4] max",
                          "broadcast world:2 float32[2,3]"));
  EXPECT_EQ(run.tables.signatures[run.trace.calls[2].signature].root, 1);
}

TEST(RecordingBackend, RecordsTheNewNamesOfOperationsOnce) {
  const Recorded run = after([](c10d::ProcessGroup& world, Recorder&) {
    at::Tensor part = at::ones({2});
    at::Tensor whole = at::zeros({4});
    const auto backend = world.getDefaultBackend();
    backend->_allgather_base(whole, part)->wait();
    backend->_reduce_scatter_base(part, whole)->wait();
#ifdef C10D_BACKEND_HAS_HOOKS  // Torch 2.15
    backend->all_gather_single(whole, part)->wait();
#else
    backend->_allgather_base(whole, part)->wait();
#endif
  });
  EXPECT_THAT(run.calls(), ElementsAre("all_gather_into_tensor world:0 float32[2]",
                                       "reduce_scatter_tensor world:1 float32[4] sum",
                                       "all_gather_into_tensor world:2 float32[2]"));
}

TEST(RecordingBackend, PointToPointIsCountedApart) {
  const Recorded run = after([](c10d::ProcessGroup& world, Recorder&) {
    auto tensors = ones({3});
    if (world.getRank() == 0) {
      world.send(tensors, 1, 7)->wait();
    } else {
      world.recv(tensors, 0, 7)->wait();
    }
    world.barrier()->wait();
  });
  EXPECT_THAT(run.calls(), ElementsAre("send world:0 float32[3]", "barrier world:0"));
  EXPECT_EQ(run.trace.calls[0].peer, trace::Rank(1));
  EXPECT_EQ(run.trace.calls[0].ptag, 7);
}

TEST(RecordingBackend, ACallIsIssuedThenCompleteThenLetGo) {
  const Recorded run = after([](c10d::ProcessGroup& world, Recorder&) {
    for (int i = 0; i < 20; ++i) {
      auto tensors = ones({64});
      world.allreduce(tensors)->wait();
    }
  });
  std::vector<std::vector<trace::EventKind>> events(run.trace.calls.size());
  for (const trace::Event& event : run.trace.events) events.at(event.index).push_back(event.kind);
  for (const auto& kinds : events) {
    // A fast transport may complete before the program begins to wait.
    EXPECT_THAT(kinds,
                testing::AnyOf(ElementsAre(trace::EventKind::issue, trace::EventKind::wait,
                                           trace::EventKind::complete, trace::EventKind::waited),
                               ElementsAre(trace::EventKind::issue, trace::EventKind::complete,
                                           trace::EventKind::wait, trace::EventKind::waited)));
  }
}

TEST(RecordingBackend, TakesWhatTagStepAndLocationFromTheContext) {
  const Recorded run = after([](c10d::ProcessGroup& world, Recorder& recorder) {
    recorder.context().step = 3;
    auto tensors = ones({1});
    {
      const NoteScope scope(recorder, recorder.note({"a", "b"}, "here"));
      world.allreduce(tensors)->wait();
    }
    world.allreduce(tensors)->wait();
  });
  EXPECT_THAT(run.calls(3), ElementsAre("all_reduce world:0 float32[1] sum a,b #here",
                                        "all_reduce world:1 float32[1] sum"));
  EXPECT_THAT(run.tables.str(run.trace.calls[0].at), testing::StartsWith("recording_test.cc:"));
}

TEST(RecordingBackend, AnErrorOfTheTransportIsRecordedWithItsCall) {
  const TempDir folder;
  const auto statuses = run_ranks(2, folder, [](ProcessGroups& groups, Recorder& recorder) {
    const auto world = groups.make("world", "all");
    if (groups.who().rank == 1) return 0;
    auto tensors = ones({1});
    c10d::AllreduceOptions soon;
    soon.timeout = std::chrono::milliseconds(300);
    try {
      world->allreduce(tensors, soon)->wait();
    } catch (const std::exception& error) {
      recorder.raised(message_of(error));  // again, on its way up: recorded once
      return 5;
    }
    return 0;
  });
  EXPECT_THAT(statuses, ElementsAre(5, 0));
  const Recorded run = recorded(folder.path(), 0);
  ASSERT_EQ(run.trace.exceptions.size(), 1U);
  EXPECT_EQ(run.trace.exceptions[0].call, 0U);
}

// A call of a device: it says how far it is to who asks.
struct AskedWork : c10d::Work {
  using c10d::Work::finish;
  bool isCompleted() override {
    const bool complete = Work::isCompleted();
    if (complete) seen_complete = true;
    return complete;
  }
  std::atomic<bool> begun{false}, seen_complete{false};
};

std::uint32_t issue_barrier(Recorder& recorder, trace::RingWriter::GroupRef group,
                            std::uint32_t seq) {
  trace::RingWriter::SignatureFields fields;
  fields.op = trace::Op::barrier;
  trace::RingWriter::Issue call;
  call.group = group;
  call.seq = seq;
  call.signature = recorder.ring().make_signature(fields);
  return recorder.issue(call);
}

constexpr std::chrono::milliseconds kGenerous{60'000};

void wait_for(const std::function<bool()>& condition) {
  while (!condition()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

TEST(WorkWatch, RecordsWhatADeviceAnswers) {
  const TempDir folder;
  const auto statuses = run_ranks(1, folder, [&](ProcessGroups&, Recorder& recorder) {
    WorkWatch watch(recorder,
                    [](c10d::Work& work) { return dynamic_cast<AskedWork&>(work).begun.load(); });
    const auto group = recorder.ring().make_group("world", std::vector<std::int32_t>{0});
    std::vector<c10::intrusive_ptr<AskedWork>> works;
    for (std::uint32_t i = 0; i < 3; ++i) {
      works.push_back(c10::make_intrusive<AskedWork>());
      watch.follow(works.back(), issue_barrier(recorder, group, i));
    }
    const auto issued = recorder.events();
    works[0]->begun = true;
    wait_for([&] { return recorder.events() == issued + 1; });
    works[1]->begun = true;  // it begins and completes between two looks
    works[1]->finish();
    wait_for([&] { return recorder.events() == issued + 3; });
    works[0]->finish();
    wait_for([&] { return recorder.events() == issued + 4; });
    return recorder.outstanding() ? 0 : 1;  // the third is still under way
  });
  EXPECT_THAT(statuses, ElementsAre(0));
  const Recorded run = recorded(folder.path(), 0);
  ASSERT_EQ(run.trace.calls.size(), 3U);
  for (const int done : {0, 1}) {
    EXPECT_TRUE(run.trace.calls[static_cast<std::size_t>(done)].has(trace::kStarted));
    EXPECT_TRUE(run.trace.calls[static_cast<std::size_t>(done)].has(trace::kCompleted));
  }
  EXPECT_FALSE(run.trace.calls[2].has(trace::kStarted));
  EXPECT_FALSE(run.trace.calls[2].has(trace::kCompleted));
}

TEST(WorkWatch, AFailureIsNoCompletion) {
  const TempDir folder;
  run_ranks(1, folder, [&](ProcessGroups&, Recorder& recorder) {
    WorkWatch watch(recorder, {});
    const auto work = c10::make_intrusive<AskedWork>();
    const auto group = recorder.ring().make_group("world", std::vector<std::int32_t>{0});
    watch.follow(work, issue_barrier(recorder, group, 0));
    work->finish(std::make_exception_ptr(std::runtime_error("NCCL communicator was aborted")));
    watch.look_now(kGenerous);
    recorder.raised("step failed: NCCL communicator was aborted");
    return 0;
  });
  const Recorded run = recorded(folder.path(), 0);
  EXPECT_FALSE(run.trace.calls[0].has(trace::kCompleted));
  EXPECT_EQ(run.trace.exceptions.at(0).call, 0U);  // the failed call is known
}

#ifdef C10D_BACKEND_HAS_HOOKS

// A backend that says when a call completes, and when it aborts.
struct TellingBackend : c10d::Backend {
  TellingBackend() : Backend(0, 1) {}
  bool supportsAbortHooks() const override { return true; }
  void registerAbortHook(int64_t, c10d::AbortHook hook) override { aborts = std::move(hook); }
  bool supportsCompletionHooks() const override { return has_hooks; }
  void registerCompletionHook(int64_t, c10d::CompletionHook hook) override {
    completes = std::move(hook);
  }
  bool has_hooks = true;
  c10d::AbortHook aborts;
  c10d::CompletionHook completes;
};

TEST(BackendHooks, WhatTheBackendSaysIsRecordedAtOnce) {
  const TempDir folder;
  const auto statuses = run_ranks(1, folder, [&](ProcessGroups&, Recorder& recorder) {
    // It would not ask again by itself.
    WorkWatch watch(recorder, {}, std::chrono::hours(1));
    const auto group = recorder.ring().make_group("world", std::vector<std::int32_t>{0});
    TellingBackend backend;
    if (!reports_completion(backend) || !hook_into(backend, watch)) return 1;
    for (std::uint32_t i = 0; i < 2; ++i) {
      const auto work = c10::make_intrusive<AskedWork>();
      watch.follow(work, issue_barrier(recorder, group, i));
      work->finish(i == 0 ? nullptr : std::make_exception_ptr(std::runtime_error("timed out")));
      if (i == 0) backend.completes({});
      if (i == 1) backend.aborts();
      wait_for([&] { return work->seen_complete.load(); });
    }
    watch.look_now(kGenerous);  // what it saw is recorded, too
    recorder.raised("step failed: timed out");
    return 0;
  });
  EXPECT_THAT(statuses, ElementsAre(0));
  const Recorded run = recorded(folder.path(), 0);
  ASSERT_EQ(run.trace.calls.size(), 2U);
  EXPECT_TRUE(run.trace.calls[0].has(trace::kCompleted));
  EXPECT_FALSE(run.trace.calls[1].has(trace::kCompleted));
  EXPECT_EQ(run.trace.exceptions.at(0).call, 1U);
}

TEST(BackendHooks, GlooSaysNothingAndItsFuturesAreAsked) {
  const TempDir folder;
  const auto statuses = run_ranks(1, folder, [&](ProcessGroups& groups, Recorder& recorder) {
    WorkWatch watch(recorder, {}, std::chrono::hours(1));
    TellingBackend silent;
    silent.has_hooks = false;
    const bool gloo = reports_completion(*groups.make("world", "all")->getDefaultBackend());
    return gloo || hook_into(silent, watch) || !silent.aborts ? 1 : 0;
  });
  EXPECT_THAT(statuses, ElementsAre(0));
}

#endif

// A call of a device that answers no question any more.
struct LostWork : c10d::Work {
  bool isCompleted() override { throw std::runtime_error("CUDA error: illegal memory access"); }
};

TEST(WorkWatch, ADeviceThatAnswersNoMoreFailsTheCallAndNotTheProcess) {
  const TempDir folder;
  const auto statuses = run_ranks(1, folder, [&](ProcessGroups&, Recorder& recorder) {
    WorkWatch watch(recorder, {});
    const auto group = recorder.ring().make_group("world", std::vector<std::int32_t>{0});
    watch.follow(c10::make_intrusive<LostWork>(), issue_barrier(recorder, group, 0));
    watch.look_now(kGenerous);
    recorder.raised("step failed: CUDA error: illegal memory access");
    return 0;
  });
  EXPECT_THAT(statuses, ElementsAre(0));
  const Recorded run = recorded(folder.path(), 0);
  EXPECT_FALSE(run.trace.calls[0].has(trace::kCompleted));
  EXPECT_EQ(run.trace.exceptions.at(0).call, 0U);
}

// A call whose end only a wait sees, and that fails.
struct FailingWork : c10d::Work {
  bool wait(std::chrono::milliseconds) override { throw std::runtime_error("peer is gone"); }
};

TEST(RecordingWork, AFailedCallStaysOutstandingHoweverOftenItIsWaitedFor) {
  const TempDir folder;
  const auto statuses = run_ranks(1, folder, [&](ProcessGroups&, Recorder& recorder) {
    const auto group = recorder.ring().make_group("world", std::vector<std::int32_t>{0});
    const auto work = c10::make_intrusive<RecordingWork>(
        c10::make_intrusive<FailingWork>(), recorder, issue_barrier(recorder, group, 0), nullptr);
    for (int i = 0; i < 2; ++i) {
      EXPECT_THROW(work->wait(std::chrono::milliseconds(1)), std::runtime_error);
    }
    if (!recorder.outstanding()) return 1;  // which the watchdog goes by
    recorder.complete(issue_barrier(recorder, group, 1));
    return recorder.outstanding() ? 0 : 2;
  });
  EXPECT_THAT(statuses, ElementsAre(0));
}

TEST(Device, SaysWhatToDoWhereThereIsNone) {
  const auto none = open_device({.transport = Scenario::Backend::nccl});
  ASSERT_FALSE(static_cast<bool>(none));
  EXPECT_THAT(none.error().message, testing::HasSubstr("NCCL carries GPUs' tensors only"));
  const auto cuda = open_device({.kind = DeviceKind::cuda});
  if (cuda) GTEST_SKIP() << "there is a GPU";
  EXPECT_THAT(cuda.error().fix, testing::HasSubstr("--device cpu"));
}

TEST(Device, QueuesCallsOnTheCpuAlone) {
  const auto beside_cuda =
      open_device({.kind = DeviceKind::cuda, .queued = QueuedCalls::per_group});
  ASSERT_FALSE(static_cast<bool>(beside_cuda));
  EXPECT_THAT(beside_cuda.error().message, testing::HasSubstr("LOCKSTEP_QUEUED_CALLS"));
}

TEST(Device, OfTheCpuLeavesTensorsWhereTheyAre) {
  auto cpu = open_device({});
  ASSERT_TRUE(static_cast<bool>(cpu));
  const at::Tensor tensor = at::ones({2});
  EXPECT_TRUE((*cpu)->bring(tensor).is_same(tensor));
  EXPECT_FALSE((*cpu)->bring(at::Tensor()).defined());
  EXPECT_FALSE((*cpu)->memory());
}

}  // namespace
}  // namespace lockstep::runtime
