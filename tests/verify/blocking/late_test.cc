// Dumps of jobs that may go on: the times of the files tell for how long calls had been open.
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"
#include "tests/support/trace_lines.h"
#include "tests/verify/program.h"
#include "trace/formats/digest/digest.h"
#include "trace/formats/text/text_trace.h"
#include "trace/load.h"
#include "verify/verify.h"

namespace lockstep::verify {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

using Seconds = std::int64_t;

constexpr Seconds kBegin = 1795247719;  // 2026-11-21

struct DumpCall {
  std::string op;                         // "": the ring has lost it
  Seconds issued = 0;                     // after kBegin, as all times here
  std::optional<Seconds> completed = {};  // nothing: it is open
  std::string group = "0";
  int elements = 8;
};
using Calls = std::vector<DumpCall>;

std::string dump_text(const Calls& calls, std::size_t ranks) {
  const auto time = [](Seconds seconds) { return (kBegin + seconds) * 1'000'000'000; };
  std::string members = "0";
  for (std::size_t r = 1; r < ranks; ++r) members += fmt::format(", {}", r);
  LineKeys entries = LineKeys::array(), groups;
  const auto add_group = [&](const std::string& name, const std::string& of) {
    groups[name] = {{"name", name}, {"desc", ""}, {"ranks", "[" + of + "]"}};
  };
  for (const char* const name : {"0", "1"}) add_group(name, members);
  if (ranks == 4) {
    add_group("2", "0, 1");
    add_group("3", "2, 3");
  }
  std::map<std::string, int> collectives;
  int messages = 0;
  bool device_is_free = true;
  std::size_t id = 0;
  for (const DumpCall& call : calls) {
    ++id;
    const bool message =
        call.op.find("->") != std::string::npos || call.op.find("<-") != std::string::npos;
    int& seq = message ? messages : collectives[call.group];
    if (call.op.empty()) {
      ++seq;
      continue;
    }
    entries.push_back({{"record_id", id - 1},
                       {"pg_id", std::stoi(call.group)},
                       {"process_group", {call.group, ""}},
                       {"collective_seq_id", message ? 0 : seq + 1},
                       {"p2p_seq_id", message ? seq + 1 : 0},
                       {"op_id", id},
                       {"profiling_name", "nccl:" + call.op},
                       {"time_created_ns", time(call.issued)},
                       {"input_sizes", {{call.elements}}},
                       {"input_dtypes", {"Float"}},
                       {"output_sizes", {{call.elements}}},
                       {"output_dtypes", {"Float"}},
                       {"state", call.completed   ? "completed"
                                 : device_is_free ? "started"
                                                  : "scheduled"},
                       {"time_discovered_started_ns", 0},
                       {"time_discovered_completed_ns", call.completed ? time(*call.completed) : 0},
                       {"retired", call.completed.has_value()},
                       {"timeout_ms", 600000},
                       {"is_p2p", message}});
    device_is_free = device_is_free && call.completed;
    ++seq;
  }
  return json_line({{"version", "2.10"},
                    {"pg_config", groups},
                    {"pg_status", LineKeys::object()},
                    {"entries", entries}});
}

// The files of a job, last written at that time (nothing: just now).
void write_dumps(const TempDir& folder, const std::vector<Calls>& ranks,
                 std::optional<Seconds> written) {
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const std::string path =
        folder.write(fmt::format("trace_rank_{}", r), dump_text(ranks[r], ranks.size()));
    if (!written) continue;
    const std::chrono::sys_seconds time{std::chrono::seconds(kBegin + *written)};
    std::filesystem::last_write_time(path, std::chrono::file_clock::from_sys(time));
  }
}

Report judge_dumps(const std::vector<Calls>& ranks, std::optional<Seconds> written,
                   const VerifyOptions& options = {}) {
  const TempDir folder;
  write_dumps(folder, ranks, written);
  const auto run = trace::load_run({folder.path()});
  EXPECT_TRUE(run) << (run ? "" : run.error().str());
  return run ? verify(*run, options) : Report{};
}

std::string said_of(const std::vector<Calls>& ranks, std::optional<Seconds> written) {
  return summary(judge_dumps(ranks, written));
}

// Rank 1 of the two did not come to the last call, which rank 0 issued at second 20. One
// call before took so long.
std::vector<Calls> awaiting(Seconds took = 1) {
  const Calls done = {{"all_reduce", 10 - took, 10}, {"all_reduce", 15, 16}};
  Calls waiting = done;
  waiting.push_back({"all_reduce", 20});
  return {waiting, done};
}

constexpr std::string_view kInconclusive = "verdict inconclusive";
constexpr std::string_view kStall = "host-stall error observed culprits=1";

TEST(LateRanks, AreNoFindingWhereTheFilesAreAsOldAsTheWait) {
  const Report report = judge_dumps(awaiting(), 20);
  EXPECT_EQ(summary(report), kInconclusive);
  ASSERT_FALSE(report.unknown.empty());
  EXPECT_THAT(
      report.unknown[0],
      HasSubstr("it may just be late; by the times of the files, no call had been open for "
                "more than 1 s when they were written; take the dumps again a minute later"));
  // Whoever knows that it hung is told who is to blame.
  EXPECT_THAT(report.unknown, testing::Contains(HasSubstr("--hung")));
  VerifyOptions hung;
  hung.hung = true;
  EXPECT_THAT(summary(judge_dumps(awaiting(), 20, hung)), StartsWith(kStall));
}

// A job's first call, or dumps of active calls only: other calls do not show how long one takes.
TEST(LateRanks, AreNoFindingWithinAMinuteWhereNoCallCompleted) {
  const std::vector<Calls> ranks = {{{"all_reduce", 20}}, {}, {{"all_reduce", 20}}};
  EXPECT_EQ(said_of(ranks, 30), kInconclusive);
  EXPECT_EQ(said_of(ranks, 79), kInconclusive);
  EXPECT_THAT(said_of(ranks, 81), StartsWith(kStall));
}

TEST(LateRanks, AreFoundWhereTheOthersWaitedForLongerThanBefore) {
  EXPECT_THAT(said_of(awaiting(), 22), StartsWith(kStall));
  EXPECT_THAT(said_of(awaiting(), 620), StartsWith(kStall));
  // Another call took ten seconds.
  EXPECT_EQ(said_of(awaiting(10), 29), kInconclusive);
  EXPECT_THAT(said_of(awaiting(10), 30), StartsWith(kStall));
  // A minute is long, however long a call took before.
  EXPECT_EQ(said_of(awaiting(3600), 79), kInconclusive);
  EXPECT_THAT(said_of(awaiting(3600), 80), StartsWith(kStall));
}

TEST(LateRanks, ADamagedTimeDoesNotTell) {
  constexpr Seconds kDecades = 1'000'000'000;
  std::vector<Calls> ranks = awaiting();
  ranks.push_back(ranks[0]);
  ranks[0].back().issued = -kDecades;
  EXPECT_EQ(said_of(ranks, 20), kInconclusive);
  EXPECT_THAT(said_of(ranks, 620), StartsWith(kStall));
  ranks = awaiting();
  ranks[0][0].completed = kDecades;
  EXPECT_EQ(said_of(ranks, 20), kInconclusive);
  EXPECT_THAT(said_of(ranks, 620), StartsWith(kStall));
  // Several: then it is the file's time that does not tell.
  ranks[0][1].completed = kDecades;
  EXPECT_THAT(said_of(ranks, 20), StartsWith(kStall));
}

TEST(LateRanks, ALostEntryDoesNotTell) {
  std::vector<Calls> ranks = awaiting();
  ranks[0].push_back({"all_gather", 20});
  ranks[0].push_back({"all_reduce", 20});
  const auto said = [&](Seconds written) {
    const TempDir folder;
    write_dumps(folder, ranks, written);
    std::string text = TempDir::read(folder.file("trace_rank_0"));
    const std::string_view name = R"("profiling_name":"nccl:all_gather",)";
    EXPECT_NE(text.find(name), std::string::npos) << text;
    text.erase(text.find(name), name.size());
    const auto time = std::filesystem::last_write_time(folder.file("trace_rank_0"));
    std::filesystem::last_write_time(folder.write("trace_rank_0", text), time);
    const auto run = trace::load_run({folder.path()});
    EXPECT_TRUE(run);
    return run ? summary(verify(*run, {})) : "";
  };
  EXPECT_EQ(said(20), kInconclusive);
  EXPECT_THAT(said(620), HasSubstr(kStall));
}

// One rank that waits for long shows that the job stands, whatever the others do.
TEST(LateRanks, AreFoundWhereOneRankWaitsForLong) {
  std::vector<Calls> ranks = awaiting();
  ranks.push_back(ranks[0]);
  EXPECT_EQ(said_of(ranks, 20), kInconclusive);
  ranks[2].back().issued = 17;
  EXPECT_THAT(said_of(ranks, 20), StartsWith(kStall));
}

// Rank 0 issued its next call at second 20 and its device came to it at second 50, when rank 1 came
// to the barrier before it.
TEST(LateRanks, AreNoFindingWhereTheCallBeforeHasJustCompleted) {
  const auto ranks = [](Seconds ended) {
    const Calls start = {{"all_reduce", 10, 11}, {"all_reduce", 15, 16}};
    std::vector<Calls> out = {start, start};
    out[0].push_back({"all_reduce", 19, ended});
    out[0].push_back({"all_reduce", 20});
    out[1].push_back({"all_reduce", ended, ended});
    return out;
  };
  EXPECT_EQ(said_of(ranks(50), 51), kInconclusive);
  EXPECT_EQ(said_of(ranks(50), 80), kInconclusive);  // the barrier took as long
  EXPECT_THAT(said_of(ranks(50), 82), StartsWith(kStall));
  EXPECT_THAT(said_of(ranks(20), 22), StartsWith(kStall));
}

// The hosts of ranks 0 and 1 ran ahead: their rings hold nothing but queued calls. The device of
// rank 2 completed the last call before these at second 50.
TEST(LateRanks, AreNoFindingWhereRingsHoldQueuedCallsAlone) {
  const Calls queued = {{""}, {""}, {"all_reduce", 10}, {"all_reduce", 10}};
  const Calls late = {{"all_reduce", 15, 16}, {"all_reduce", 49, 50}};
  EXPECT_EQ(said_of({queued, queued, late}, 50), kInconclusive);
  constexpr std::string_view kLate = "host-stall error observed culprits=2";
  EXPECT_THAT(said_of({queued, queued, late}, 52), StartsWith(kLate));
  // No other rank's ring tells when the call before these completed.
  EXPECT_THAT(said_of({queued, queued, {}}, 90), StartsWith(kLate));
}

// A checkpoint comes after every second step, and the ranks were dumped one after the other, rank 2
// first. Rank 1 completed both of its barriers, so rank 2 came to them, if after its dump.
TEST(LateRanks, DidNotPassByACallThatAnotherRankCompleted) {
  // The calls from number `first` on.
  const auto rank = [](std::size_t first, Calls calls) {
    calls.insert(calls.begin(), first, DumpCall{""});
    return calls;
  };
  const auto step = [](Calls& out, bool completed = true) {
    for (const int elements : {64, 32, 1}) {
      out.push_back({"all_reduce", 19, 20, "0", elements});
      if (!completed) out.back().completed.reset();
    }
  };
  const DumpCall done = {"all_reduce_barrier", 19, 20, "0", 1};
  const DumpCall open = {"all_reduce_barrier", 20, {}, "0", 1};
  Calls two_steps;
  step(two_steps);
  Calls behind = two_steps;
  step(behind, false);
  step(two_steps);
  const auto after = [](Calls calls, const Calls& more) {
    calls.insert(calls.end(), more.begin(), more.end());
    return calls;
  };
  Calls ahead = {done, done};
  step(ahead);
  step(ahead, false);
  const Calls first = rank(1, after({done}, after(two_steps, {done})));
  const Calls third = rank(0, after({done, done}, behind));
  const Calls fourth = rank(2, after(two_steps, {done, open}));
  EXPECT_EQ(said_of({first, rank(8, ahead), third, fourth}, 20), kInconclusive);
  // Where no rank did, rank 2 may have left it out.
  EXPECT_NE(said_of({first, fourth, third, fourth}, 620), kInconclusive);
}

TEST(LateRanks, AreFoundWhereTheTimesOfTheFilesWereLost) {
  EXPECT_THAT(said_of(awaiting(), 10), StartsWith(kStall));  // older than what they hold
  EXPECT_THAT(said_of(awaiting(), std::nullopt), StartsWith(kStall));
  const TempDir folder;
  write_dumps(folder, awaiting(), 20);
  std::filesystem::last_write_time(folder.file("trace_rank_0"),
                                   std::chrono::file_clock::from_sys(std::chrono::sys_seconds{}));
  const auto run = trace::load_run({folder.path()});
  ASSERT_TRUE(run) << run.error().str();
  EXPECT_THAT(summary(verify(*run)), StartsWith(kStall));
}

TEST(LateRanks, MayBeOnesWhoseDeviceIsBehind) {
  // Rank 0 waits for the device of rank 1, which is in the call before.
  const std::vector<Calls> ranks = {
      {{"all_reduce", 0, 1}, {"all_reduce", 19, 20}, {"all_reduce", 20}},
      {{"all_reduce", 0, 1}, {"all_reduce", 20}, {"all_reduce", 20}}};
  EXPECT_EQ(said_of(ranks, 20), kInconclusive);
  EXPECT_THAT(said_of(ranks, 80), StartsWith("device-stall error observed culprits=1"));
  // All are in one call.
  const std::vector<Calls> together = {{{"all_reduce", 20}}, {{"all_reduce", 20}}};
  EXPECT_EQ(said_of(together, 20), kInconclusive);
  EXPECT_THAT(said_of(together, 80), StartsWith("device-stall"));
}

// However young, a cycle never ends, and calls that do not fit never will.
TEST(LateRanks, DoNotExcuseCyclesAndMismatches) {
  const auto expect = [](const std::string& what, const std::vector<Calls>& ranks) {
    EXPECT_THAT(said_of(ranks, 20), StartsWith(what + " error"));
    EXPECT_EQ(said_of(ranks, 20), said_of(ranks, 620)) << what;
  };
  const Calls ab = {{"all_reduce", 20, {}, "0"}, {"all_reduce", 20, {}, "1"}};
  expect("cross-group-deadlock", {ab, {ab[1], ab[0]}});
  expect("p2p-cycle",
         {{{"recv 0<-1", 20}, {"send 0->1", 20}}, {{"recv 1<-0", 20}, {"send 1->0", 20}}});
  expect("size-mismatch", {{{"all_reduce", 20}}, {{"all_reduce", 20, {}, "0", 9}}});
  expect("p2p-size", {{{"send 0->1", 20}}, {{"recv 1<-0", 20, {}, "0", 9}}});
}

// Nor does it end where a rank went past the call in which others wait, and waits for them now.
TEST(LateRanks, DoNotExcuseACallThatWasPassedBy) {
  const auto ranks = [](bool passes) {
    const DumpCall reduce = {"all_reduce", 9, 10}, late = {"all_reduce", 20};
    const DumpCall send = {"send 1->2", 11, 12}, recv = {"recv 2<-1", 11, 12};
    std::vector<Calls> out = {{reduce, reduce, late},
                              {reduce, send, reduce, send},
                              {reduce, recv, reduce, recv, late, {"recv 2<-1", 20}}};
    if (passes) out[1].push_back({"send 1->2", 20});
    return out;
  };
  EXPECT_THAT(said_of(ranks(true), 20), StartsWith("missing-collective error observed culprits=1"));
  EXPECT_EQ(said_of(ranks(true), 20), said_of(ranks(true), 620));
  // The look-alike: it may still come to the call.
  EXPECT_EQ(said_of(ranks(false), 20), kInconclusive);
}

// A job that averages its loss in every second step, in two groups, and has a barrier after every
// third. Rank 2 is in the loss of its sixth step. Its round since the loss before has no barrier,
// as the one before that had, but ranks 0 and 1 came to the barrier after that very loss.
//
//   ranks 0-1   … grads barrier | grads loss | grads | grads loss barrier
//   rank 2      … grads barrier | grads loss | grads | grads loss
//   rank 3      … grads barrier | grads loss | grads | grads recv
TEST(LateRanks, DidNotPassByABarrierOfEveryThirdStep) {
  const auto ring = [](const std::string& group, const Calls& last) {
    const DumpCall lost = {"", 0, {}, group}, barrier = {"all_reduce_barrier", 9, 10, "0", 1};
    const DumpCall grads = {"all_reduce", 9, 10, group, 64}, loss = {"all_reduce", 9, 10, group, 1};
    Calls calls = {lost, lost, lost, grads, barrier, grads, loss, grads, grads};
    calls.insert(calls.end(), last.begin(), last.end());
    return calls;
  };
  const Calls ahead =
      ring("2", {{"all_reduce", 9, 10, "2", 1}, {"all_reduce_barrier", 20, {}, "0", 1}});
  EXPECT_EQ(said_of({ahead, ahead, ring("3", {{"all_reduce", 20, {}, "3", 1}}),
                     ring("3", {{"recv 3<-0", 20}})},
                    20),
            kInconclusive);
}

// Each rank waits for a call that the other one may still issue.
TEST(LateRanks, MayBeTwoThatAwaitEachOther) {
  const std::vector<Calls> ranks = {{{"all_reduce", 20, {}, "0"}}, {{"all_reduce", 20, {}, "1"}}};
  EXPECT_EQ(said_of(ranks, 20), kInconclusive);
  EXPECT_THAT(said_of(ranks, 620), testing::EndsWith("verdict findings"));
}

TEST(LateRanks, AreAsLateInCopiesOfOtherForms) {
  for (const Seconds written : {20, 80}) {
    const TempDir folder, texts, digests;
    write_dumps(folder, awaiting(), written);
    auto run = trace::load_run({folder.path()});
    ASSERT_TRUE(run) << run.error().str();
    for (trace::RankTrace& trace : run->ranks) {
      trace.converted_from = "flight-recorder";
      std::ostringstream text;
      trace::write_text_trace(text, trace, run->tables);
      texts.write(fmt::format("rank_{}.trace.jsonl", trace.rank.value), text.str());
    }
    const std::string expected = summary(verify(*run));
    const auto loaded = trace::load_traces({folder.path()});
    ASSERT_TRUE(loaded) << loaded.error().str();
    digests.write("all.digest",
                  trace::write_digest(loaded->traces, loaded->tables,
                                      {std::string(loaded->format->name), loaded->unreadable})
                      .bytes);
    for (const TempDir* const copy : {&texts, &digests}) {
      const auto read = trace::load_run({copy->path()});
      ASSERT_TRUE(read) << read.error().str();
      EXPECT_EQ(summary(verify(*read)), expected) << written;
    }
  }
}

// Dumps of two ranks whose rings lost their first messages, with a call open for so long.
std::string said_of_rings(const std::vector<std::string>& ranks, Seconds open) {
  trace::Run run =
      program({"backend nccl; " + ranks[0] + "; hung", "backend nccl; " + ranks[1] + "; hung"});
  for (trace::RankTrace& trace : run.ranks) {
    trace.snapshot = true;
    trace.dropped = 5;
    trace.longest_open = open * 1'000'000'000;
    trace.longest_completed = 0;
  }
  return summary(verify(run));
}

// Rank 1 may have received the first message after rank 0 was dumped, and lost it from its ring.
TEST(LateRanks, RingsOfAMovingJobDoNotShowWhichMessagesPair) {
  const std::vector<std::string> sizes = {"send peer=1 n=12 async open; send peer=1 n=8 async open",
                                          "recv peer=0 n=8 async open"};
  EXPECT_EQ(said_of_rings(sizes, 0), kInconclusive);
  EXPECT_THAT(said_of_rings(sizes, 600), StartsWith("p2p-size error observed"));
}

TEST(LateRanks, RingsOfAMovingJobShowNoCycleOfMessages) {
  const std::vector<std::string> cycle = {"recv peer=1 async open; send peer=1 async open",
                                          "recv peer=0 async open; send peer=0 async open"};
  EXPECT_EQ(said_of_rings(cycle, 0), kInconclusive);
  EXPECT_THAT(said_of_rings(cycle, 600), StartsWith("p2p-cycle error observed"));
}

}  // namespace
}  // namespace lockstep::verify
