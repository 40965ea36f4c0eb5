// Damaged Flight Recorder dumps: what can be read counts, and no rank is accused of the damage.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trace/formats/flight_recorder/inline_dump.h"
#include "tests/trace/formats/pickle_writer.h"
#include "trace/formats/format.h"
#include "verify/verify.h"

namespace lockstep::trace {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

TEST_F(FlightRecorder, PartsThatAreReferredToWithoutEndAreDamage) {
  constexpr int kEntries = 3000;
  for (const char* const part : {"frames", "input_dtypes", "output_dtypes"}) {
    SCOPED_TRACE(part);
    PickleWriter w;
    w.begin_dict().text("entries").begin_list();
    std::uint32_t shared = 0;
    for (int i = 0; i < kEntries; ++i) {
      w.begin_dict().text("process_group").pair("0", "").text("collective_seq_id").integer(i + 1);
      // Not the same call twice in a row, which would be known by its parts.
      w.text("profiling_name").text(i % 2 == 0 ? "nccl:all_reduce" : "nccl:broadcast");
      w.text("state").text("scheduled").text(part);
      if (i == 0) {
        w.begin_list();
        for (int f = 0; f < kEntries; ++f) w.begin_dict().text("line").integer(f).end_dict();
        w.end_list();
        shared = w.memoize();
      } else {
        w.get(shared);
      }
      w.end_dict();
    }
    w.end_list().end_dict();
    write(0, w.finish());
    const trace::Run run = load();
    ASSERT_THAT(run.ranks, SizeIs(1));
    EXPECT_LT(run.ranks[0].calls.size(), std::size_t{kEntries});
    ASSERT_FALSE(run.ranks[0].damaged.empty());
    EXPECT_THAT(run.ranks[0].damaged[0].message, HasSubstr("refers to the same parts too often"));
  }
}

TEST_F(FlightRecorder, APeerThatCanBeNoRankIsDamage) {
  write(0, dump_of_calls({{.name = "nccl:send 0->2147483647", .p2p = true}}, 0));
  const trace::Run run = load();
  ASSERT_THAT(run.ranks, SizeIs(1));
  EXPECT_EQ(run.ranks[0].damaged_count, 1U);
}

TEST_F(FlightRecorder, ADumpThatWasCutOffCountsAsFarAsItGoes) {
  const std::string whole = dump_of_calls({{}, {.seq = 2}, {.seq = 3}}, 2);
  write(0, whole);
  std::size_t calls_before = 0;
  for (std::size_t cut = 0; cut < whole.size(); ++cut) {
    write(1, whole.substr(0, cut));
    const trace::Run run = load();
    if (run.ranks.size() < 2) continue;
    EXPECT_TRUE(run.ranks[1].open_ended);
    EXPECT_GT(run.ranks[1].damaged_count, 0U) << cut;
    EXPECT_GE(run.ranks[1].calls.size(), calls_before);
    calls_before = run.ranks[1].calls.size();
  }
  EXPECT_EQ(calls_before, 3U);
}

TEST_F(FlightRecorder, SurvivesEveryFlippedBit) {
  const std::string good =
      dump_of_calls({{}, {.name = "nccl:send 0->1", .seq = 1, .p2p = true}}, 2);
  Tables tables;
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string bytes = good;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    (void)flight_recorder_format().read({bytes, "f", Rank(0)}, tables);
  }
}

TEST_F(FlightRecorder, EqualDamageIsShownOnce) {
  for (int r = 0; r < 2; ++r) {
    PickleWriter w;
    w.begin_dict().text("entries").begin_list();
    for (int n = 0; n < 3; ++n) w.begin_dict().text("state").text("completed").end_dict();
    w.end_list().end_dict();
    write(r, w.finish());
  }
  const verify::Report report = verify::verify(load());
  ASSERT_THAT(report.findings, SizeIs(1));
  EXPECT_THAT(report.findings[0].message, HasSubstr("6 records"));
  EXPECT_THAT(report.findings[0].evidence, SizeIs(2));
}

// Each rank receives from the next one, which has posted no send. Cut off, one dump lacks that.
TEST_F(FlightRecorder, ARankWhoseDumpIsCutOffIsNotAccusedOfItsMessages) {
  for (int r = 0; r < 3; ++r) {
    const std::string name = fmt::format("nccl:recv {}<-{}", r, (r + 1) % 3);
    const std::string whole = dump_of_calls(
        {{}, {.name = name, .seq = 1, .state = "scheduled", .line = 20, .p2p = true}}, 3, 1);
    write(r, r == 2 ? whole.substr(0, whole.size() - 200) : whole);
  }
  EXPECT_EQ(judged_dumps(load()), "inconclusive");
}

// A flipped bit changes one value of rank 1's dump. Where that contradicts what else the dump says,
// it is damage and no fault of the rank.
class DamagedDump : public FlightRecorder {
 protected:
  static std::vector<DumpedCall> entries() {
    std::vector<DumpedCall> out;
    for (int seq = 1; seq <= 6; ++seq) out.push_back({.seq = seq});
    return out;
  }
  // What is said where rank 1's dump has `from` replaced by `to` at its `nth` occurrence.
  std::string judged(const std::string& from, const std::string& to, int nth = 0) {
    const std::string whole = dump_of_calls(entries(), 3, 6);
    for (int r = 0; r < 3; ++r) write(r, whole);
    EXPECT_EQ(judged_dumps(load()), "clean");
    std::string damaged = whole;
    std::size_t at = damaged.find(from);
    for (; nth > 0; --nth) at = damaged.find(from, at + 1);
    EXPECT_NE(at, std::string::npos);
    damaged.replace(at, from.size(), to);
    write(1, damaged);
    const trace::Run run = load();
    EXPECT_GT(run.ranks[1].damaged_count, 0U);
    return judged_dumps(run);
  }
};

