// Digests: what comes back out of one, that merging does not depend on how it is done, and that no
// bytes can do harm.
#include "trace/formats/digest/digest.h"

#include <algorithm>
#include <iterator>
#include <random>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/sha256.h"
#include "tests/support/random_trace.h"
#include "tests/support/sanitized.h"
#include "tests/support/trace_dump.h"
#include "tests/support/trace_lines.h"
#include "tests/support/trace_text.h"
#include "trace/formats/digest/form.h"
#include "trace/formats/digest/values.h"

namespace lockstep::trace {
namespace {

constexpr std::uint32_t kSeeds = kSanitized ? 60 : 300;

std::string digest_of(const std::vector<RankTrace>& traces, const Tables& tables) {
  return write_digest(traces, tables, {"text", {}}).bytes;
}

std::size_t forms_of(const std::vector<std::string>& texts) {
  const auto run = run_from_text(texts);
  return write_digest(run.ranks, run.tables, {"text", {}}).forms;
}

// The digest of several: what `lockstep digest A B` does.
std::string merged(const std::vector<std::string>& digests) {
  Tables tables;
  std::vector<RankTrace> traces;
  for (const std::string& bytes : digests) {
    Result<ReadDigest> read = read_digest(bytes, "d", tables);
    if (!read) {
      ADD_FAILURE() << read.error().str();
      continue;
    }
    std::move(read->traces.begin(), read->traces.end(), std::back_inserter(traces));
  }
  return digest_of(traces, tables);
}

// The same bytes with a checksum that fits them.
std::string resealed(const std::string& digest, const std::string& body) {
  return digest.substr(0, 8) + sha256(body) + body;
}
std::string body_of(const std::string& digest) { return digest.substr(8 + 64); }

// What a digest keeps of a trace.
RankTrace kept(RankTrace trace, const Tables& tables) {
  const auto times = kept_times(trace, tables);
  for (Event& event : trace.events.own()) event.time = kNoTime;
  for (const auto& [event, time] : times) trace.events.own()[event].time = time;
  for (SpanMark& mark : trace.spans.own()) mark.duration = 0;
  return trace;
}

TEST(Digest, GivesBackWhatItTookButTimes) {
  for (std::uint32_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Tables tables;
    const RankTrace trace = random_trace(seed, tables);
    Tables others;
    others.strings.intern("so that ids differ");
    const auto read = read_digest(digest_of({trace}, tables), "d", others);
    ASSERT_TRUE(read) << read.error().str();
    ASSERT_EQ(read->traces.size(), 1U);
    EXPECT_EQ(dump(read->traces[0], others), dump(kept(trace, tables), tables));
  }
}

TEST(Digest, KeepsWhatForeignFormatsTellBesides) {
  Tables tables;
  RankTrace trace = random_trace(3, tables);
  trace.snapshot = trace.open_ended = true;
  trace.progress = {{tables.groups.intern("g"), 7, std::nullopt, 5}};
  trace.first_seq = {{tables.groups.intern("h"), 12}};
  trace.created_in_order = 0;
  trace.longest_open = 5;
  trace.longest_completed = 0;
  trace.add_damage("half a record", 4);
  ASSERT_FALSE(trace.calls.empty()) << "the seed's trace has calls";
  trace.calls.own()[0].stack = tables.strings.intern("f\ng");
  Tables others;
  const auto read = read_digest(digest_of({trace}, tables), "d", others);
  ASSERT_TRUE(read) << read.error().str();
  const RankTrace& back = read->traces[0];
  EXPECT_TRUE(back.snapshot && back.open_ended);
  ASSERT_EQ(back.progress.size(), 1U);
  EXPECT_EQ(others.str(back.progress[0].group), "g");
  EXPECT_EQ(back.progress[0].enqueued, 7U);
  EXPECT_EQ(back.progress[0].started, std::nullopt);
  EXPECT_EQ(back.progress[0].completed, 5U);
  EXPECT_EQ(others.str(back.first_seq.begin()->first), "h");
  EXPECT_EQ(back.longest_open, 5);
  EXPECT_EQ(back.longest_completed, 0);
  EXPECT_EQ(back.damaged_count, trace.damaged_count);
  EXPECT_EQ(back.damaged.back().message, "half a record");
  EXPECT_EQ(back.damaged.back().location.line, 4);
  EXPECT_EQ(others.str(back.calls[0].stack), "f\ng");
}

TEST(Digest, KeepsWhatCouldNotBeReadAndWhatItWasMadeFrom) {
  Tables tables;
  const std::vector<RankTrace> traces = {random_trace(1, tables)};
  const Run::Unreadable file{{"cut off", {"rank_3.ring", 2, 1}, "copy it again"}, Rank(3)};
  const std::string bytes = write_digest(traces, tables, {"nccl-log", {file}}).bytes;
  const auto read = read_digest(bytes, "d", tables);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->origin.format, "nccl-log");
  ASSERT_EQ(read->origin.unreadable.size(), 1U);
  EXPECT_EQ(read->origin.unreadable[0].error.str(), file.error.str());
  EXPECT_EQ(read->origin.unreadable[0].rank, Rank(3));
}

TEST(Digest, MergingIsAssociativeAndCommutative) {
  for (std::uint32_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937 random(seed);
    std::vector<std::string> parts;
    std::vector<RankTrace> all;
    Tables tables;
    for (int part = 0; part < 3; ++part) {
      Tables own;
      std::vector<RankTrace> traces;
      for (std::uint32_t n = random() % 4 + 1; n > 0; --n) {
        const auto one = static_cast<std::uint32_t>(random() % 50);  // some are there twice
        traces.push_back(random_trace(one, own));
        all.push_back(random_trace(one, tables));
      }
      parts.push_back(digest_of(traces, own));
    }
    const std::string& a = parts[0];
    const std::string& b = parts[1];
    const std::string& c = parts[2];
    const std::string whole = merged({a, b, c});
    EXPECT_EQ(merged({merged({a, b}), c}), whole);
    EXPECT_EQ(merged({a, merged({b, c})}), whole);
    EXPECT_EQ(merged({merged({c, a}), b}), whole);
    EXPECT_EQ(merged({c, b, a}), whole);
    std::shuffle(all.begin(), all.end(), random);
    EXPECT_EQ(digest_of(all, tables), whole) << "as if it had been made at once";
  }
}

std::string rank_text(int rank, std::size_t world, const std::string& lines) {
  return header_line(rank, world, {{"host", fmt::format("h{}", rank / 2)}, {"pid", 100 + rank}}) +
         lines;
}

TEST(DigestForms, RanksOfOneRoleInDifferentGroupsShareOne) {
  const auto reduce = [](int id, const std::string& group) {
    return issue_line(id, group, "all_reduce", {{"in", {{8}}}});
  };
  const auto rank = [&](int r, int root, const std::string& more = "") {
    const std::string group = fmt::format("dp{}", r % 2);
    return rank_text(r, 4,
                     group_line(group, {r % 2, r % 2 + 2}) + reduce(0, group) +
                         issue_line(1, group, "broadcast", {{"in", {{8}}}, {"root", root}}) + more);
  };
  EXPECT_EQ(forms_of({rank(0, 0), rank(1, 1), rank(2, 0), rank(3, 1)}), 1U);
  // A root with another group rank, and one more call, are other forms.
  EXPECT_EQ(forms_of({rank(0, 0), rank(1, 3)}), 2U);
  EXPECT_EQ(forms_of({rank(0, 0), rank(1, 1, reduce(2, "dp1"))}), 2U);
}

TEST(DigestForms, TheMiddleOfAPipelineIsOne) {
  std::vector<std::string> texts;
  for (int r = 0; r < 6; ++r) {
    std::string lines = world_line(6);
    int id = 0;
    const auto message = [&](const char* op, int peer) {
      lines += issue_line(id++, "world", op, {{"in", {{4}}}, {"peer", peer}, {"ptag", 1}});
    };
    if (r > 0) message("recv", r - 1);
    if (r < 5) message("send", r + 1);
    texts.push_back(rank_text(r, 6, lines));
  }
  EXPECT_EQ(forms_of(texts), 3U) << "first, middle, last";
}

TEST(DigestForms, TimesMakeNoDifferenceAndEndsDo) {
  const auto rank = [](int r, int t, const std::string& end) {
    return rank_text(r, 2,
                     world_line(2) + issue_line(0, "world", "barrier", {{"t", t}}) +
                         event_line("complete", 0, {{"t", t + 5}}) + end);
  };
  const std::string clean = end_line("clean");
  EXPECT_EQ(forms_of({rank(0, 10, clean), rank(1, 70, clean)}), 1U);
  EXPECT_EQ(forms_of({rank(0, 10, clean), rank(1, 10, "")}), 2U);
}

// A digest with everything in it, small enough to be damaged everywhere.
std::string small_digest() {
  Tables tables;
  std::vector<RankTrace> traces;
  for (const std::uint32_t seed : {3U, 8U, 21U}) traces.push_back(random_trace(seed, tables));
  traces[0].progress = {{tables.groups.intern("g"), 7, 6, 5}};
  return write_digest(traces, tables, {"text", {{{"m", {"f"}, "x"}, Rank(1)}}}).bytes;
}

TEST(DigestDamage, EveryTruncationIsAnError) {
  const std::string whole = small_digest();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    Tables tables;
    const std::string cut(whole.data(), size);
    EXPECT_FALSE(read_digest(cut, "d", tables)) << size;
  }
}

