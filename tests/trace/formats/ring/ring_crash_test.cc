// What a ring file holds when its process dies in the middle of recording.
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"
#include "trace/formats/ring/reader.h"
#include "trace/formats/ring/writer.h"

namespace lockstep::trace {
namespace {

constexpr std::uint64_t kCapacity = 1 << 14;

std::unique_ptr<RingWriter> create(const std::string& path) {
  RingWriter::Options options;
  options.path = path;
  options.rank = Rank(0);
  options.world_size = 1;
  options.capacity = kCapacity;
  auto writer = RingWriter::create(options);
  if (!writer) ::_exit(3);
  return std::move(*writer);
}

// Issues and completes calls in a group of its own, without end.
[[noreturn]] void record_for_ever(RingWriter& writer, const std::string& group) {
  const std::int32_t ranks[] = {0};
  RingWriter::SignatureFields fields;
  fields.op = Op::barrier;
  RingWriter::Issue issue;
  issue.group = writer.make_group(group, ranks);
  issue.signature = writer.make_signature(fields);
  const std::int64_t indices[] = {1, 2, 3, 4, 5, 6};
  for (issue.seq = 0;; ++issue.seq) {
    writer.complete(writer.issue(issue));
    writer.data(issue.seq, indices);
  }
}

// Waits until the ring was filled several times over.
void wait_for_laps(const std::string& path) {
  for (int i = 0; i < 2000; ++i) {
    const Result<RingTail> tail = RingTail::open(path);
    if (tail && tail->written() > 3 * kCapacity) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ADD_FAILURE() << "the child records nothing";
}

// All that was published is there and fits together.
void expect_sound(const RankTrace& trace, const Tables& tables) {
  // A thread that dies between reserving a record and publishing it leaves a hole; the other may
  // have gone on after it. Its data mark spans two records.
  EXPECT_LE(trace.damaged_count, 4U);
  EXPECT_GT(trace.dropped, 2 * kCapacity);
  EXPECT_GT(trace.events.size(), kCapacity / 2);
  for (const Call& call : trace.calls) {
    EXPECT_EQ(tables.signatures[call.signature].op, Op::barrier);
  }
  for (const DataMark& mark : trace.data) {
    ASSERT_THAT(mark.indices, testing::ElementsAre(1, 2, 3, 4, 5, 6));
  }
}

TEST(RingCrash, SigkillWhileTwoThreadsRecord) {
  for (int repeat = 0; repeat < 5; ++repeat) {
    const TempDir dir;
    const std::string path = dir.file("r.ring");
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const auto writer = create(path);
      std::thread other([&] { record_for_ever(*writer, "a"); });
      record_for_ever(*writer, "b");
    }
    wait_for_laps(path);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    Tables tables;
    const Result<RankTrace> trace = read_ring_file(path, tables);
    ASSERT_TRUE(trace) << trace.error().str();
    EXPECT_EQ(trace->end, End::cut);
    EXPECT_EQ(trace->pid, child);
    expect_sound(*trace, tables);
  }
}

TEST(RingCrash, AbortLeavesTheLastRecordAndTheEndMark) {
  const TempDir dir;
  const std::string path = dir.file("r.ring");
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto writer = create(path);
    writer->exception("about to abort");
    writer->finish(End::exception);
    ::signal(SIGABRT, SIG_DFL);
    ::abort();
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  Tables tables;
  const Result<RankTrace> trace = read_ring_file(path, tables);
  ASSERT_TRUE(trace);
  EXPECT_EQ(trace->end, End::exception);
  EXPECT_EQ(trace->damaged_count, 0U);
  ASSERT_EQ(trace->exceptions.size(), 1U);
  EXPECT_EQ(trace->exceptions[0].what, "about to abort");
}

// A reader beside a writer that laps it: whatever it gets is consistent.
TEST(RingCrash, ReadingWhileOthersWrite) {
  const TempDir dir;
  const std::string path = dir.file("r.ring");
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) record_for_ever(*create(path), "a");
  wait_for_laps(path);
  for (int i = 0; i < 20; ++i) {
    Tables tables;
    const Result<RankTrace> trace = read_ring_file(path, tables);
    ASSERT_TRUE(trace);
    for (const DataMark& mark : trace->data) {
      ASSERT_THAT(mark.indices, testing::ElementsAre(1, 2, 3, 4, 5, 6));
    }
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace lockstep::trace