TEST_F(DamagedDump, ANameThatIsKnownButForOneByte) {
  EXPECT_EQ(judged("nccl:all_reduce", "nccl:all_reeuce"), "inconclusive");
  EXPECT_EQ(judged("nccl:all_reduce", "nccl{all_reduce"), "inconclusive");
  EXPECT_EQ(judged("collective_seq_id", "collective_seq_ie"), "inconclusive");
  EXPECT_EQ(judged("Float", "Flo!t"), "inconclusive");
  EXPECT_EQ(judged("entries", "entriec"), "inconclusive");
}

// Recorders of other libraries write their own names before the operation's.
TEST_F(DamagedDump, NamesOfOtherLibrariesAreNoDamage) {
  for (const std::string library : {"hccl", "xccl", "cncl", "rccl", "nccl"}) {
    std::vector<DumpedCall> calls = entries();
    for (DumpedCall& call : calls) call.name = library + ":all_reduce";
    const std::string whole = dump_of_calls(calls, 3, 6);
    for (int r = 0; r < 3; ++r) write(r, whole);
    const trace::Run run = load();
    EXPECT_EQ(judged_dumps(run), "clean") << library;
    EXPECT_EQ(run.ranks[0].damaged_count, 0U) << library;
    calls[3].name = library + ":broadcast";
    write(1, dump_of_calls(calls, 3, 6));
    EXPECT_EQ(judged_dumps(load()), "findings 1") << library;
    calls[3].name = library + ":all_reeuce";
    write(1, dump_of_calls(calls, 3, 6));
    EXPECT_EQ(judged_dumps(load()), "inconclusive") << library;
  }
}

// Rank 1 may have completed the last call, as all others have; the word that says so is damaged.
TEST_F(DamagedDump, AStateThatIsKnownButForOneByte) {
  for (const char* const state : {"scheduled", "sbheduled", "cmmpleted"}) {
    for (int r = 0; r < 3; ++r) {
      std::vector<DumpedCall> calls = entries();
      calls.push_back({.seq = 7, .state = "scheduled"});
      if (r == 1) calls[5].state = state;
      write(r, dump_of_calls(calls, 3, -1));
    }
    const bool stalled = std::string_view(state) != "cmmpleted";
    EXPECT_EQ(judged_dumps(load()), stalled ? "findings 1" : "inconclusive") << state;
  }
}

// A rank that really makes another call is named.
TEST_F(DamagedDump, AnotherOperationIsNoDamage) {
  for (int r = 0; r < 3; ++r) {
    std::vector<DumpedCall> calls = entries();
    if (r == 1) calls[3].name = "nccl:new_operation";
    write(r, dump_of_calls(calls, 3, 6));
  }
  EXPECT_EQ(judged_dumps(load()), "findings 1");
}

// Sizes that do not fit each other may be what is wrong with the rank's program.
TEST_F(DamagedDump, SizesThatDoNotFitAreNoDamage) {
  for (const auto& [input, output] : {std::pair(72, 8), std::pair(75, 8), std::pair(75, 75)}) {
    for (int r = 0; r < 3; ++r) {
      std::vector<DumpedCall> calls = entries();
      if (r == 1) calls[3].elements = input, calls[3].output = output;
      write(r, dump_of_calls(calls, 3, 6));
    }
    EXPECT_EQ(judged_dumps(load()), "findings 1") << input << output;
  }
}

// A rank that made another number of calls before has other numbers from there on.
TEST_F(DamagedDump, ANumberThatSkipsAndComesBack) {
  for (const bool back : {false, true}) {
    for (int r = 0; r < 3; ++r) {
      std::vector<DumpedCall> calls = entries();
      if (r == 1) calls[3].seq = 4 + 64;
      if (r == 1 && !back) calls.resize(4);
      calls.back().state = "scheduled";
      write(r, dump_of_calls(calls, 3, -1));
    }
    EXPECT_EQ(judged_dumps(load()), back ? "inconclusive" : "findings 1");
  }
}

// The process counted the call whose entry is lost: it made it.
TEST_F(DamagedDump, ALostEntryIsNoCallThatTheRankLeftOut) {
  for (const bool lost : {true, false}) {
    for (int r = 0; r < 3; ++r) {
      std::vector<DumpedCall> calls = entries();
      calls.back().state = "scheduled";
      if (r == 1 && lost) calls[3].name = "nccl:send 1->9", calls[3].p2p = true;
      if (r == 1 && !lost) calls.resize(3);
      write(r, dump_of_calls(calls, 3, -1));
    }
    EXPECT_EQ(judged_dumps(load()), lost ? "inconclusive" : "findings 1");
  }
}

TEST_F(DamagedDump, AMessageOfAnotherRank) {
  for (int r = 0; r < 2; ++r) {
    std::vector<DumpedCall> calls = {{}};
    const std::string name = r == 0 ? "nccl:send 0->1" : "nccl:recv 1<-0";
    calls.push_back({.name = name, .seq = 1, .p2p = true});
    calls.push_back({.name = r == 0 ? name : "nccl:recv 0<-0", .seq = 2, .p2p = true});
    write(r, dump_of_calls(calls, 2, -1));
  }
  EXPECT_EQ(judged_dumps(load()), "inconclusive");
}

}  // namespace
}  // namespace lockstep::trace