TEST(DigestDamage, EveryFlippedBitIsAnError) {
  std::string bytes = small_digest();
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << bit));
      Tables tables;
      EXPECT_FALSE(read_digest(bytes, "d", tables)) << at << ":" << bit;
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << bit));
    }
  }
}

// Somebody who means harm writes a checksum that fits. What is read then must be a trace that an
// analysis can rely on; dump() goes through every index of it.
TEST(DigestDamage, NoBodyWithARightChecksumDoesHarm) {
  const std::string whole = small_digest();
  const std::string body = body_of(whole);
  std::size_t taken = 0;
  const auto read = [&](const std::string& hostile) {
    Tables tables;
    const auto digest = read_digest(resealed(whole, hostile), "d", tables);
    if (!digest) {
      EXPECT_FALSE(digest.error().message.empty());
      return;
    }
    ++taken;
    for (const RankTrace& trace : digest->traces) dump(trace, tables);
  };
  for (std::size_t at = 0; at < body.size(); ++at) {
    std::string hostile = body;
    for (const int value : {0, 1, 0x7F, 0x80, 0xFF, static_cast<unsigned char>(body[at]) ^ 1,
                            static_cast<unsigned char>(body[at]) ^ 0x40}) {
      hostile[at] = static_cast<char>(value);
      read(hostile);
    }
    read(body.substr(0, at));
    read(body.substr(0, at) + body.substr(at + 1));
    read(body.substr(0, at) + "\x01" + body.substr(at));
  }
  EXPECT_GT(taken, 0U) << "some changes make another digest, or this test tests nothing";
}

