// What becomes of a recorded run when it is made a program.
#include <sstream>

#include <gmock/gmock.h>

#include "tests/runtime/replay/program_words.h"
#include "trace/formats/text/text_trace.h"

namespace lockstep::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kReduce =
    R"("g":"world","op":"all_reduce","in":[[4]],"out":[[4]],"dtype":"float32","redop":"sum")";

std::string issue(int id, const std::string& more = "") {
  return R"({"ev":"issue","id":)" + std::to_string(id) + "," + kReduce + more + "}\n";
}
std::string event(const std::string& kind, int id) {
  return R"({"ev":")" + kind + R"(","id":)" + std::to_string(id) + "}\n";
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
  const std::string body = issue(3, R"(,"async":true)") + issue(7) + event("complete", 3) +
                           event("wait", 3) + event("waited", 3) + R"({"end":"clean"})";
  const auto program = program_of({body, body});
  EXPECT_THAT(words(program, 0),
              ElementsAre("issue 0 all_reduce world [4] async", "issue 1 all_reduce world [4]",
                          "wait 0", "end clean"));
}

TEST(ReplayProgram, AWaitThatWasSeenToEndAloneIsOne) {
  const std::string body =
      issue(0, R"(,"async":true)") + event("waited", 0) + event("wait", 0) + R"({"end":"clean"})";
  const auto program = program_of({body, body});
  EXPECT_THAT(words(program, 1),
              ElementsAre("issue 0 all_reduce world [4] async", "wait 0", "end clean"));
}

TEST(ReplayProgram, CallsOfABatchAreIssuedTogether) {
  const auto message = [](const char* op, int id, int peer) {
    return R"({"ev":"issue","id":)" + std::to_string(id) + R"(,"g":"world","op":")" + op +
           R"(","in":[[2]],"out":[[2]],"dtype":"float32","peer":)" + std::to_string(peer) +
           R"(,"ptag":0,"coalesced":5})" + "\n";
  };
  const auto program =
      program_of({message("send", 0, 1) + message("recv", 1, 1) + issue(2) + R"({"end":"clean"})",
                  message("send", 0, 0) + message("recv", 1, 0) + issue(2) + R"({"end":"clean"})"});
  EXPECT_THAT(words(program, 0),
              ElementsAre("issue 0 send world [2] async", "issue 1 recv world [2] async", "wait 0",
                          "wait 1", "issue 2 all_reduce world [4]", "end clean"));
}

// A recorder that sees the device: all calls are asynchronous, and none is waited for.
TEST(ReplayProgram, ARankWaitsForItsDeviceBeforeAnotherGroup) {
  const std::string groups = R"({"group":"dp","ranks":[0,1]}
{"group":"tp","ranks":[0,1]}
)";
  const auto call = [](int id, const std::string& group) {
    return R"({"ev":"issue","id":)" + std::to_string(id) + R"(,"g":")" + group +
           R"(","op":"all_reduce","in":[[4]],"dtype":"float32","async":true})" + "\n";
  };
  const std::string begin = groups + call(0, "dp") + event("complete", 0);
  const auto program =
      program_of({begin + call(1, "dp") + call(2, "dp") + call(3, "tp") + R"({"end":"hung"})",
                  begin + call(1, "tp") + call(2, "dp") + R"({"end":"hung"})"});
  EXPECT_THAT(
      words(program, 0),
      ElementsAre("issue 0 all_reduce dp [4] async", "issue 1 all_reduce dp [4] async",
                  "issue 2 all_reduce dp [4] async", "wait 1", "issue 3 all_reduce tp [4] async",
                  "wait 0", "wait 2", "wait 3", "end hung"));
}

TEST(ReplayProgram, EndsAsRecorded) {
  const auto program =
      program_of({issue(0) + R"({"ev":"exception","what":"no more memory"})"
                             "\n"
                             R"({"end":"exception"})",
                  issue(0) + R"({"end":"killed"})", issue(0), issue(0) + R"({"end":"hung"})"});
  EXPECT_THAT(words(program, 0),
              ElementsAre("issue 0 all_reduce world [4]", "raise no more memory", "end exception"));
  EXPECT_EQ(words(program, 1).back(), "end killed");
  EXPECT_EQ(words(program, 2).back(), "end killed");  // no mark: the process vanished
  EXPECT_EQ(words(program, 3).back(), "end hung");
}

TEST(ReplayProgram, WhoWasOnlyLookedAtEndsWell) {
  const auto program = program_of({issue(0) + R"({"end":"hung"})", issue(0)}, {.ends_well = true});
  EXPECT_EQ(words(program, 0).back(), "end clean");
  EXPECT_EQ(words(program, 1).back(), "end clean");
}

TEST(ReplayProgram, KeepsNamesLocationsAndSteps) {
  const std::string body = R"({"ev":"modality","n":7,"has":["text"]})"
                           "\n" +
                           issue(0, R"(,"what":["image.w"],"at":"train.py:3","step":7,"tag":"x")") +
                           R"({"ev":"step","n":7,"loss":2.5})"
                           "\n"
                           R"({"end":"clean"})";
  const auto program = program_of({body, body});
  std::ostringstream text;
  trace::write_text_trace(text, program.ranks[0], program.tables);
  EXPECT_THAT(text.str(), HasSubstr(R"("what":["image.w"],"at":"train.py:3","step":7,"tag":"x")"));
  EXPECT_THAT(text.str(), HasSubstr(R"({"ev":"modality","n":7,"has":["text"]})"));
  EXPECT_THAT(text.str(), HasSubstr(R"({"ev":"step","n":7})"));  // a loss is not replayed
}

TEST(ReplayProgram, TakesWhatOneMemberRecordedForAll) {
  const auto program = program_of(
      {R"({"ev":"issue","id":0,"g":"world","op":"broadcast","in":[[9]],"dtype":"int64","root":1})"
       "\n"
       R"({"end":"clean"})",
       R"({"ev":"issue","id":0,"g":"world","op":"broadcast"})"
       "\n"
       R"({"end":"clean"})"});
  const trace::Signature& s = program.tables.signatures[program.ranks[1].calls[0].signature];
  EXPECT_EQ(s, program.tables.signatures[program.ranks[0].calls[0].signature]);
  EXPECT_EQ(s.root, 1);
  EXPECT_EQ(s.in_elements, 9);
}

TEST(ReplayProgram, WhatNobodyRecordedIsTheSameForAll) {
  const std::string body = R"({"ev":"issue","id":0,"g":"world","op":"reduce","in":[[9]]})"
                           "\n"
                           R"({"end":"clean"})";
  const auto program = program_of({body, body});
  const trace::Signature& s = program.tables.signatures[program.ranks[1].calls[0].signature];
  EXPECT_EQ(program.tables.names(s.dtypes), std::vector<std::string>{"float32"});
  EXPECT_EQ(program.tables.str(s.redop), "sum");
  EXPECT_EQ(s.root, 0);
}

TEST(ReplayProgram, OfAProgramIsItself) {
  const std::string body = issue(3, R"(,"async":true)") + issue(7) + event("wait", 3) +
                           R"({"ev":"exception","what":"oops"})"
                           "\n"
                           R"({"end":"exception"})";
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
