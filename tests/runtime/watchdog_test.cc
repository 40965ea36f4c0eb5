#include "runtime/record/watchdog.h"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include "runtime/spawn.h"
#include "support/temp_dir.h"

namespace lockstep {
namespace {

// One rank under a watchdog; `body` gets its recorder, and never returns by itself.
ExitStatus rank_under_watchdog(const TempDir& folder, double hang_after_s,
                               const std::function<void(Recorder&)>& body) {
  const auto statuses = spawn(1, [&](int rank) {
    prepare_process_for_watchdog();
    RingWriter::Options options;
    options.path = folder.file("rank_0.ring");
    options.rank = Rank(rank);
    auto ring = RingWriter::create(options);
    Recorder recorder(**ring);
    const Watchdog watchdog(recorder, {.hang_after_s = hang_after_s});
    body(recorder);
    std::this_thread::sleep_for(std::chrono::seconds(30));
    return 0;
  });
  return statuses.front();
}

std::uint32_t issue(Recorder& recorder) {
  RingWriter::SignatureFields fields;
  fields.op = Op::barrier;
  RingWriter::Issue call;
  call.group = recorder.ring().make_group("world", std::vector<std::int32_t>{0});
  call.signature = recorder.ring().make_signature(fields);
  return recorder.issue(call);
}

TEST(Watchdog, GivesUpWhenACollectiveIsOutstandingAndNothingMoves) {
  const TempDir folder;
  EXPECT_EQ(rank_under_watchdog(folder, 0.2, [](Recorder& recorder) { issue(recorder); }),
            kExitGaveUp);
  EXPECT_EQ(recorded(folder.path(), 0).trace.end, End::hung);
}

TEST(Watchdog, LetsARankComputeForAsLongAsItNeeds) {
  const TempDir folder;
  const auto status = rank_under_watchdog(folder, 0.1, [](Recorder& recorder) {
    recorder.complete(issue(recorder));
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    recorder.ring().finish(End::clean);
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
  EXPECT_EQ(recorded(folder.path(), 0).trace.end, End::hung);
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
  EXPECT_EQ(recorded(folder.path(), 0).trace.end, End::killed);
}

TEST(Watchdog, ASignalAfterTheEndLeavesTheMark) {
  const TempDir folder;
  rank_under_watchdog(folder, 60, [](Recorder& recorder) {
    recorder.ring().finish(End::clean);
    kill(getpid(), SIGTERM);
  });
  EXPECT_EQ(recorded(folder.path(), 0).trace.end, End::clean);
}

}  // namespace
}  // namespace lockstep
