// What a ring file keeps of values and of what a step read: sketches and modalities, every field,
// and what damage to their records leaves.
#include <cmath>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"
#include "trace/formats/ring/reader.h"
#include "trace/formats/ring/writer.h"

namespace lockstep::trace {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

constexpr std::size_t kTableBytes = 4096;
constexpr std::size_t kRecordBytes = 64;

// The bytes of a ring file that `write(writer)` filled.
template <class Write>
std::string ring_bytes(Write write) {
  const TempDir dir;
  RingWriter::Options options;
  options.path = dir.file("r");
  options.rank = Rank(0);
  options.world_size = 1;
  options.capacity = 128;
  options.table_bytes = kTableBytes;
  auto writer = RingWriter::create(options);
  EXPECT_TRUE(writer);
  write(**writer);
  (*writer)->finish(End::clean);
  return TempDir::read(options.path);
}

// Values whose last bit counts, of both signs.
std::vector<double> sketch_of(std::size_t values) {
  std::vector<double> out;
  for (std::size_t i = 0; i < values; ++i) {
    out.push_back((i % 2 == 0 ? 1 : -1) * (static_cast<double>(i) + 1.0 / 3));
  }
  return out;
}

RingWriter::State state_of(RingWriter& writer, std::int64_t n, const std::vector<double>& sketch) {
  RingWriter::State state;
  state.n = n;
  state.name = writer.intern("image.stem.weight");
  state.dtype = writer.intern("bfloat16");
  state.shape = {16, 3, 3, 3};
  state.hash = 0x0123456789abcdefU;
  state.norm = 2.5;
  state.kind = StateMark::Kind::optim;
  state.when = StateMark::When::local;
  state.sharded = true;
  state.sketch = sketch;
  return state;
}

void expect_whole(const Tables& tables, const StateMark& mark, std::int64_t n,
                  const std::vector<double>& sketch) {
  EXPECT_EQ(mark.n, n);
  EXPECT_EQ(tables.str(mark.name), "image.stem.weight");
  EXPECT_EQ(tables.str(mark.dtype), "bfloat16");
  EXPECT_THAT(tables.int_lists[mark.shape], ElementsAre(16, 3, 3, 3));
  EXPECT_EQ(mark.hash, 0x0123456789abcdefU);
  EXPECT_EQ(mark.norm, 2.5);
  EXPECT_EQ(mark.kind, StateMark::Kind::optim);
  EXPECT_EQ(mark.when, StateMark::When::local);
  EXPECT_TRUE(mark.sharded);
  EXPECT_EQ(mark.sketch, sketch);
}

TEST(RingSketch, OfEveryLengthComesBackWithEveryField) {
  std::vector<std::size_t> lengths = {0, 1, 2, 3, 4, 5, 6, 7, 8, 63, 64};
  const std::string bytes = ring_bytes([&](RingWriter& writer) {
    for (const std::size_t k : lengths) {
      writer.state(state_of(writer, static_cast<std::int64_t>(k), sketch_of(k)));
    }
  });
  Tables tables;
  const Result<RankTrace> trace = read_ring_trace(bytes, "r", tables);
  ASSERT_TRUE(trace) << trace.error().str();
  EXPECT_EQ(trace->damaged_count, 0U);
  ASSERT_THAT(trace->states, SizeIs(lengths.size()));
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    SCOPED_TRACE(lengths[i]);
    expect_whole(tables, trace->states[i], static_cast<std::int64_t>(lengths[i]),
                 sketch_of(lengths[i]));
  }
}

TEST(RingSketch, KeepsWhatAStateLeavesOutAndWhatIsNoNumber) {
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<double> odd = {std::nan(""), infinity, -infinity, -0.0, 5e-324};
  const std::string bytes = ring_bytes([&](RingWriter& writer) {
    RingWriter::State bare;
    bare.name = writer.intern("loss_scale");
    bare.has_hash = false;
    bare.norm = std::nan("");
    bare.sketch = odd;
    writer.state(bare);
  });
  Tables tables;
  const Result<RankTrace> trace = read_ring_trace(bytes, "r", tables);
  ASSERT_TRUE(trace);
  ASSERT_THAT(trace->states, SizeIs(1));
  const StateMark& mark = trace->states[0];
  EXPECT_EQ(mark.hash, std::nullopt);
  EXPECT_EQ(mark.norm, std::nullopt);
  EXPECT_EQ(mark.kind, StateMark::Kind::param);
  EXPECT_EQ(mark.when, StateMark::When::unspecified);
  EXPECT_FALSE(mark.sharded);
  ASSERT_THAT(mark.sketch, SizeIs(5));
  EXPECT_TRUE(std::isnan(mark.sketch[0]));
  EXPECT_EQ(mark.sketch[1], infinity);
  EXPECT_EQ(mark.sketch[2], -infinity);
  EXPECT_TRUE(std::signbit(mark.sketch[3]));
  EXPECT_EQ(mark.sketch[4], 5e-324);
}

