// The ring file, written and read.
#include <cmath>
#include <limits>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"
#include "trace/formats/ring/reader.h"
#include "trace/formats/ring/writer.h"

namespace lockstep::trace {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

class RingTest : public testing::Test {
 protected:
  std::unique_ptr<RingWriter> create(std::uint64_t capacity = 1024,
                                     std::uint64_t table_bytes = 1 << 16) {
    RingWriter::Options options;
    options.path = path_;
    options.rank = Rank(1);
    options.world_size = 4;
    options.backend = "gloo";
    options.program = "train";
    options.capacity = capacity;
    options.table_bytes = table_bytes;
    auto writer = RingWriter::create(options);
    EXPECT_TRUE(writer) << (writer ? "" : writer.error().str());
    return std::move(*writer);
  }

  RankTrace read() {
    Result<RankTrace> trace = read_ring_file(path_, tables_);
    EXPECT_TRUE(trace) << (trace ? "" : trace.error().str());
    return std::move(*trace);
  }

  static RingWriter::Issue all_reduce(RingWriter& writer, std::uint32_t seq) {
    RingWriter::SignatureFields fields;
    fields.op = Op::all_reduce;
    fields.in = fields.out = {{2, 3}};
    fields.has_in = fields.has_out = true;
    fields.dtypes = {"float32"};
    fields.redop = "sum";
    RingWriter::Issue issue;
    const std::int32_t ranks[] = {0, 1, 2, 3};
    issue.group = writer.make_group("world", ranks, "everyone");
    issue.signature = writer.make_signature(fields);
    issue.seq = seq;
    return issue;
  }

