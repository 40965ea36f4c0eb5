#include "runtime/record/watchdog.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>

#include <gmock/gmock.h>

#include "tests/runtime/spawn.h"
#include "tests/support/temp_dir.h"

namespace lockstep::runtime {
namespace {

using ::testing::HasSubstr;
using Body = std::function<void(Recorder&, Watchdog&)>;

// One rank under a watchdog, whose `body` gets its recorder and never returns by itself.
ExitStatus rank_under_watchdog(const TempDir& folder, Watchdog::Options limits, const Body& body) {
  if (limits.stack_file.empty()) limits.stack_file = folder.file("rank_0.stack");
  const auto statuses = spawn(1, [&](int rank) {
    prepare_process_for_watchdog();
    trace::RingWriter::Options options;
    options.path = folder.file("rank_0.ring");
    options.rank = trace::Rank(rank);
    auto ring = trace::RingWriter::create(options);
    Recorder recorder(**ring);
    Watchdog watchdog(recorder, limits);
    body(recorder, watchdog);
    std::this_thread::sleep_for(std::chrono::seconds(30));
    return 0;
  });
  return statuses.front();
}

ExitStatus rank_under_watchdog(const TempDir& folder, double hang_after_s,
                               const std::function<void(Recorder&)>& body) {
  return rank_under_watchdog(folder, {.hang_after_s = hang_after_s},
                             [&](Recorder& recorder, Watchdog&) { body(recorder); });
}

// What blocks, by a name that its stack has.
[[noreturn, gnu::noinline]] void block_for_ever() {
  for (;;) pause();
}

std::string stack_in(const TempDir& folder) { return TempDir::read(folder.file("rank_0.stack")); }

std::uint32_t issue(Recorder& recorder) {
  trace::RingWriter::SignatureFields fields;
  fields.op = trace::Op::barrier;
  trace::RingWriter::Issue call;
  call.group = recorder.ring().make_group("world", std::vector<std::int32_t>{0});
  call.signature = recorder.ring().make_signature(fields);
  return recorder.issue(call);
}

TEST(Watchdog, GivesUpWhenACollectiveIsOutstandingAndNothingMoves) {
  const TempDir folder;
  EXPECT_EQ(rank_under_watchdog(folder, 0.2, [](Recorder& recorder) { issue(recorder); }),
            kExitGaveUp);
  EXPECT_EQ(recorded(folder.path(), 0).trace.end, trace::End::hung);
}

TEST(Watchdog, LetsARankComputeForAsLongAsItNeeds) {
  const TempDir folder;
  const auto status = rank_under_watchdog(folder, 0.1, [](Recorder& recorder) {
    recorder.complete(issue(recorder));
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    recorder.ring().finish(trace::End::clean);
    _exit(0);
  });
  EXPECT_EQ(status, 0);
}

TEST(Watchdog, ASignalDuringAWaitIsAHang) {
  const TempDir folder;
  const auto status = rank_under_watchdog(folder, 60, [](Recorder& recorder) {
    recorder.wait(issue(recorder));
    kill(getpid(), SIGTERM);
  });
  EXPECT_EQ(status, 128 + SIGTERM);
  EXPECT_EQ(recorded(folder.path(), 0).trace.end, trace::End::hung);
}

TEST(Watchdog, ASignalOtherwiseIsAKill) {
  const TempDir folder;
  const auto status = rank_under_watchdog(folder, 60, [](Recorder& recorder) {
    const auto call = issue(recorder);
    recorder.wait(call);
    recorder.complete(call);
    recorder.waited(call);
    kill(getpid(), SIGINT);
  });
  EXPECT_EQ(status, 128 + SIGINT);
  EXPECT_EQ(recorded(folder.path(), 0).trace.end, trace::End::killed);
}

TEST(Watchdog, LeavesTheStackOfTheProgramOfARankThatHangs) {
  const TempDir folder;
  rank_under_watchdog(folder, 0.2, [](Recorder& recorder) {
    issue(recorder);
    block_for_ever();
  });
  EXPECT_THAT(stack_in(folder), HasSubstr("rank 0 gave up: nothing moved for 0.2 s"));
  EXPECT_THAT(stack_in(folder), HasSubstr("Thread 1 (LWP "));
  EXPECT_THAT(stack_in(folder), HasSubstr("pause () from "));
}

TEST(Watchdog, ACallThatFailedAndHoldsTheProgramIsAHang) {
  const TempDir folder;
  const auto status = rank_under_watchdog(folder, 0.2, [](Recorder& recorder) {
    recorder.complete(issue(recorder), "remote process exited");
    block_for_ever();
  });
  EXPECT_EQ(status, kExitGaveUp);
  EXPECT_EQ(recorded(folder.path(), 0).trace.end, trace::End::hung);
}

TEST(Watchdog, BlockedOutsideOfAnyCallBeforeAnythingWasRecordedIsAHang) {
  const TempDir folder;
  const auto status = rank_under_watchdog(folder, 0.2, [](Recorder& recorder) {
    const Recorder::Blocked blocked(recorder, "the connections of a group");
    block_for_ever();
  });
  EXPECT_EQ(status, kExitGaveUp);
  EXPECT_EQ(recorded(folder.path(), 0).trace.end, trace::End::hung);
  EXPECT_THAT(stack_in(folder), HasSubstr("while it waits for the connections of a group"));
}

TEST(Watchdog, LetsRanksComeAsLateAsTheJobMayLast) {
  const TempDir folder;
  const auto status = rank_under_watchdog(folder, 0.1, [](Recorder& recorder) {
    {
      const Recorder::Blocked blocked_here(recorder, "the others", Recorder::Blocked::Limit::total);
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
    }
    recorder.ring().finish(trace::End::clean);
    _exit(0);
  });
  EXPECT_EQ(status, 0);
}

TEST(Watchdog, EndsAComputingRankWhenTheJobHasLastedTooLong) {
  const TempDir folder;
  const auto status =
      rank_under_watchdog(folder, {.hang_after_s = 60, .total_s = 0.2, .grace_s = 0.1},
                          [](Recorder&, Watchdog&) { block_for_ever(); });
  EXPECT_EQ(status, kExitGaveUp);
  EXPECT_EQ(recorded(folder.path(), 0).trace.end, trace::End::killed);
  EXPECT_THAT(stack_in(folder), HasSubstr("limits.total_s (0.2 s) is over"));
}

TEST(Watchdog, EndsARankThatWaitsForOthersToComeWhenTheJobHasLastedTooLong) {
  const TempDir folder;
  rank_under_watchdog(folder, {.hang_after_s = 60, .total_s = 0.2, .grace_s = 0.1},
                      [](Recorder& recorder, Watchdog&) {
                        const Recorder::Blocked blocked_here(recorder, "the others",
                                                             Recorder::Blocked::Limit::total);
                        block_for_ever();
                      });
  EXPECT_EQ(recorded(folder.path(), 0).trace.end, trace::End::hung);
}

TEST(Watchdog, ASignalToARankThatIsBlockedOrWaitsOnADeviceIsAHang) {
  const TempDir store;
  rank_under_watchdog(store, 60, [](Recorder& recorder) {
    const Recorder::Blocked blocked_here(recorder, "the others", Recorder::Blocked::Limit::total);
    kill(getpid(), SIGTERM);
    block_for_ever();
  });
  EXPECT_EQ(recorded(store.path(), 0).trace.end, trace::End::hung);
  EXPECT_THAT(stack_in(store), HasSubstr("#0  "));
  const TempDir device;
  rank_under_watchdog(device, 60, [](Recorder& recorder) {
    issue(recorder);
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    kill(getpid(), SIGTERM);
    block_for_ever();
  });
  EXPECT_EQ(recorded(device.path(), 0).trace.end, trace::End::hung);
}

TEST(Watchdog, WhatAPersonInterruptsIsNoHang) {
  const TempDir folder;
  const auto status = rank_under_watchdog(folder, 60, [](Recorder& recorder) {
    recorder.wait(issue(recorder));
    kill(getpid(), SIGINT);
    block_for_ever();
  });
  EXPECT_EQ(status, 128 + SIGINT);
  EXPECT_EQ(recorded(folder.path(), 0).trace.end, trace::End::killed);
}

// What aborts communicators lets the program go, whose next words would follow the trace's end.
TEST(Watchdog, AbortsWhatHangsAndTheProgramStaysWhereItWas) {
  const TempDir folder;
  const auto status = rank_under_watchdog(
      folder, {.hang_after_s = 0.2}, [&](Recorder& recorder, Watchdog& watchdog) {
        static std::atomic<bool> aborted{false};
        watchdog.abort_by([&] {
          folder.write("aborted", "");
          aborted = true;
        });
        issue(recorder);
        while (!aborted) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        recorder.raised("NCCL communicator was aborted");
        _exit(77);
      });
  EXPECT_EQ(status, kExitGaveUp);
  EXPECT_TRUE(std::filesystem::exists(folder.file("aborted")));
  EXPECT_TRUE(recorded(folder.path(), 0).trace.exceptions.empty());
}

TEST(Watchdog, WaitsForNoAbortThatHangsItself) {
  const TempDir folder;
  const auto status = rank_under_watchdog(folder, {.hang_after_s = 0.2},
                                          [](Recorder& recorder, Watchdog& watchdog) {
                                            watchdog.abort_by([] { block_for_ever(); });
                                            issue(recorder);
                                            block_for_ever();
                                          });
  EXPECT_EQ(status, kExitGaveUp);
}

TEST(Watchdog, NeedsNoLockThatAThreadMayHold) {
  const TempDir folder;
  const auto status = rank_under_watchdog(folder, 0.2, [](Recorder& recorder) {
    flockfile(stderr);
    issue(recorder);
    block_for_ever();
  });
  EXPECT_EQ(status, kExitGaveUp);
}

// A pipe that nobody reads stands for whatever may keep the watchdog itself: the kernel ends the
// rank.
TEST(Watchdog, EndsTheRankEvenIfItIsKeptItself) {
  const TempDir folder;
  ASSERT_EQ(mkfifo(folder.file("pipe").c_str(), 0600), 0);
  const auto status =
      rank_under_watchdog(folder, {.hang_after_s = 0.2, .stack_file = folder.file("pipe")},
                          [](Recorder& recorder, Watchdog&) {
                            issue(recorder);
                            block_for_ever();
                          });
  EXPECT_EQ(status, 128 + SIGKILL);
  EXPECT_EQ(recorded(folder.path(), 0).trace.end, trace::End::hung);
}

TEST(Watchdog, ASignalAfterTheEndLeavesTheMark) {
  const TempDir folder;
  rank_under_watchdog(folder, 60, [](Recorder& recorder) {
    recorder.ring().finish(trace::End::clean);
    kill(getpid(), SIGTERM);
  });
  EXPECT_EQ(recorded(folder.path(), 0).trace.end, trace::End::clean);
}

}  // namespace
}  // namespace lockstep::runtime