TEST(DigestDamage, AFewBytesCannotStandForAllMemory) {
  Tables tables;
  RankTrace trace;
  trace.rank = Rank(0);
  trace.world_size = 100'000;
  const GroupId world = tables.groups.intern("world");
  Signature barrier;
  barrier.op = Op::barrier;
  const SignatureId signature = tables.make_signature(barrier);
  for (std::uint32_t c = 0; c < 10'000; ++c) {
    Call call;
    call.id = c;
    call.seq = c;
    call.group = world;
    call.signature = signature;
    trace.events.push_back({kNoTime, c, EventKind::issue});
    trace.calls.push_back(call);
  }
  const std::string one = digest_of({trace}, tables);
  // The rows stand last: their number, then rank, world size (three bytes), process and columns.
  constexpr std::size_t kRow = 1 + 3 + 1 + kDigestColumns;
  const std::string body = body_of(one);
  const std::string row = body.substr(body.size() - kRow);
  DigestWriter many;
  many.number(1000);
  std::string hostile = body.substr(0, body.size() - kRow - 1) + many.take();
  for (int r = 0; r < 1000; ++r) hostile += (r == 0 ? row : '\x02' + row.substr(1));
  const auto read = read_digest(resealed(one, hostile), "d", tables);
  ASSERT_FALSE(read);
  EXPECT_NE(read.error().message.find("take more than"), std::string::npos) << read.error().message;
}

TEST(DigestDamage, AnUnknownVersionIsNamed) {
  std::string bytes = small_digest();
  bytes[7] = '2';
  Tables tables;
  const auto read = read_digest(bytes, "d", tables);
  ASSERT_FALSE(read);
  EXPECT_NE(read.error().message.find("version"), std::string::npos);
}

TEST(DigestBytes, NumbersOfAllSizesComeBack) {
  DigestWriter out;
  const std::vector<std::int64_t> values = {0, 1, -1, 63, 64, -64, -65, INT64_MAX, INT64_MIN};
  for (const std::int64_t value : values) out.integer(value);
  out.number(UINT64_MAX);
  out.real(-0.5);
  out.text("x");
  DigestReader in(out.bytes());
  for (const std::int64_t value : values) EXPECT_EQ(in.integer(), value);
  EXPECT_EQ(in.number(), UINT64_MAX);
  EXPECT_EQ(in.real(), -0.5);
  EXPECT_EQ(in.text(), "x");
  EXPECT_TRUE(in.done());
  EXPECT_EQ(in.number(), 0U);
  EXPECT_FALSE(in.ok());
  DigestReader endless(std::string_view("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x02", 10));
  endless.number();
  EXPECT_FALSE(endless.ok()) << "more than 64 bits";
}

}  // namespace
}  // namespace lockstep::trace
