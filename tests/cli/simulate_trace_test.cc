// `lockstep simulate trace` on programs that hang and on their healthy twins: what hangs is
// reported by the verifier's rules, and never ends silently.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/run_lockstep.h"
#include "tests/support/temp_dir.h"
#include "tests/support/trace_lines.h"
#include "tests/verify/program.h"
#include "verify/verify.h"

namespace lockstep::sim {
namespace {

using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Simulated {
  int status = 0;
  Json json;
  std::string text;

  std::string rule() const { return json["report"]["findings"][0]["rule"]; }
  std::vector<int> culprits() const { return json["report"]["findings"][0]["culprits"]; }
};

Simulated simulate_texts(const std::vector<std::string>& texts,
                         const std::vector<std::string>& more = {}) {
  const TempDir folder;
  for (std::size_t r = 0; r < texts.size(); ++r)
    folder.write(fmt::format("rank_{}.trace.jsonl", r), texts[r]);
  const std::string json = folder.file("out.json");
  std::vector<std::string> arguments = {"simulate", "trace",    folder.path(), "--alpha",
                                        "1us",      "--output", "json=" + json};
  if (std::find(more.begin(), more.end(), "--beta") == more.end())
    arguments.insert(arguments.end(), {"--beta", "1GB/s"});
  arguments.insert(arguments.end(), more.begin(), more.end());
  const cli::Outcome outcome = cli::run_lockstep(arguments);
  EXPECT_EQ(outcome.err, "");
  cli::expect_fits_a_terminal(outcome.out);
  return {outcome.status, Json::parse(TempDir::read(json)), outcome.out};
}

Simulated simulate(const std::vector<std::string>& programs) {
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < programs.size(); ++r) {
    texts.push_back(verify::program_text(static_cast<std::int32_t>(r),
                                         static_cast<std::int32_t>(programs.size()), programs[r],
                                         false));
  }
  return simulate_texts(texts);
}

// Eight ranks that all do `usual`, but rank 3.
std::vector<std::string> but_rank_3(const std::string& usual, const std::string& unusual) {
  std::vector<std::string> programs(8, usual);
  programs[3] = unusual;
  return programs;
}

const std::string kUsual =
    "all_reduce n=1000 dtype=float32 what=a step=0; all_reduce n=2000 dtype=float32 what=b step=0;"
    "all_gather n=500 dtype=float32 what=c step=0; clean";

TEST(SimulateTrace, AHealthyProgramTakesWhatTheFormulasSay) {
  const Simulated s = simulate(but_rank_3(kUsual, kUsual));
  EXPECT_EQ(s.status, 0) << s.text;
  // Rings over 8 ranks at 1 us and 1 GB/s: 14 us + 1.75 · 4000 ns, 14 us + 1.75 · 8000 ns, and the
  // gathered 16000 bytes: 7 us + 14000 ns.
  EXPECT_EQ(s.json["time_ps"], 21'000'000 + 28'000'000 + 21'000'000);
  EXPECT_EQ(s.json["classes"], 1);
  EXPECT_EQ(s.json["stuck"], false);
}

TEST(SimulateTrace, ARankThatLeavesOutACallHangsTheJobAndIsNamed) {
  const Simulated s = simulate(but_rank_3(
      kUsual,
      "all_reduce n=1000 dtype=float32 what=a step=0; all_gather n=500 dtype=float32 what=c step=0;"
      "clean"));
  EXPECT_EQ(s.status, 1);
  EXPECT_EQ(s.json["stuck"], true);
  EXPECT_EQ(s.culprits(), std::vector<int>{3}) << s.text;
  EXPECT_EQ(s.rule(), "missing-collective") << s.text;
  EXPECT_NE(s.text.find("The simulated job hangs at"), std::string::npos);
}

TEST(SimulateTrace, ARankThatSwapsTwoCallsHangsTheJobAndIsNamed) {
  const Simulated s = simulate(but_rank_3(
      kUsual,
      "all_reduce n=1000 dtype=float32 what=a step=0; all_gather n=500 dtype=float32 what=c step=0;"
      "all_reduce n=2000 dtype=float32 what=b step=0; clean"));
  EXPECT_EQ(s.status, 1);
  EXPECT_EQ(s.culprits(), std::vector<int>{3}) << s.text;
}

TEST(SimulateTrace, ARankThatGivesAnotherSizeHangsTheJobAndIsNamed) {
  const Simulated s = simulate(but_rank_3(kUsual,
                                          "all_reduce n=1000 dtype=float32 what=a step=0; "
                                          "all_reduce n=2001 dtype=float32 what=b step=0;"
                                          "all_gather n=500 dtype=float32 what=c step=0; clean"));
  EXPECT_EQ(s.status, 1);
  EXPECT_EQ(s.culprits(), std::vector<int>{3}) << s.text;
}

TEST(SimulateTrace, ASubgroupWhoseMembersTakeAnotherPathHangs) {
  const std::string left = "group tp0 0,1; ";
  const std::string right = "group tp1 2,3; ";
  const std::string both =
      "all_reduce g=tpX n=8 dtype=float32 step=0; all_reduce n=8 dtype=float32 "
      "step=0; clean";
  const auto in = [&](const std::string& group, std::string text) {
    for (std::size_t at; (at = text.find("tpX")) != std::string::npos;) text.replace(at, 3, group);
    return text;
  };
  const std::string l = left + in("tp0", both);
  const std::string r = right + in("tp1", both);
  const std::string skips = right + "all_reduce n=8 dtype=float32 step=0; clean";
  EXPECT_EQ(simulate({l, l, r, r}).status, 0);
  const Simulated s = simulate({l, l, r, skips});
  EXPECT_EQ(s.status, 1);
  EXPECT_EQ(s.json["report"]["verdict"], "findings");
}

TEST(SimulateTrace, SendsThatWaitForEachOtherHang) {
  const std::string tail = " n=8 dtype=float32 ptag=0";
  const Simulated s = simulate({"send peer=1" + tail + "; recv peer=1" + tail + "; clean",
                                "send peer=0" + tail + "; recv peer=0" + tail + "; clean"});
  EXPECT_EQ(s.status, 1);
  EXPECT_EQ(s.rule(), "p2p-cycle") << s.text;
  const Simulated ok = simulate({"send peer=1" + tail + "; recv peer=1" + tail + "; clean",
                                 "recv peer=0" + tail + "; send peer=0" + tail + "; clean"});
  EXPECT_EQ(ok.status, 0) << ok.text;
  EXPECT_EQ(ok.json["time_ps"], 2 * (1'000'000 + 32'000));
}

// Both ranks enqueue a call of each group and then wait for both.
std::vector<std::string> opposite_orders(const std::string& stream_a, const std::string& stream_b) {
  std::vector<std::string> texts;
  for (const int rank : {0, 1}) {
    const auto issue = [&](int id, const std::string& group, const std::string& stream) {
      return issue_line(id, group, "all_reduce",
                        {{"in", {{8}}},
                         {"out", {{8}}},
                         {"dtype", "float32"},
                         {"async", true},
                         {"stream", stream}});
    };
    std::string text = header_line(rank, 2, {{"backend", "nccl"}}) + group_line("a", {0, 1}) +
                       group_line("b", {0, 1});
    text += rank == 0 ? issue(0, "a", stream_a) + issue(1, "b", stream_b)
                      : issue(0, "b", stream_b) + issue(1, "a", stream_a);
    for (const int id : {0, 1}) text += event_line("wait", id) + event_line("waited", id);
    texts.push_back(text + end_line("clean"));
  }
  return texts;
}

TEST(SimulateTrace, TwoGroupsInOppositeOrdersHangOnOneStreamAndNotOnTwo) {
  EXPECT_EQ(simulate_texts(opposite_orders("one", "two")).status, 0);
  const Simulated s = simulate_texts(opposite_orders("one", "one"));
  EXPECT_EQ(s.status, 1);
  EXPECT_EQ(s.rule(), "cross-group-deadlock") << s.text;
}

TEST(SimulateTrace, ASkippedImageBranchHangsAndDummyFillDoesNot) {
  const std::string full =
      "modality 0 image,text; all_reduce n=64 dtype=float32 what=text.w step=0; "
      "all_reduce n=64 dtype=float32 what=image.w step=0; barrier step=0; clean";
  const std::string masked =
      "modality 0 text; all_reduce n=64 dtype=float32 what=text.w step=0; barrier step=0; clean";
  const std::string filled =
      "modality 0 text; all_reduce n=64 dtype=float32 what=text.w step=0; "
      "all_reduce n=64 dtype=float32 what=image.w step=0; barrier step=0; clean";
  const Simulated s = simulate({full, full, masked, full});
  EXPECT_EQ(s.status, 1);
  EXPECT_EQ(s.rule(), "modality-divergence") << s.text;
  EXPECT_EQ(s.culprits(), std::vector<int>{2});
  EXPECT_EQ(simulate({full, full, filled, full}).status, 0);
}

// A copy that ends in the middle leaves out calls for which the others wait in the simulation. The
// same of a healthy job that loses what nobody waits for is said with its time.
TEST(SimulateTrace, SaysThatItsTracesWereCutOff) {
  const std::string program =
      "all_reduce n=64 dtype=float32 what=a step=0; all_reduce n=64 dtype=float32 what=b step=0; "
      "clean";
  std::vector<std::string> texts;
  for (std::int32_t rank = 0; rank < 2; ++rank)
    texts.push_back(verify::program_text(rank, 2, program, false));
  EXPECT_THAT(simulate_texts(texts).text, Not(HasSubstr("could not be")));
  std::vector<std::string> cut = texts;
  cut[1].resize(cut[1].find("\"b\""));
  EXPECT_THAT(simulate_texts(cut).text,
              AllOf(HasSubstr("hangs"), HasSubstr("could be read, which")));
  std::vector<std::string> damaged = texts;
  damaged[1] += "{\"event\":\n";
  const Simulated ends = simulate_texts(damaged);
  EXPECT_EQ(ends.status, 0);
  EXPECT_THAT(ends.text, HasSubstr("1 record of rank 1 could not be used"));
}

TEST(SimulateTrace, SaysWhatTheVerifierSaysOfTheSameHang) {
  const std::vector<std::string> programs = but_rank_3(
      kUsual,
      "all_reduce n=1000 dtype=float32 what=a step=0; all_gather n=500 dtype=float32 what=c "
      "step=0; clean");
  const Simulated simulated = simulate(programs);
  const verify::Report recorded = verify::verify(verify::program(programs, false));
  ASSERT_FALSE(recorded.findings.empty());
  EXPECT_EQ(simulated.json["report"]["findings"][0]["message"], recorded.findings[0].message);
}

// Two ranks that read the same samples from a step on, in a job that hangs in step 1.
TEST(SimulateTrace, WhatAHungJobWouldHaveReadIsNoFinding) {
  const auto hung = [](int shared_from) {
    std::vector<std::string> texts;
    for (int r = 0; r < 2; ++r) {
      std::string text = header_line(r, 2);
      for (int n = 0; n < 8; ++n) {
        const int first = 8 * n + (n < shared_from ? 4 * r : 0);
        const int size = r == 1 && n == 1 ? 6 : 4;
        text += json_line(
            {{"ev", "data"}, {"n", n}, {"indices", {first, first + 1, first + 2, first + 3}}});
        text += issue_line(n, "world", "all_reduce",
                           {{"in", {{size}}}, {"dtype", "float32"}, {"redop", "sum"}, {"step", n}});
        text += event_line("complete", n) + json_line({{"ev", "step"}, {"n", n}});
      }
      texts.push_back(text + end_line("clean"));
    }
    const Simulated simulated = simulate_texts(texts);
    EXPECT_EQ(simulated.rule(), "size-mismatch") << simulated.text;
    std::vector<std::string> rules;
    for (const Json& finding : simulated.json["report"]["findings"])
      rules.push_back(finding["rule"]);
    return rules;
  };
  EXPECT_EQ(hung(2), std::vector<std::string>{"size-mismatch"});
  // What they read before is.
  EXPECT_EQ(hung(0), (std::vector<std::string>{"size-mismatch", "no-sharding"}));
}

TEST(SimulateTrace, SpansTakeTheirTimeAndRanksAreComparedOnlyWhereTheyDiffer) {
  const auto text = [](int rank, int nanos) {
    return header_line(rank, 4) +
           json_line({{"ev", "span"}, {"name", "forward"}, {"t", 0}, {"dur", nanos}}) +
           issue_line(0, "world", "barrier") + end_line("clean");
  };
  const Simulated s = simulate_texts({text(0, 10), text(1, 10), text(2, 10), text(3, 5000)});
  EXPECT_EQ(s.json["time_ps"], 5'000'000 + 2 * 1'000'000);
  EXPECT_EQ(s.json["classes"], 2);
  EXPECT_TRUE(s.text.starts_with("4 ranks of 2 kinds; here is one of each\n")) << s.text;
  EXPECT_THAT(s.text, Not(HasSubstr("overlap"))) << "hosts compute, and then they wait";
  const Simulated apart =
      simulate_texts({text(0, 10), text(1, 10), text(2, 10), text(3, 5000)}, {"--apart"});
  EXPECT_EQ(apart.json["classes"], 4);
  EXPECT_TRUE(apart.text.starts_with("4 ranks\n")) << apart.text;
  EXPECT_EQ(apart.json["ranks"], s.json["ranks"]);
}

TEST(SimulateTrace, RanksInPairsFoldIntoOneKindAndWhoLeavesOutACallIsFoundAmongHundreds) {
  std::vector<std::string> programs;
  for (int r = 0; r < 512; ++r) {
    const std::string pair = fmt::format("pair{}", r / 2);
    const int first = r / 2 * 2;
    programs.push_back(
        fmt::format("group {} {},{}; all_reduce n=1000 dtype=float32 what=a step=0; all_reduce "
                    "n=500 g={} dtype=float32 what=b step=0; clean",
                    pair, first, first + 1, pair));
  }
  const Simulated ends = simulate(programs);
  EXPECT_EQ(ends.status, 0) << ends.text;
  EXPECT_EQ(ends.json["classes"], 1);
  // The world's ring over 512 ranks, then that of a pair: 2 (n - 1) us + 2 (n - 1) / n of the
  // bytes.
  EXPECT_EQ(ends.json["time_ps"], 1'022'000'000 + 7'984'375 + 2'000'000 + 2'000'000);
  programs[300] =
      "group pair150 300,301; all_reduce n=500 g=pair150 dtype=float32 what=b step=0; clean";
  const Simulated hangs = simulate(programs);
  EXPECT_EQ(hangs.status, 1) << hangs.text;
  EXPECT_EQ(hangs.culprits(), std::vector<int>{300});
}

TEST(SimulateTrace, WritesATimelineOfJobsThatEndAndOfThoseThatHang) {
  const TempDir folder;
  for (const bool hangs : {false, true}) {
    const std::string path = folder.file(hangs ? "hangs" : "ends");
    std::vector<std::string> texts;
    const std::vector<std::string> programs =
        but_rank_3(kUsual, hangs ? "all_reduce n=1000 dtype=float32 what=a step=0;" : kUsual);
    for (std::size_t r = 0; r < programs.size(); ++r)
      texts.push_back(verify::program_text(static_cast<std::int32_t>(r), 8, programs[r], false));
    EXPECT_EQ(simulate_texts(texts, {"--output", "timeline=" + path}).status, hangs ? 1 : 0);
    const Json timeline = Json::parse(TempDir::read(path));
    EXPECT_EQ(timeline["otherData"]["time"], "simulated: one clock for all ranks")
        << "those of the simulated clock";
    EXPECT_EQ(timeline["otherData"]["verdict"], hangs ? "findings" : "clean");
    std::size_t slices = 0;
    std::size_t unfinished = 0;
    for (const Json& event : timeline["traceEvents"]) {
      if (event["ph"] != "X" || event["cat"] != "call") continue;
      ++slices;
      if (event["args"].contains("state")) ++unfinished;
    }
    EXPECT_GE(slices, 9U);
    EXPECT_EQ(unfinished, hangs ? 7U : 0U);
  }
}

TEST(SimulateTrace, WritesTheSimulatedRunAsTracesThatOthersRead) {
  const TempDir folder;
  const std::string hangs = "all_reduce n=1000 dtype=float32 what=a step=0;";
  std::vector<std::string> texts;
  const std::vector<std::string> programs = but_rank_3(kUsual, hangs);
  for (std::size_t r = 0; r < programs.size(); ++r)
    texts.push_back(verify::program_text(static_cast<std::int32_t>(r), 8, programs[r], false));
  const Simulated s = simulate_texts(texts, {"--traces", folder.file("traces")});
  const cli::Outcome verified =
      cli::run_lockstep({"verify", folder.file("traces"), "--quiet", "--output", "json=-"});
  EXPECT_EQ(verified.status, 1) << verified.err;
  EXPECT_EQ(Json::parse(verified.out)["findings"], s.json["report"]["findings"]);
  // Its second call is where rank 0 waits: issued at the end of the first, and never completed.
  const std::string rank_0 = TempDir::read(folder.file("traces/rank_0.trace.jsonl"));
  EXPECT_NE(rank_0.find(R"({"ev":"complete","id":0,"t":21000})"), std::string::npos) << rank_0;
  EXPECT_EQ(rank_0.find(R"("id":2)"), std::string::npos) << "a call that it never came to";
  EXPECT_NE(rank_0.find(R"({"end":"hung"})"), std::string::npos);
  const std::string rank_3 = TempDir::read(folder.file("traces/rank_3.trace.jsonl"));
  EXPECT_NE(rank_3.find(R"({"end":"clean"})"), std::string::npos) << rank_3;
}

// They would be mixed with what is written: here with the traces that are simulated themselves.
TEST(SimulateTrace, WritesNoTracesBesideOthers) {
  const TempDir folder;
  const std::string trace = verify::program_text(0, 1, kUsual, false);
  folder.write("rank_0.trace.jsonl", trace);
  const auto run = [&](const std::string& to) {
    return cli::run_lockstep(
        {"simulate", "trace", folder.path(), "--machine", "dgx-h100", "--traces", to});
  };
  const cli::Outcome outcome = run(folder.path());
  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(outcome.err.find("this folder is not empty"), std::string::npos) << outcome.err;
  EXPECT_EQ(TempDir::read(folder.file("rank_0.trace.jsonl")), trace);
  const TempDir empty;
  EXPECT_EQ(run(empty.path()).status, 0);
  EXPECT_EQ(run(empty.file("new")).status, 0);
}

TEST(SimulateTrace, ACallThatBlocksIsWaitedForFromItsIssueOn) {
  const auto text = [](int rank, const std::string& work) {
    return header_line(rank, 2) + world_line(2) + work + issue_line(7, "world", "barrier") +
           event_line("wait", 7) + event_line("waited", 7) + end_line("clean");
  };
  const TempDir folder;
  const std::string later = R"({"ev":"span","name":"load","dur":5000})"
                            "\n";
  const Simulated s =
      simulate_texts({text(0, ""), text(1, later)}, {"--traces", folder.file("traces")});
  EXPECT_EQ(s.status, 0);
  const std::string rank_0 = TempDir::read(folder.file("traces/rank_0.trace.jsonl"));
  const std::size_t issue = rank_0.find(R"("ev":"issue")");
  const std::size_t wait = rank_0.find(R"({"ev":"wait","id":7,"t":0})");
  const std::size_t complete = rank_0.find(R"({"ev":"complete","id":7,"t":)");
  const std::size_t waited = rank_0.find(R"({"ev":"waited","id":7,"t":)");
  EXPECT_LT(issue, wait);
  EXPECT_LT(wait, complete) << rank_0;
  EXPECT_LT(complete, waited);
  EXPECT_NE(waited, std::string::npos);
}

TEST(SimulateTrace, ARankThatRaisesEndsThereAndOneThatIsStuckBeforeDoesNotRaise) {
  const std::string first = "all_reduce n=8 dtype=float32 step=0; ";
  const std::string last = "all_reduce n=8 dtype=float32 step=1; clean";
  const Simulated ends = simulate({first + last, first + "raise 0 out of memory; exception"});
  EXPECT_EQ(ends.status, 1);
  EXPECT_EQ(ends.rule(), "rank-exception") << ends.text;
  EXPECT_EQ(ends.culprits(), std::vector<int>{1});
  // Rank 0 waits in a call that nobody joins, and never comes to its exception in the next.
  const Simulated stuck =
      simulate({"barrier step=0; " + first + "raise 1 out of memory; exception", first + last});
  EXPECT_EQ(stuck.status, 1);
  EXPECT_EQ(stuck.text.find("out of memory"), std::string::npos) << stuck.text;
}

// Its recorded calls all end in the simulation, so only its end mark tells why no other follows.
TEST(SimulateTrace, ARankWhoseHostStoppedIsToldFromOneThatEnded) {
  const std::string others = "all_reduce n=4; all_reduce n=8; hung";
  const Simulated stopped = simulate({others, others, "all_reduce n=4; hung", others});
  EXPECT_EQ(stopped.status, 1);
  EXPECT_EQ(stopped.rule(), "host-stall");
  EXPECT_EQ(stopped.culprits(), std::vector<int>{2});
  const Simulated ended = simulate({others, others, "all_reduce n=4; clean", others});
  EXPECT_EQ(ended.rule(), "unequal-iterations");
  EXPECT_EQ(ended.culprits(), std::vector<int>{2});
  // Where a recording shows which calls ended, one that did not stalled on the device, and ends
  // here: the host did not stop.
  const std::string pair = "group b 2,3; all_reduce n=4; all_reduce g=b n=4 open; hung";
  std::vector<std::string> texts;
  for (const std::string& program : {others, others, pair, pair})
    texts.push_back(
        verify::program_text(static_cast<std::int32_t>(texts.size()), 4, program, true));
  const Simulated device = simulate_texts(texts);
  EXPECT_EQ(device.status, 1);
  EXPECT_NE(device.rule(), "host-stall");
}

TEST(SimulateTrace, RefusesWhatItCannotSimulate) {
  const TempDir folder;
  folder.write("rank_0.trace.jsonl", "{\"header\":1,\"rank\":0,\"world_size\":2}\n");
  const auto why = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"simulate", "trace", folder.path()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const cli::Outcome outcome = cli::run_lockstep(arguments);
    EXPECT_EQ(outcome.status, 2);
    return outcome.err;
  };
  EXPECT_NE(why({"--alpha", "1us", "--beta", "1GB/s"}).find("rank 1 left no trace"),
            std::string::npos);
  EXPECT_NE(why({"--alpha", "1", "--beta", "1GB/s"}).find("--alpha: \"1\" has no unit"),
            std::string::npos);
  EXPECT_NE(why({"--alpha", "1us", "--beta", "0GB/s"}).find("--beta: \"0GB/s\" is zero"),
            std::string::npos);
  EXPECT_NE(why({"--recorded-calls", "--scale-calls", "nan"}).find("--scale-calls"),
            std::string::npos);
  // Also where a machine's file, which may name ranks of other jobs, gives the links.
  for (const std::string slow : {"2=2", "1-2=2"})
    EXPECT_NE(why({"--machine", "dgx-h100", "--slow", slow}).find("--slow: there is no rank 2"),
              std::string::npos);
}

// Its name, and the rank that calls it: "other" says nothing.
TEST(SimulateTrace, NamesAnOperationThatHasNoPrice) {
  const TempDir folder;
  for (const int rank : {0, 1})
    folder.write(fmt::format("rank_{}.trace.jsonl", rank),
                 header_line(rank, 2) + issue_line(0, "world", "all_knowing", {{"in", {{4}}}}) +
                     end_line("clean"));
  const cli::Outcome outcome =
      cli::run_lockstep({"simulate", "trace", folder.path(), "--alpha", "1us", "--beta", "1GB/s"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err,
              AllOf(HasSubstr("rank_0.trace.jsonl: error: rank 0 calls \"all_knowing\""),
                    HasSubstr("--recorded-calls")));
}

// Calls without a size take their latency alone, which is not what they took. Barriers and empty
// tensors carry nothing.
TEST(SimulateTrace, SaysOfHowManyCallsTheSizeIsUnknown) {
  const auto simulated = [](const std::string& op, const LineKeys& more) {
    std::vector<std::string> texts;
    for (const int rank : {0, 1})
      texts.push_back(header_line(rank, 2) +
                      issue_line(0, "world", "all_reduce",
                                 {{"in", {{4}}}, {"out", {{4}}}, {"dtype", "float32"}}) +
                      issue_line(1, "world", op, more) + end_line("clean"));
    return simulate_texts(texts);
  };
  const LineKeys shapes = {{"in", {{4}}}, {"out", {{4}}}};
  LineKeys unheard_of = shapes;
  unheard_of["dtype"] = "float33";
  for (const LineKeys& unknown : {LineKeys::object(), shapes, unheard_of}) {
    const Simulated job = simulated("all_reduce", unknown);
    EXPECT_THAT(job.text, HasSubstr("2 of 4 calls have no size"));
    EXPECT_THAT(job.json["notes"].dump(), HasSubstr("no size"));
  }
  EXPECT_THAT(simulated("barrier", LineKeys::object()).text, Not(HasSubstr("no size")));
  EXPECT_THAT(simulated("all_reduce", {{"in", {{0}}}, {"out", {{0}}}}).text,
              Not(HasSubstr("no size")));
}

// A kernel, a call that follows it, a kernel beside the call and one after it, for which the host
// waits.
std::string overlapping(int rank, const std::string& more = "") {
  return header_line(rank, 2) + R"({"ev":"span","name":"first","dur":10000,"stream":"7","id":100}
{"ev":"span","name":"wait","stream":"9","after":100}
{"ev":"issue","id":1,"g":"world","op":"all_reduce","in":[[1000]],"dtype":"float32","async":true,"stream":"9"}
{"ev":"span","name":"beside","dur":30000,"stream":"7"}
{"ev":"span","name":"wait","stream":"7","after":1}
{"ev":"span","name":"last","dur":5000,"stream":"7","id":101}
{"ev":"span","name":"wait","after":101}
{"ev":"span","name":"host","dur":2000}
)" + more +
         R"({"end":"clean"}
)";
}

TEST(SimulateTrace, WorkInStreamsOverlapsCallsAndWaitsForThem) {
  const std::vector<std::string> job = {overlapping(0), overlapping(1)};
  // The call takes 2 + 4 us from 10 us on, beside work until 40 us.
  const Simulated alike = simulate_texts(job);
  EXPECT_EQ(alike.json["time_ps"], 1'000'000 * (10 + 30 + 5 + 2));
  EXPECT_TRUE(alike.text.starts_with("2 ranks that do the same; here is one\n")) << alike.text;
  EXPECT_THAT(alike.text, HasSubstr("computes while its host waits: the two times overlap"));
  // At a hundredth of the bandwidth it takes 402 us, and the last work follows it.
  EXPECT_EQ(simulate_texts(job, {"--beta", "10MB/s"}).json["time_ps"],
            1'000'000 * (10 + 402 + 5 + 2));
  // Rank 1 takes twice as long; rank 0 does not notice, since the call is over early enough.
  const Simulated slow = simulate_texts(job, {"--slow", "1=2"});
  EXPECT_EQ(slow.json["ranks"][1]["time_ps"], 1'000'000 * (2 * (10 + 30 + 5) + 2));
  EXPECT_EQ(slow.json["ranks"][0]["time_ps"], 1'000'000 * (10 + 30 + 5 + 2));
}

TEST(SimulateTrace, AWaitForNothingIsRefused) {
  const TempDir folder;
  const auto why = [&](const std::string& line) {
    folder.write("rank_0.trace.jsonl", overlapping(0, line));
    folder.write("rank_1.trace.jsonl", overlapping(1));
    const cli::Outcome outcome = cli::run_lockstep(
        {"simulate", "trace", folder.path(), "--alpha", "1us", "--beta", "1GB/s"});
    EXPECT_EQ(outcome.status, 2);
    return outcome.err;
  };
  EXPECT_NE(why("{\"ev\":\"span\",\"name\":\"wait\",\"stream\":\"7\",\"after\":55}\n")
                .find("waits for 55, which no earlier call or span has as its id"),
            std::string::npos);
}

// Ranks 0 and 1 below one leaf switch, 2 and 3 below another: rings of {0, 2} and {1, 3} cross the
// same uplinks. 50 MB at 50 GB/s take 1 ms; together 2 ms where the uplinks have one port's
// bandwidth.
TEST(SimulateTrace, GroupsWhoseRingsCrossOneUplinkSlowEachOtherDown) {
  const TempDir folder;
  const std::string machine =
      "machine: 1\nname: four\ncompute: {float32: {peak: 1TFLOP/s}}\n"
      "memory: {bandwidth: 1TB/s}\nlinks:\n  - {alpha: 0us, beta: 50GB/s}\n";
  const std::string wide = folder.write("wide.yaml", machine),
                    narrow = folder.write("narrow.yaml",
                                          machine +
                                              "network: {topology: fat-tree, tiers: [{nodes: 2, "
                                              "oversubscription: 2}]}\n");
  const TempDir traces;
  for (const int rank : {0, 1, 2, 3}) {
    const std::string group = rank % 2 == 0 ? "even" : "odd";
    traces.write(
        fmt::format("rank_{}.trace.jsonl", rank),
        header_line(rank, 4) + group_line(group, {rank % 2, rank % 2 + 2}) +
            issue_line(1, group, "all_reduce", {{"in", {{12500000}}}, {"dtype", "float32"}}) +
            event_line("wait", 1) + end_line("clean"));
  }
  const auto simulated = [&](const std::string& on, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"simulate", "trace", traces.path(), "--machine", on};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const std::string json = folder.file("out.json");
    arguments.insert(arguments.end(), {"--output", "json=" + json});
    const cli::Outcome outcome = cli::run_lockstep(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return std::pair(Json::parse(TempDir::read(json)), outcome.out);
  };
  EXPECT_EQ(simulated(wide, {}).first["time_ps"], 1'000'000'000);
  for (const auto& more : std::vector<std::vector<std::string>>{{}, {"--apart"}}) {
    const auto [json, text] = simulated(narrow, more);
    EXPECT_EQ(json["time_ps"], 2'000'000'000);
    EXPECT_EQ(json["slowed_calls"]["most"], 2);
    EXPECT_THAT(text, testing::HasSubstr("at most 2 times as long"));
  }
}

// A recording of calls alone is not the job: its time must not be taken for the job's.
TEST(SimulateTrace, SaysWhereNothingIsComputed) {
  const Simulated calls = simulate(but_rank_3(kUsual, kUsual));
  EXPECT_EQ(calls.json["computes"], false);
  EXPECT_NE(calls.text.find("hold no computing"), std::string::npos) << calls.text;
  EXPECT_EQ(calls.text.find("computes 0"), std::string::npos) << calls.text;
}

}  // namespace
}  // namespace lockstep::sim
