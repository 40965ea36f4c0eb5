// What becomes of a recorded run when it is made a program.
#include <sstream>

#include <gmock/gmock.h>

#include "tests/runtime/replay/program_words.h"
#include "trace/formats/text/text_trace.h"

namespace lockstep::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const LineKeys kAsync = {{"async", true}};

// An all-reduce over both ranks.
std::string issue(int id, const LineKeys& more = LineKeys::object()) {
  LineKeys keys = {{"in", {{4}}}, {"out", {{4}}}, {"dtype", "float32"}, {"redop", "sum"}};
  keys.update(more);
  return issue_line(id, "world", "all_reduce", keys);
}

trace::Run program_of(const std::vector<std::string>& bodies, ProgramOptions options = {}) {
  Result<trace::Run> program = replay_program(recorded(bodies), options);
  if (!program) {
    ADD_FAILURE() << program.error().str();
    return {};
  }
  return std::move(*program);
}

TEST(ReplayProgram, WaitsStayWhereTheyWere) {
  const std::string body = issue(3, kAsync) + issue(7) + event_line("complete", 3) +
                           event_line("wait", 3) + event_line("waited", 3) + end_line("clean");
  const auto program = program_of({body, body});
  EXPECT_THAT(words(program, 0),
              ElementsAre("issue 0 all_reduce world [4] async", "issue 1 all_reduce world [4]",
                          "wait 0", "end clean"));
}

TEST(ReplayProgram, AWaitThatWasSeenToEndAloneIsOne) {
  const std::string body =
      issue(0, kAsync) + event_line("waited", 0) + event_line("wait", 0) + end_line("clean");
  const auto program = program_of({body, body});
  EXPECT_THAT(words(program, 1),
              ElementsAre("issue 0 all_reduce world [4] async", "wait 0", "end clean"));
}

TEST(ReplayProgram, CallsOfABatchAreIssuedTogether) {
  const auto message = [](const char* op, int id, int peer) {
    return issue_line(id, "world", op,
                      {{"in", {{2}}},
                       {"out", {{2}}},
                       {"dtype", "float32"},
                       {"peer", peer},
                       {"ptag", 0},
                       {"coalesced", 5}});
  };
  const auto program =
      program_of({message("send", 0, 1) + message("recv", 1, 1) + issue(2) + end_line("clean"),
                  message("send", 0, 0) + message("recv", 1, 0) + issue(2) + end_line("clean")});
  EXPECT_THAT(words(program, 0),
              ElementsAre("issue 0 send world [2] async", "issue 1 recv world [2] async", "wait 0",
                          "wait 1", "issue 2 all_reduce world [4]", "end clean"));
}

// A recorder that sees the device: all calls are asynchronous, and none is waited for.
TEST(ReplayProgram, ARankWaitsForItsDeviceBeforeAnotherGroup) {
  const std::string groups = group_line("dp", {0, 1}) + group_line("tp", {0, 1});
  const auto call = [](int id, const std::string& group) {
    return issue_line(id, group, "all_reduce",
                      {{"in", {{4}}}, {"dtype", "float32"}, {"async", true}});
  };
  const std::string begin = groups + call(0, "dp") + event_line("complete", 0);
  const auto program =
      program_of({begin + call(1, "dp") + call(2, "dp") + call(3, "tp") + end_line("hung"),
                  begin + call(1, "tp") + call(2, "dp") + end_line("hung")});
  EXPECT_THAT(
      words(program, 0),
      ElementsAre("issue 0 all_reduce dp [4] async", "issue 1 all_reduce dp [4] async",
                  "issue 2 all_reduce dp [4] async", "wait 1", "issue 3 all_reduce tp [4] async",
                  "wait 0", "wait 2", "wait 3", "end hung"));
}

