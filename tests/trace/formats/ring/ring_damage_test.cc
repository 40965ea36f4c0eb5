// Ring files that were cut off, damaged or made to deceive: an error or counted damage, never more.
#include <cstddef>
#include <cstring>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"
#include "tests/support/trace_dump.h"
#include "trace/formats/ring/reader.h"
#include "trace/formats/ring/writer.h"

namespace lockstep::trace {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

constexpr std::size_t kTable = ring::kHeaderBytes;
constexpr std::size_t kRing = kTable + 4096;

// Four calls with their completion, a data mark over three records, and a state: 12 records.
std::string small_ring() {
  const TempDir dir;
  RingWriter::Options options;
  options.path = dir.file("r");
  options.rank = Rank(0);
  options.world_size = 2;
  options.capacity = 16;
  options.table_bytes = 4096;
  auto writer = RingWriter::create(options);
  EXPECT_TRUE(writer);
  RingWriter& w = **writer;
  const std::int32_t ranks[] = {0, 1};
  RingWriter::Issue issue;
  issue.group = w.make_group("world", ranks, "all");
  RingWriter::SignatureFields fields;
  fields.op = Op::all_reduce;
  fields.in = {{4}};
  fields.has_in = true;
  fields.dtypes = {"float32"};
  issue.signature = w.make_signature(fields);
  issue.what = w.intern_names({"a", "b"});
  for (issue.seq = 0; issue.seq < 4; ++issue.seq) w.complete(w.issue(issue));
  const std::int64_t indices[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  w.data(0, indices);
  RingWriter::State state;
  state.name = w.intern("a");
  w.state(state);
  w.finish(End::clean);
  return TempDir::read(options.path);
}

class RingDamageTest : public testing::Test {
 protected:
  Result<RankTrace> read(const std::string& bytes) {
    tables_ = Tables{};
    return read_ring_trace(bytes, "r", tables_);
  }
  std::string error(const std::string& bytes) {
    const Result<RankTrace> trace = read(bytes);
    return trace ? "none" : trace.error().message;
  }
  template <class T>
  std::string with(std::size_t offset, T value) {
    std::string bytes = small_;
    std::memcpy(bytes.data() + offset, &value, sizeof value);
    return bytes;
  }
  std::size_t record(std::size_t number) { return kRing + 64 * number; }

  const std::string small_ = small_ring();
  Tables tables_;
};

TEST_F(RingDamageTest, TheFileIsSoundBefore) {
  const Result<RankTrace> trace = read(small_);
  ASSERT_TRUE(trace);
  EXPECT_EQ(trace->damaged_count, 0U);
  EXPECT_THAT(trace->calls, SizeIs(4));
  EXPECT_THAT(trace->data, SizeIs(1));
}

TEST_F(RingDamageTest, CutAtEveryByteIsAnError) {
  for (std::size_t cut = 0; cut < small_.size(); ++cut) {
    const std::string message = error(small_.substr(0, cut));
    ASSERT_NE(message, "none") << "cut at " << cut;
  }
}

TEST_F(RingDamageTest, HeadersThatLie) {
  using H = ring::Header;
  const std::uint64_t huge = std::uint64_t{1} << 63U;
  EXPECT_EQ(error(with(0, 'X')), "not a ring file, or one cut off in its header");
  EXPECT_EQ(error(with<std::uint32_t>(offsetof(H, version), 3)),
            "ring file version 3 is not known");
  EXPECT_THAT(error(with<std::uint64_t>(offsetof(H, capacity), 0)),
              HasSubstr("not a power of two"));
  EXPECT_THAT(error(with<std::uint64_t>(offsetof(H, capacity), 12)),
              HasSubstr("not a power of two"));
  EXPECT_THAT(error(with(offsetof(H, capacity), huge)), HasSubstr("shorter than its header"));
  EXPECT_THAT(error(with(offsetof(H, table_bytes), huge)), HasSubstr("outside of the file"));
  EXPECT_THAT(error(with(offsetof(H, table_offset), huge)), HasSubstr("outside of the file"));
  EXPECT_THAT(error(with<std::uint64_t>(offsetof(H, table_offset), 8)),
              HasSubstr("outside of the file"));
  EXPECT_THAT(error(with<std::uint64_t>(offsetof(H, ring_offset), kTable)), HasSubstr("overlap"));
  EXPECT_THAT(error(with(offsetof(H, ring_offset), huge)), HasSubstr("shorter than its header"));
  EXPECT_THAT(error(with<std::int32_t>(offsetof(H, world_size), 0)), HasSubstr("world_size 0"));
  EXPECT_THAT(error(with<std::int32_t>(offsetof(H, rank), 2)), HasSubstr("rank 2 is not below"));
}

TEST_F(RingDamageTest, CountersThatLieAreDamage) {
  using H = ring::Header;
  Result<RankTrace> trace = read(with(offsetof(H, written), UINT64_MAX));
  ASSERT_TRUE(trace);
  EXPECT_EQ(trace->damaged_count, 16U);
  trace = read(with(offsetof(H, table_used), UINT64_MAX));
  ASSERT_TRUE(trace);
  EXPECT_GT(trace->damaged_count, 0U);
  EXPECT_THAT(trace->calls, SizeIs(4));
  trace = read(with<std::uint32_t>(offsetof(H, end_mark), 77));
  ASSERT_TRUE(trace);
  EXPECT_EQ(trace->end, End::cut);
  EXPECT_EQ(trace->damaged_count, 1U);
}

TEST_F(RingDamageTest, ARecordThatWasNotWrittenInTheMiddleIsDamageAtTheEndNot) {
  const std::uint64_t none = 0;
  Result<RankTrace> trace = read(with(record(1), none));  // the completion of the first call
  ASSERT_TRUE(trace);
  ASSERT_THAT(trace->damaged, SizeIs(1));
  EXPECT_EQ(trace->damaged[0].message, "record 1: the record was not completely written");
  EXPECT_FALSE(trace->calls[0].has(kCompleted));

  trace = read(with(record(11), none));  // the last one: its call never returned
  ASSERT_TRUE(trace);
  EXPECT_EQ(trace->damaged_count, 0U);
  EXPECT_TRUE(trace->states.empty());
}

TEST_F(RingDamageTest, ADataMarkWithAHoleIsSkipped) {
  const Result<RankTrace> trace = read(with<std::uint64_t>(record(9), 0));
  ASSERT_TRUE(trace);
  EXPECT_TRUE(trace->data.empty());
  EXPECT_EQ(trace->damaged_count, 2U);  // the hole, and the piece after it
}

TEST_F(RingDamageTest, ReferencesOutOfTheTableAreDamage) {
  for (const std::size_t field : {0U, 4U, 8U, 12U, 16U}) {  // group, signature, what, at, tag
    for (const std::uint32_t id : {2U, 500U, 4096U, UINT32_MAX}) {
      const Result<RankTrace> trace = read(with(record(2) + 24 + field, id));
      ASSERT_TRUE(trace);
      EXPECT_GT(trace->damaged_count, 0U) << "field " << field << " id " << id;
      EXPECT_THAT(trace->calls, SizeIs(3));
    }
  }
}

TEST_F(RingDamageTest, ATableEntryLongerThanTheTableHidesWhatFollows) {
  const Result<RankTrace> trace = read(with(kTable + 4, UINT32_MAX));
  ASSERT_TRUE(trace);
  EXPECT_GT(trace->damaged_count, 0U);
  EXPECT_TRUE(trace->calls.empty());
}

// What is read of a damaged file is consistent: dumping it follows every index and every id.
TEST_F(RingDamageTest, EveryFlippedBitIsSurvived) {
  const std::size_t table_used = 400;
  for (std::size_t byte = 0; byte < small_.size(); ++byte) {
    const bool in_use = byte < sizeof(ring::Header) ||
                        (byte >= kTable && byte < kTable + table_used) || byte >= kRing;
    if (!in_use) continue;
    for (unsigned bit = 0; bit < 8; ++bit) {
      const Result<RankTrace> trace =
          read(with(byte, static_cast<char>(small_[byte] ^ static_cast<char>(1U << bit))));
      if (trace) dump(*trace, tables_);
    }
  }
}

TEST_F(RingDamageTest, RandomBytesAreSurvived) {
  for (std::uint32_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    std::string bytes = small_;
    for (int i = 0; i < 20; ++i) {
      const std::size_t at = kTable + random() % (small_.size() - kTable);
      bytes[at] = static_cast<char>(random());
    }
    const Result<RankTrace> trace = read(bytes);
    ASSERT_TRUE(trace);
    dump(*trace, tables_);
  }
}

}  // namespace
}  // namespace lockstep::trace
