// Receives from any source: other legal matches, and what they lead to.
#include "verify/schedules/wildcards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/verify/program.h"
#include "verify/streams/streams.h"
#include "verify/verify.h"

namespace lockstep::verify {
namespace {

using ::testing::HasSubstr;

const std::string kSendToZero =
    "mpi; send count=1 dtype=int32 peer=0 ptag=0 at=a.c:20; finalize; clean";

const Finding& first_cause(const Report& report) {
  static const Finding kNone;
  return report.findings.empty() ? kNone : report.findings[0];
}

bool knows(const Report& report, const std::string& unknown) {
  return std::any_of(report.unknown.begin(), report.unknown.end(), [&](const std::string& line) {
    return line.find(unknown) != std::string::npos;
  });
}

TEST(Wildcards, AReceiveThatMayTakeAnothersMessageIsARace) {
  // This time the first receive took rank 2's message.
  const Report report = verify(program(
      {"mpi; recv count=1 peer=-1 ptag=0 from=2 at=a.c:10; recv count=1 peer=1 ptag=0 at=a.c:11; "
       "finalize; clean",
       kSendToZero, kSendToZero}));
  EXPECT_EQ(summary(report), "wildcard-race error possible group=world seq=0\nverdict findings");
  EXPECT_THAT(first_cause(report).message, HasSubstr("rank 0's receive from any source"));
  EXPECT_THAT(first_cause(report).message, HasSubstr("a.c:10"));
  EXPECT_THAT(first_cause(report).message, HasSubstr("may take rank 1's send"));
  EXPECT_THAT(first_cause(report).evidence[0].text, HasSubstr("takes rank 1's send"));
}

TEST(Wildcards, WithoutTheRecordedSenderTheSameIsFound) {
  EXPECT_EQ(summary(verify(program(
                {"mpi; recv count=1 peer=-1 ptag=0; recv count=1 peer=1 ptag=0; finalize; clean",
                 kSendToZero, kSendToZero}))),
            "wildcard-race error possible group=world seq=0\nverdict findings");
}

TEST(Wildcards, AProgramThatCopesWithEveryOrderIsClean) {
  EXPECT_EQ(summary(verify(program({"mpi; recv count=1 peer=-1 ptag=0; recv count=1 peer=-1 "
                                    "ptag=0; recv count=1 peer=-1 ptag=0; finalize; clean",
                                    kSendToZero, kSendToZero, kSendToZero}))),
            "verdict clean");
}

TEST(Wildcards, TagsThatKeepMessagesApartLeaveNoChoice) {
  EXPECT_EQ(summary(verify(program(
                {"mpi; recv count=1 peer=-1 ptag=7; recv count=1 peer=1 ptag=0; finalize; clean",
                 "mpi; send count=1 peer=0 ptag=0; finalize; clean",
                 "mpi; send count=1 peer=0 ptag=7; finalize; clean"}))),
            "verdict clean");
}

TEST(Wildcards, ABarrierThatOrdersTheMessagesLeavesNoChoice) {
  EXPECT_EQ(summary(verify(program({"mpi; recv count=1 peer=-1 ptag=0; barrier; "
                                    "recv count=1 peer=1 ptag=0; finalize; clean",
                                    "mpi; barrier; send count=1 peer=0 ptag=0; finalize; clean",
                                    "mpi; send count=1 peer=0 ptag=0; barrier; finalize; clean"}))),
            "verdict clean");
}

TEST(Wildcards, AHangByTheWrongMatchIsARaceThatWasSeen) {
  const Report report = verify(
      program({"mpi; recv count=1 peer=-1 ptag=0 from=1; recv count=1 peer=1 ptag=0 open; hung",
               "mpi; send count=1 peer=0 ptag=0; finalize open; hung",
               "mpi; send count=1 peer=0 ptag=0; finalize open; hung"}));
  EXPECT_THAT(summary(report), HasSubstr("wildcard-race error observed"));
  EXPECT_THAT(first_cause(report).message, HasSubstr("took rank 1's send"));
  EXPECT_THAT(first_cause(report).message, HasSubstr("had it taken rank 2's send"));
  EXPECT_FALSE(proves_stuck(report)) << "another order would have ended";
}

TEST(Wildcards, AHangInEveryOrderIsProven) {
  const Report report = verify(program(
      {"mpi; recv count=1 peer=-1 ptag=0; recv count=1 peer=-1 ptag=0 open; hung",
       "mpi; send count=1 peer=0 ptag=0; finalize open; hung", "mpi; finalize open; hung"}));
  EXPECT_TRUE(proves_stuck(report)) << summary(report);
}

TEST(Wildcards, AMessageThatDoesNotFitAnotherReceive) {
  const Report report =
      verify(program({"mpi; recv count=1 dtype=int32 peer=-1 ptag=0 from=1; "
                      "recv count=1 dtype=float64 peer=-1 ptag=0 from=2; finalize; clean",
                      "mpi; send count=1 dtype=int32 peer=0 ptag=0; finalize; clean",
                      "mpi; send count=1 dtype=float64 peer=0 ptag=0; finalize; clean"}));
  EXPECT_EQ(summary(report), "wildcard-race error possible group=world seq=0\nverdict findings");
  EXPECT_THAT(first_cause(report).message, HasSubstr("which it does not fit"));
}

TEST(Wildcards, ALargerReceiveFitsEveryMessage) {
  EXPECT_EQ(
      summary(verify(program({"mpi; recv count=8 dtype=int32 peer=-1 ptag=0; "
                              "recv count=8 dtype=int32 peer=-1 ptag=0; finalize; clean",
                              "mpi; send count=1 dtype=int32 peer=0 ptag=0; finalize; clean",
                              "mpi; send count=8 dtype=int32 peer=0 ptag=0; finalize; clean"}))),
      "verdict clean");
}

TEST(Wildcards, AnExceptionAfterReceivesInAnyOrder) {
  const Report report = verify(program(
      {"mpi; recv count=1 peer=-1 ptag=-1 at=a.c:60; recv count=1 peer=-1 ptag=-1 at=a.c:60; "
       "raise abort; exception",
       "mpi; send count=1 peer=0 ptag=42; finalize open; cut",
       "mpi; send count=1 peer=0 ptag=42; finalize open; cut"}));
  EXPECT_THAT(summary(report), HasSubstr("wildcard-race error observed culprits=0"));
  EXPECT_THAT(first_cause(report).message, HasSubstr("ranks 1, 2"));
}

TEST(Wildcards, AnExceptionAfterTheOnlyMessageIsNoRace) {
  EXPECT_THAT(summary(verify(program({"mpi; recv count=1 peer=-1 ptag=0; raise abort; exception",
                                      "mpi; send count=1 peer=0 ptag=0; finalize open; cut"}))),
              HasSubstr("rank-exception error observed culprits=0"));
}

TEST(Wildcards, AServerThatAnswersWhoeverAskedIsNotTriedWithOtherAnswers) {
  const std::string worker =
      "mpi; send count=1 mode=sync peer=0 ptag=0; recv count=1 peer=0 ptag=1; finalize; clean";
  const Report report = verify(
      program({"mpi; recv count=1 peer=-1 ptag=0 from=2; send count=1 peer=2 ptag=1; "
               "recv count=1 peer=-1 ptag=0 from=1; send count=1 peer=1 ptag=1; finalize; clean",
               worker, worker}));
  EXPECT_EQ(summary(report), "verdict clean");
  EXPECT_TRUE(knows(report, "depends on the sender"));
}

TEST(Wildcards, InTorchASendThatNobodyTakesWaits) {
  // recv_any may take rank 2's message, and then rank 1 waits for ever in its send.
  const Report report =
      verify(program({"recv_any n=4 ptag=0; recv n=4 peer=2 ptag=0; clean",
                      "send n=4 peer=0 ptag=0; clean", "send n=4 peer=0 ptag=0; clean"}));
  EXPECT_EQ(summary(report), "wildcard-race error possible group=world seq=0\nverdict findings");
}

TEST(Wildcards, APeerThatWasNotRecordedIsNotAnySource) {
  const Report report = verify(program({"recv n=4; clean", "send n=4; clean"}));
  EXPECT_EQ(summary(report), "verdict clean");
  EXPECT_TRUE(knows(report, "taken to be matched"));
}

TEST(Wildcards, ManyOrdersThatAreAllAlikeAreOneOrder) {
  std::vector<std::string> programs = {"mpi; "};
  for (int r = 1; r < 200; ++r) {
    programs[0] += "recv count=1 peer=-1 ptag=0; ";
    programs.push_back(kSendToZero);
  }
  programs[0] += "finalize; clean";
  EXPECT_EQ(summary(verify(program(programs))), "verdict clean");
}

// Messages that differ, and senders that wait: orders multiply.
trace::Run many_orders() {
  std::vector<std::string> programs = {""};
  for (int r = 1; r < 24; ++r) {
    programs[0] += "recv_any ptag=0; ";
    programs.push_back("send n=" + std::to_string(r) + " peer=0 ptag=0; clean");
  }
  programs[0] += "clean";
  return program(programs);
}

TEST(Wildcards, RoundsOfAGatherAreEachOneOrder) {
  std::vector<std::string> programs = {""};
  for (int r = 1; r < 40; ++r) programs.emplace_back();
  for (int round = 0; round < 5; ++round) {
    for (int r = 1; r < 40; ++r) {
      programs[0] += "recv_any n=1 ptag=0; ";
      programs[static_cast<std::size_t>(r)] += "send n=1 peer=0 ptag=0; barrier; ";
    }
    programs[0] += "barrier; ";
  }
  for (std::string& p : programs) p += "clean";
  EXPECT_EQ(summary(verify(program(programs))), "verdict clean");
}

TEST(Wildcards, AtTheBoundTheVerdictIsInconclusive) {
  const Report report = verify(many_orders());
  EXPECT_EQ(summary(report), "verdict inconclusive");
  EXPECT_TRUE(knows(report, "not every order"));
}

TEST(Wildcards, TheSearchSaysThatItMetItsBound) {
  const auto run = many_orders();
  SearchOptions options;
  options.states = 10;
  const ScheduleSearch search =
      search_schedules(run, group_streams(run), CallSemantics::gloo, options);
  EXPECT_TRUE(search.has_wildcards);
  EXPECT_FALSE(search.complete);
}

TEST(Wildcards, DamagedTracesAccuseNobody) {
  const Report report = verify(
      run_of({{0, "mpi; recv count=1 peer=-1 ptag=0; recv count=1 peer=1 ptag=0; finalize; clean"},
              {1, kSendToZero}},
             3));
  EXPECT_EQ(report.verdict, Verdict::inconclusive) << summary(report);
}

}  // namespace
}  // namespace lockstep::verify
