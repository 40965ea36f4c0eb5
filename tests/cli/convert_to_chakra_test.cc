// `lockstep convert --to chakra`: what is read back calls the same, takes the same simulated time
// and gets the same verdict.
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/run_lockstep.h"
#include "tests/support/temp_dir.h"
#include "tests/support/trace_lines.h"
#include "trace/load.h"

namespace lockstep::chakra_output {
namespace {

using Json = nlohmann::json;

void write_traces(const TempDir& folder, const std::vector<std::string>& lines) {
  for (std::size_t r = 0; r < lines.size(); ++r) {
    folder.write(fmt::format("rank_{}.trace.jsonl", r),
                 header_line(static_cast<int>(r), lines.size()) + lines[r] + end_line("clean"));
  }
}

void convert(const TempDir& from, const TempDir& to) {
  const cli::Outcome outcome =
      cli::run_lockstep({"convert", "--to", "chakra", from.path(), "-o", to.path()});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
}

struct Simulated {
  int status = 0;
  Json json;
};
Simulated simulate(const TempDir& traces,
                   const std::vector<std::string>& calls = {"--alpha", "1us", "--beta", "1GB/s"}) {
  const TempDir out;
  std::vector<std::string> command = {"simulate", "trace", traces.path(), "--output",
                                      "json=" + out.file("json")};
  command.insert(command.end(), calls.begin(), calls.end());
  const cli::Outcome outcome = cli::run_lockstep(command);
  EXPECT_EQ(outcome.err, "");
  return {outcome.status, Json::parse(TempDir::read(out.file("json")))};
}

// Each rank's calls: group and number, operation, sizes, type, reduction, root, peer.
std::vector<std::string> calls_of(const TempDir& folder) {
  const auto run = trace::load_run({folder.path()});
  EXPECT_TRUE(run) << run.error().str();
  std::vector<std::string> out;
  for (const trace::RankTrace& rank : run->ranks) {
    for (const trace::Call& call : rank.calls) {
      const trace::Signature& s = run->tables.signatures[call.signature];
      out.push_back(fmt::format("{}#{} {} {} {} root {} peer {}", run->tables.str(call.group),
                                call.seq, describe(run->tables, call.signature), s.in_elements,
                                s.out_elements, s.root, call.peer.value));
    }
    for (const trace::RankTrace::Membership& group : rank.groups)
      out.push_back(fmt::format("{} of {}", run->tables.str(group.group), group.ranks.size()));
  }
  return out;
}

// A kernel, a call after it beside another kernel, one more kernel after the call; then calls that
// block, in a group and between two ranks.
std::string job(int rank) {
  return R"({"group":"pair","ranks":[0,1]}
{"ev":"span","name":"first","dur":10123,"stream":"7","id":100}
{"ev":"span","name":"wait","stream":"9","after":100}
)" +
         issue_line(1, "world", "all_reduce",
                    {{"in", {{1000}}},
                     {"out", {{1000}}},
                     {"dtype", "float32"},
                     {"redop", "sum"},
                     {"async", true},
                     {"stream", "9"}}) +
         R"({"ev":"span","name":"beside","dur":30000,"stream":"7"}
{"ev":"span","name":"wait","stream":"7","after":1}
{"ev":"span","name":"last","dur":5000,"stream":"7","id":101}
{"ev":"span","name":"wait","after":101}
{"ev":"span","name":"host","dur":2001}
)" +
         issue_line(2, "pair", "reduce_scatter_tensor",
                    {{"in", {{1000}}}, {"out", {{500}}}, {"dtype", "bfloat16"}, {"redop", "avg"}}) +
         issue_line(3, "world", "broadcast", {{"in", {{64}}}, {"dtype", "float32"}, {"root", 1}}) +
         issue_line(4, "pair", rank == 0 ? "send" : "recv",
                    {{"peer", 1 - rank}, {"in", {{100}}}, {"dtype", "int64"}}) +
         issue_line(
             5, "world", "all_gather",
             {{"in", {{10}}}, {"out", {{10}, {10}}}, {"dtype", "float32"}, {"async", true}}) +
         json_line({{"ev", "span"}, {"name", "host"}, {"dur", 700}}) + event_line("wait", 5) +
         json_line({{"ev", "span"}, {"name", "host"}, {"dur", 300}}) +
         issue_line(6, "world", "barrier");
}