TEST(ReplayProgram, EndsAsRecorded) {
  const auto program =
      program_of({issue(0) + json_line({{"ev", "exception"}, {"what", "no more memory"}}) +
                      end_line("exception"),
                  issue(0) + end_line("killed"), issue(0), issue(0) + end_line("hung")});
  EXPECT_THAT(words(program, 0),
              ElementsAre("issue 0 all_reduce world [4]", "raise no more memory", "end exception"));
  EXPECT_EQ(words(program, 1).back(), "end killed");
  EXPECT_EQ(words(program, 2).back(), "end killed");  // no mark: the process vanished
  EXPECT_EQ(words(program, 3).back(), "end hung");
}

TEST(ReplayProgram, ARankThatWasOnlyDumpedEndsWell) {
  const auto program = program_of({issue(0) + end_line("hung"), issue(0)}, {.ends_well = true});
  EXPECT_EQ(words(program, 0).back(), "end clean");
  EXPECT_EQ(words(program, 1).back(), "end clean");
}

TEST(ReplayProgram, KeepsNamesLocationsAndSteps) {
  const std::string body =
      json_line({{"ev", "modality"}, {"n", 7}, {"has", {"text"}}}) +
      issue(0, {{"what", {"image.w"}}, {"at", "train.py:3"}, {"step", 7}, {"tag", "x"}}) +
      json_line({{"ev", "step"}, {"n", 7}, {"loss", 2.5}}) + end_line("clean");
  const auto program = program_of({body, body});
  std::ostringstream text;
  trace::write_text_trace(text, program.ranks[0], program.tables);
  EXPECT_THAT(text.str(), HasSubstr(R"("what":["image.w"],"at":"train.py:3","step":7,"tag":"x")"));
  EXPECT_THAT(text.str(), HasSubstr(R"({"ev":"modality","n":7,"has":["text"]})"));
  EXPECT_THAT(text.str(), HasSubstr(R"({"ev":"step","n":7})"));  // a loss is not replayed
}

TEST(ReplayProgram, TakesWhatOneMemberRecordedForAll) {
  const LineKeys all = {{"in", {{9}}}, {"dtype", "int64"}, {"root", 1}};
  const auto program = program_of({issue_line(0, "world", "broadcast", all) + end_line("clean"),
                                   issue_line(0, "world", "broadcast") + end_line("clean")});
  const trace::Signature& s = program.tables.signatures[program.ranks[1].calls[0].signature];
  EXPECT_EQ(s, program.tables.signatures[program.ranks[0].calls[0].signature]);
  EXPECT_EQ(s.root, 1);
  EXPECT_EQ(s.in_elements, 9);
}

TEST(ReplayProgram, WhatNobodyRecordedIsTheSameForAll) {
  const std::string body = issue_line(0, "world", "reduce", {{"in", {{9}}}}) + end_line("clean");
  const auto program = program_of({body, body});
  const trace::Signature& s = program.tables.signatures[program.ranks[1].calls[0].signature];
  EXPECT_EQ(program.tables.names(s.dtypes), std::vector<std::string>{"float32"});
  EXPECT_EQ(program.tables.str(s.redop), "sum");
  EXPECT_EQ(s.root, 0);
}

TEST(ReplayProgram, OfAProgramIsItself) {
  const std::string body = issue(3, kAsync) + issue(7) + event_line("wait", 3) +
                           json_line({{"ev", "exception"}, {"what", "oops"}}) +
                           end_line("exception");
  const auto text = [](const trace::Run& run) {
    std::ostringstream out;
    for (const trace::RankTrace& trace : run.ranks) trace::write_text_trace(out, trace, run.tables);
    return out.str();
  };
  const auto once = program_of({body, issue(0)});
  std::vector<std::string> written;
  for (const trace::RankTrace& trace : once.ranks) {
    std::ostringstream out;
    trace::write_text_trace(out, trace, once.tables);
    written.push_back(out.str());
  }
  Result<trace::Run> twice = replay_program(run_from_text(written));
  ASSERT_TRUE(twice) << twice.error().str();
  EXPECT_EQ(text(*twice), text(once));
}

}  // namespace
}  // namespace lockstep::runtime