  TempDir dir_;
  std::string path_ = dir_.file("rank_1.ring");
  Tables tables_;
};

TEST_F(RingTest, ACallAndWhatBecameOfIt) {
  auto writer = create();
  RingWriter::Issue issue = all_reduce(*writer, 0);
  issue.what = writer->intern_names({"a.weight", "a.bias"});
  issue.at = writer->intern("train.cc:7");
  issue.tag = writer->intern("bucket 1");
  issue.step = 5;
  issue.is_async = true;
  issue.thread = 3;
  const std::uint32_t id = writer->issue(issue);
  writer->start(id);
  writer->complete(id);
  writer->wait(id);
  writer->waited(id);
  writer->finish(End::clean);

  const RankTrace trace = read();
  EXPECT_EQ(trace.rank, Rank(1));
  EXPECT_EQ(trace.world_size, 4);
  EXPECT_EQ(trace.backend, "gloo");
  EXPECT_EQ(trace.program, "train");
  EXPECT_EQ(trace.end, End::clean);
  EXPECT_EQ(trace.damaged_count, 0U);
  ASSERT_THAT(trace.calls, SizeIs(1));
  const Call& call = trace.calls[0];
  EXPECT_EQ(tables_.str(call.group), "world");
  EXPECT_THAT(tables_.names(call.what), ElementsAre("a.weight", "a.bias"));
  EXPECT_EQ(tables_.str(call.at), "train.cc:7");
  EXPECT_EQ(tables_.str(call.tag), "bucket 1");
  EXPECT_EQ(call.step, 5);
  EXPECT_EQ(call.thread, 3);
  EXPECT_EQ(call.flags, kAsync | kStarted | kCompleted | kWaitBegan | kWaitEnded);
  const Signature& signature = tables_.signatures[call.signature];
  EXPECT_EQ(signature.op, Op::all_reduce);
  EXPECT_EQ(signature.in_elements, 6);
  EXPECT_EQ(tables_.str(signature.redop), "sum");
  ASSERT_THAT(trace.groups, SizeIs(1));
  EXPECT_THAT(trace.groups[0].ranks, ElementsAre(Rank(0), Rank(1), Rank(2), Rank(3)));
  EXPECT_EQ(tables_.str(trace.groups[0].desc), "everyone");
}

TEST_F(RingTest, TheOrderOfGroupsThatComeWithTheirFirstUseIsNotKnown) {
  auto writer = create();
  const std::int32_t ranks[] = {0, 1};
  writer->make_group("a", ranks);
  writer->make_group("b", ranks, "", RingWriter::Made::first_use);
  writer->make_group("c", ranks);
  const RankTrace trace = read();
  EXPECT_THAT(trace.groups, SizeIs(3));
  EXPECT_EQ(trace.created_in_order, 1U);
}

TEST_F(RingTest, TheMarksOfAStep) {
  auto writer = create();
  writer->modality(3, writer->intern_names({"text", "image"}));
  const std::int64_t samples[] = {9, 8, 7, 6, 5, 4, 3, 2, 1};
  writer->data(3, samples);
  RingWriter::State state;
  state.n = 3;
  state.name = writer->intern("a.weight");
  state.shape = {2, 3};
  state.hash = 0xABCD;
  state.norm = 1.5;
  state.kind = StateMark::Kind::grad;
  state.when = StateMark::When::synced;
  writer->state(state);
  writer->step(3, 0.25, 9);
  writer->step(4, std::numeric_limits<double>::quiet_NaN(), -1);
  writer->exception("out of data");

  const RankTrace trace = read();
  EXPECT_EQ(trace.end, End::cut);
  EXPECT_EQ(trace.damaged_count, 0U);
  ASSERT_THAT(trace.modalities, SizeIs(1));
  EXPECT_THAT(tables_.names(trace.modalities[0].has), ElementsAre("image", "text"));
  ASSERT_THAT(trace.data, SizeIs(1));
  EXPECT_THAT(trace.data[0].indices, ElementsAre(9, 8, 7, 6, 5, 4, 3, 2, 1));
  ASSERT_THAT(trace.states, SizeIs(1));
  EXPECT_EQ(trace.states[0].hash, 0xABCDU);
  EXPECT_EQ(trace.states[0].when, StateMark::When::synced);
  ASSERT_THAT(trace.steps, SizeIs(2));
  EXPECT_EQ(trace.steps[0].loss, 0.25);
  EXPECT_EQ(trace.steps[1].loss, std::nullopt);
  EXPECT_EQ(trace.steps[1].samples, std::nullopt);
  ASSERT_THAT(trace.exceptions, SizeIs(1));
  EXPECT_EQ(trace.exceptions[0].what, "out of data");
}

TEST_F(RingTest, AWrappedRingKeepsTheNewestWithTheirNumbers) {
  auto writer = create(8);
  const std::uint32_t first = writer->issue(all_reduce(*writer, 0));
  for (std::uint32_t seq = 1; seq < 20; ++seq) writer->issue(all_reduce(*writer, seq));
  writer->complete(first);  // of a call that the ring no longer holds

  const RankTrace trace = read();
  EXPECT_EQ(trace.dropped, 13U);
  EXPECT_EQ(trace.damaged_count, 0U);
  ASSERT_THAT(trace.calls, SizeIs(7));
  EXPECT_EQ(trace.calls.front().seq, 13U);
  EXPECT_EQ(trace.calls.back().seq, 19U);
  EXPECT_THAT(trace.first_seq, ElementsAre(testing::Pair(trace.calls[0].group, 13U)));
}

TEST_F(RingTest, TheFirstEndMarkStays) {
  auto writer = create();
  writer->finish(End::hung);
  writer->finish(End::clean);
  EXPECT_EQ(read().end, End::hung);
}

TEST_F(RingTest, AFullTableLosesValuesNotEvents) {
  auto writer = create(1024, 4096);
  RingWriter::Issue issue = all_reduce(*writer, 0);
  issue.what = writer->intern_names({std::string(5000, 'x')});
  EXPECT_EQ(issue.what.id, 0U);
  writer->issue(issue);
  const RankTrace trace = read();
  ASSERT_THAT(trace.calls, SizeIs(1));
  EXPECT_EQ(trace.calls[0].what, NameListId{});
  ASSERT_THAT(trace.damaged, SizeIs(1));
  EXPECT_EQ(trace.damaged[0].message, "1 values had no room in the ring file's table");
}

TEST_F(RingTest, ATailFollowsTheRunningJob) {
  auto writer = create(16);
  Result<RingTail> tail = RingTail::open(path_);
  ASSERT_TRUE(tail);
  EXPECT_EQ(tail->poll().steps, 0);
  EXPECT_TRUE(std::isnan(tail->poll().loss));
  writer->step(0, 2.5, 8);
  EXPECT_EQ(tail->written(), 1U);
  EXPECT_EQ(tail->poll().steps, 1);
  EXPECT_EQ(tail->poll().loss, 2.5);
  EXPECT_GT(tail->poll().last_event, 0);
  for (int n = 1; n < 100; ++n) writer->step(n, 1.0 / n, 8);
  EXPECT_EQ(tail->poll().steps, 100);
  EXPECT_EQ(tail->end(), End::cut);
  writer->finish(End::clean);
  EXPECT_EQ(tail->end(), End::clean);
}

TEST_F(RingTest, ThreadsThatWriteAtOnceLoseNothing) {
  auto writer = create(1 << 16);
  constexpr int kThreads = 4;
  constexpr int kCalls = 2000;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const std::int32_t ranks[] = {0, 1};
      RingWriter::Issue issue = all_reduce(*writer, 0);
      issue.group = writer->make_group("group " + std::to_string(t), ranks);
      for (std::uint32_t seq = 0; seq < kCalls; ++seq) {
        issue.seq = seq;
        writer->complete(writer->issue(issue));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const RankTrace trace = read();
  EXPECT_EQ(trace.damaged_count, 0U);
  EXPECT_EQ(trace.calls.size(), std::size_t{kThreads} * kCalls);
  EXPECT_EQ(trace.events.size(), 2 * trace.calls.size());
  for (const Call& call : trace.calls) EXPECT_TRUE(call.has(kCompleted));
}

}  // namespace
}  // namespace lockstep::trace