TEST(ConvertToChakra, WhatIsReadBackCallsTheSameAndTakesTheSameTime) {
  const TempDir text, chakra;
  write_traces(text, {job(0), job(1)});
  convert(text, chakra);
  EXPECT_EQ(calls_of(chakra), calls_of(text));
  const Simulated before = simulate(text), after = simulate(chakra);
  EXPECT_EQ(before.status, 0);
  EXPECT_EQ(after.status, 0);
  EXPECT_GT(before.json["time_ps"], 47'000'000);
  EXPECT_EQ(after.json["time_ps"], before.json["time_ps"]);
  for (const std::size_t r : {0UL, 1UL})
    EXPECT_EQ(after.json["ranks"][r]["compute_ps"], before.json["ranks"][r]["compute_ps"]);
  EXPECT_EQ(cli::run_lockstep({"verify", chakra.path()}).status, 0);
}

// Rank 1 comes 4 us later, and then the call takes 3 us: for rank 0 it took 7 us.
TEST(ConvertToChakra, CallsTakeAsLongAsTheyWereRecorded) {
  const auto rank = [](int work) {
    const auto at = [](const char* event, int time) {
      return json_line({{"ev", event}, {"id", 1}, {"t", time}});
    };
    return json_line({{"ev", "span"}, {"name", "host"}, {"dur", work}, {"t", 0}}) +
           issue_line(1, "world", "all_reduce",
                      {{"in", {{8}}}, {"dtype", "float32"}, {"async", true}, {"t", work}}) +
           at("start", work) + at("complete", 8000) + at("wait", 8000);
  };
  const TempDir text, chakra, again;
  write_traces(text, {rank(1000), rank(5000)});
  convert(text, chakra);
  convert(chakra, again);
  for (const TempDir* traces : {&text, &chakra, &again}) {
    const Simulated replayed = simulate(*traces, {"--recorded-calls"});
    EXPECT_EQ(replayed.status, 0);
    EXPECT_EQ(replayed.json["time_ps"], 8'000'000);
  }
  EXPECT_EQ(simulate(chakra, {"--recorded-calls", "--scale-calls", "2"}).json["time_ps"],
            11'000'000);
}

TEST(ConvertToChakra, AProgramThatHangsStillHangs) {
  const auto reduce = [](int id, const std::string& group) {
    return issue_line(id, group, "all_reduce", {{"in", {{8}}}, {"dtype", "float32"}});
  };
  const auto rank = [&](const char* first, const char* second) {
    return group_line("a", {0, 1}) + group_line("b", {0, 1}) + reduce(1, first) + reduce(2, second);
  };
  const TempDir text, chakra;
  write_traces(text, {rank("a", "b"), rank("b", "a")});
  convert(text, chakra);
  const Simulated before = simulate(text), after = simulate(chakra);
  EXPECT_EQ(before.status, 1);
  EXPECT_EQ(after.status, 1);
  EXPECT_EQ(after.json["report"]["findings"][0]["rule"],
            before.json["report"]["findings"][0]["rule"]);
  // A rank that leaves out a call is found without a simulation, too.
  const TempDir less, less_chakra;
  write_traces(less, {reduce(1, "world") + reduce(2, "world"), reduce(1, "world")});
  convert(less, less_chakra);
  for (const TempDir* folder : {&less, &less_chakra})
    EXPECT_EQ(cli::run_lockstep({"verify", folder->path()}).status, 1);
}

TEST(ConvertToChakra, WhatChakraCannotSayIsRefused) {
  const TempDir text, out;
  const auto why = [&](const std::string& line) {
    write_traces(text, {line, ""});
    const cli::Outcome outcome =
        cli::run_lockstep({"convert", "--to", "chakra", text.path(), "-o", out.file("et")});
    EXPECT_EQ(outcome.status, 2);
    return outcome.err;
  };
  EXPECT_NE(why(issue_line(1, "world", "my_own")).find("which Chakra does not have"),
            std::string::npos);
  EXPECT_NE(why("{\"ev\":\"span\",\"name\":\"wait\",\"after\":9}\n").find("waits for 9"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep::chakra_output