TEST(RingModality, OfAStepAndOfSamplesComeBack) {
  const std::vector<std::int64_t> samples = {7, 6, 5, 4, 3, 2, 1, 0, 1};
  const std::string bytes = ring_bytes([&](RingWriter& writer) {
    writer.modality(2, writer.intern_names({"text", "image"}));
    writer.modality(3, writer.intern_names({"text"}));
    writer.data(3, samples, writer.intern("text"));
    writer.data(3, std::vector<std::int64_t>{9}, writer.intern("image"));
    writer.data(4, std::vector<std::int64_t>{8});
  });
  Tables tables;
  const Result<RankTrace> trace = read_ring_trace(bytes, "r", tables);
  ASSERT_TRUE(trace);
  EXPECT_EQ(trace->damaged_count, 0U);
  ASSERT_THAT(trace->modalities, SizeIs(2));
  EXPECT_EQ(trace->modalities[0].n, 2);
  EXPECT_THAT(tables.names(trace->modalities[0].has), ElementsAre("image", "text"));
  EXPECT_EQ(trace->modalities[1].n, 3);
  EXPECT_THAT(tables.names(trace->modalities[1].has), ElementsAre("text"));
  ASSERT_THAT(trace->data, SizeIs(3));
  EXPECT_EQ(tables.str(trace->data[0].modality), "text");
  EXPECT_EQ(trace->data[0].indices, samples);
  EXPECT_EQ(tables.str(trace->data[1].modality), "image");
  EXPECT_EQ(tables.str(trace->data[2].modality), "");
}

// A damaged byte may turn a value into another one, which nothing can tell; whatever it does is
// counted or stays inside its own mark.
TEST(RingSketch, DamageToAnyByteOfItsRecordsCostsNoOtherMark) {
  const std::vector<double> eight = sketch_of(8);
  constexpr std::size_t kRecords = 6;  // a state with two pieces, modality, data of two pieces
  const std::string sound = ring_bytes([&](RingWriter& writer) {
    writer.state(state_of(writer, 1, eight));
    writer.state(state_of(writer, 2, eight));
    writer.modality(2, writer.intern_names({"text", "image"}));
    writer.data(2, std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7, 8}, writer.intern("text"));
    writer.state(state_of(writer, 3, eight));
    writer.step(3, 0.5, 8);
  });
  constexpr std::size_t kFirst = 3;  // records of the state before
  const std::size_t begin = ring::kHeaderBytes + kTableBytes + kFirst * kRecordBytes;
  std::size_t counted = 0;
  for (std::size_t at = begin; at < begin + kRecords * kRecordBytes; ++at) {
    for (const unsigned flip : {0x01U, 0x80U, 0xffU}) {
      SCOPED_TRACE("byte " + std::to_string(at - begin) + " flipped by " + std::to_string(flip));
      std::string bytes = sound;
      bytes[at] = static_cast<char>(static_cast<unsigned char>(bytes[at]) ^ flip);
      Tables tables;
      const Result<RankTrace> trace = read_ring_trace(bytes, "r", tables);
      ASSERT_TRUE(trace) << trace.error().str();
      counted += trace->damaged_count > 0 ? 1U : 0U;
      ASSERT_GE(trace->states.size(), 2U);
      expect_whole(tables, trace->states.front(), 1, eight);
      expect_whole(tables, trace->states.back(), 3, eight);
      ASSERT_THAT(trace->steps, SizeIs(testing::Ge(1U)));
      EXPECT_EQ(trace->steps.back().n, 3);
      EXPECT_EQ(trace->end, End::clean);
      if (trace->damaged_count > 0) continue;
      EXPECT_THAT(trace->states, SizeIs(3));
      EXPECT_EQ(trace->modalities.size() + trace->data.size(), 2U);
    }
  }
  EXPECT_GT(counted, kRecords * 3);
}

}  // namespace
}  // namespace lockstep::trace
