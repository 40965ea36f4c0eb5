// Calls that meet and do not fit together: each field where it must be told, and beside it a
// look-alike.
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/verify/program.h"
#include "trace/formats/text/text_trace.h"
#include "trace/load.h"
#include "verify/verify.h"

namespace lockstep::verify {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Matching, AgreeingRanksAreClean) {
  EXPECT_EQ(judge({"all_reduce n=8 redop=sum; barrier; clean",
                   "all_reduce n=8 redop=sum; barrier; clean"}),
            "verdict clean");
}

TEST(Matching, WhatWasNotRecordedIsNoMismatch) {
  EXPECT_EQ(judge({"all_reduce n=8 redop=sum dtype=float32 what=w; clean", "all_reduce; clean"}),
            "verdict clean");
}

TEST(Matching, ShapesMayDifferWhereElementCountsAgree) {
  EXPECT_EQ(judge({"all_reduce n=4,8; clean", "all_reduce n=32; clean"}), "verdict clean");
}

TEST(Matching, DifferentSizesInAHang) {
  EXPECT_EQ(judge({"all_reduce n=8; all_reduce n=16 open; hung",
                   "all_reduce n=8; all_reduce n=16 open; hung",
                   "all_reduce n=8; all_reduce n=12 open; hung"}),
            "size-mismatch error proven culprits=2 group=world seq=1\nverdict findings");
}

TEST(Matching, DifferentReduceOperationsDoNotHang) {
  EXPECT_EQ(
      judge({"all_reduce n=8 redop=sum; barrier; clean", "all_reduce n=8 redop=max; barrier; clean",
             "all_reduce n=8 redop=sum; barrier; clean"}),
      "redop-mismatch error observed culprits=1 group=world seq=0\nverdict findings");
}

TEST(Matching, DifferentTypes) {
  EXPECT_THAT(
      judge({"all_reduce n=8 dtype=float32 open; hung", "all_reduce n=8 dtype=float32 open; hung",
             "all_reduce n=8 dtype=bfloat16 open; hung"}),
      HasSubstr("dtype-mismatch error proven culprits=2 group=world seq=0"));
}

TEST(Matching, DifferentRoots) {
  EXPECT_THAT(judge({"broadcast n=8 root=0 open; hung", "broadcast n=8 root=1 open; hung",
                     "broadcast n=8 root=0 open; hung"}),
              HasSubstr("root-mismatch error proven culprits=1 group=world seq=0"));
}

// broadcast_object_list(): the size, then as many bytes. Ranks 2 and 3 got theirs from two roots.
TEST(Matching, SizesThatTwoRootsHandedOutAreNoFaultOfTheirOwn) {
  const std::string sized_by_0 = "broadcast n=1 root=0; broadcast n=22 root=0 open; hung";
  const std::string sized_by_1 = "broadcast n=1 root=0; broadcast n=4 root=0 open; hung";
  EXPECT_EQ(judge({"broadcast n=1 root=0 open; hung", "broadcast n=1 root=1 open; hung", sized_by_0,
                   sized_by_1}),
            "root-mismatch error proven culprits=1 group=world seq=0\nverdict findings");
  // Reduce operations hand out no sizes: two faults.
  const Report two = verify(program({"all_reduce n=1 redop=sum; broadcast n=22 root=0 open; hung",
                                     "all_reduce n=1 redop=max; broadcast n=22 root=0 open; hung",
                                     "all_reduce n=1 redop=sum; broadcast n=22 root=0 open; hung",
                                     "all_reduce n=1 redop=sum; broadcast n=4 root=0 open; hung"}));
  EXPECT_EQ(two.findings.size(), 2U) << summary(two);
}

TEST(Matching, RootsOfSeveralRanksAreToldByRank) {
  const std::string usual = "reduce n=8 root=0; ";
  const Report report = verify(
      program({usual + "reduce n=8 root=0 open; hung", usual + "reduce n=8 root=1 open; hung",
               usual + "reduce n=8 root=2 open; hung", usual + "reduce n=8 root=2 open; hung",
               usual + "reduce n=8 root=0 open; hung"}));
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].rule, RuleId::root_mismatch);
  EXPECT_THAT(report.findings[0].message,
              HasSubstr("rank 1 issued reduce of 8 (root 1) and ranks 2, 3 issued reduce of 8 "
                        "(root 2) where ranks 0, 4 issued reduce of 8 (root 0)"));
}

TEST(Matching, DifferentOperations) {
  EXPECT_THAT(judge({"all_reduce n=8 open; hung", "broadcast n=8 root=0 open; hung",
                     "all_reduce n=8 open; hung"}),
              HasSubstr("op-mismatch error proven culprits=1 group=world seq=0"));
}

TEST(Matching, EqualCallsWithDifferentParametersAreSeenThoughNothingHangs) {
  EXPECT_THAT(
      judge({"all_reduce n=4 what=a; barrier; clean", "all_reduce n=4 what=x; barrier; clean",
             "all_reduce n=4 what=a; barrier; clean"}),
      HasSubstr("identity-mismatch error observed culprits=1 group=world seq=0"));
}

TEST(Matching, WithoutParametersTheSameIsCleanAndTheLimitIsListed) {
  const Report report =
      verify(program({"all_reduce n=4; barrier; clean", "all_reduce n=4; barrier; clean"}));
  EXPECT_EQ(summary(report), "verdict clean");
  ASSERT_EQ(report.unknown.size(), 1U);
  EXPECT_THAT(report.unknown[0], HasSubstr("not recorded"));
}

TEST(Matching, GroupsWithDifferentMembers) {
  EXPECT_THAT(judge({"group dp 0,1; all_reduce g=dp n=4 open; hung",
                     "group dp 0,1,2; all_reduce g=dp n=4 open; hung", "group dp 0,1; clean"}),
              HasSubstr("group-divergence error"));
}

TEST(Matching, GroupsOfOthersAreNobodysBusiness) {
  EXPECT_EQ(
      judge({"group a 0,1; all_reduce g=a n=4; clean", "group a 0,1; all_reduce g=a n=4; clean",
             "group b 2; all_reduce g=b n=9; clean"}),
      "verdict clean");
}

TEST(Matching, TheOrderOfFilesChangesNothing) {
  std::vector<std::string> texts;
  const std::vector<std::string> programs = {"all_reduce n=8; all_reduce n=16 open; hung",
                                             "all_reduce n=8; all_reduce n=16 open; hung",
                                             "all_reduce n=8; all_reduce n=12 open; hung"};
  const std::string expected = judge(programs);
  std::vector<std::size_t> order = {0, 1, 2};
  do {
    trace::Tables tables;
    std::vector<trace::RankTrace> traces;
    for (const std::size_t r : order) {
      auto trace = trace::read_text_trace(
          program_text(static_cast<std::int32_t>(r), 3, programs[r]), "x", tables);
      ASSERT_TRUE(trace);
      traces.push_back(std::move(*trace));
    }
    EXPECT_EQ(summary(verify(trace::assemble_run(std::move(tables), std::move(traces)))), expected);
  } while (std::next_permutation(order.begin(), order.end()));
}

// Messages of a pipeline, of which the last one does not fit. The side that changed its size is
// named, where both sides show what was usual.
TEST(Matching, TheSideOfAMessageThatChangedItsSizeIsNamed) {
  const auto of = [](const std::string& rounds_sent, const std::string& sent,
                     const std::string& rounds_received, const std::string& received) {
    return judge(
        {"backend nccl; " + rounds_sent + "send n=" + sent + " peer=1 async open; hung",
         "backend nccl; " + rounds_received + "recv n=" + received + " peer=0 async open; hung"});
  };
  const std::string sends = repeated("send n=8 peer=1 async; ", 2);
  const std::string receives = repeated("recv n=8 peer=0 async; ", 2);
  EXPECT_THAT(of(sends, "16", receives, "8"), HasSubstr("p2p-size error observed culprits=0"));
  EXPECT_THAT(of(sends, "8", receives, "16"), HasSubstr("p2p-size error observed culprits=1"));
  // The first messages; and sizes that change anyway.
  EXPECT_THAT(of("", "16", "", "8"), HasSubstr("p2p-size error observed group="));
  EXPECT_THAT(
      of(sends + "send n=4 peer=1 async; ", "16", receives + "recv n=4 peer=0 async; ", "8"),
      HasSubstr("p2p-size error observed group="));
}

// Two messages a round, as in batch_isend_irecv, of which one rank exchanges the order or leaves
// one out.
TEST(Matching, TheSideThatBrokeTheOrderOfItsRoundsIsNamed) {
  const auto messages = [](const std::string& op, const std::vector<int>& sizes) {
    std::string out = "backend nccl; ";
    for (const int size : sizes)
      out += fmt::format("{} n={} peer={} async open; ", op, size, op == "send" ? 1 : 0);
    return out + "hung";
  };
  const auto first_of = [&](const std::vector<int>& sent, const std::vector<int>& received) {
    const Report report = verify(program({messages("send", sent), messages("recv", received)}));
    std::string out = std::string(report.findings.at(0).fix);
    for (const trace::Rank rank : report.findings[0].culprits)
      out += fmt::format(" {}", rank.value);
    return out;
  };
  const std::vector<int> usual = {4, 8, 4, 8, 4, 8};
  EXPECT_THAT(first_of({4, 8, 4, 8, 8, 4}, usual),
              AllOf(HasSubstr("make rank 0 send in the order"), EndsWith(" 0")));
  EXPECT_THAT(first_of(usual, {4, 8, 4, 8, 8, 4}),
              AllOf(HasSubstr("make rank 1 receive in the order"), EndsWith(" 1")));
  EXPECT_THAT(first_of({4, 8, 4, 8, 4, 4, 8}, usual), EndsWith(" 0")) << "it left out an 8";
  // One round before tells no order, and neither do rounds that both ranks change.
  EXPECT_THAT(first_of({4, 8, 8, 4}, {4, 8, 4, 8}), EndsWith("batch_isend_irecv)"));
  EXPECT_THAT(first_of({4, 8, 4, 8, 16}, {4, 8, 4, 8, 12}), Not(EndsWith(" 0")));
  // Of texts, of which each has its own length.
  EXPECT_THAT(first_of({4, 7, 4, 9, 4, 5}, {4, 7, 4, 9, 4, 6}), Not(EndsWith(" 0")));
}

// A trainer of a framework, whose calls all have one line of the program. It logs after four steps
// and at the end, which rank 1 reaches two steps before rank 0.
TEST(Matching, ALoopOfAFrameworkThatEndedEarlyOnARank) {
  const std::string step = "all_gather n=1 dtype=int64 at=m.py:3; all_reduce n=8 at=m.py:3; ";
  const std::string log = "all_gather n=1 dtype=float32 at=m.py:3";
  const auto advice = [&](const std::string& last) {
    const std::string begin = repeated(step, 4) + log + "; " + repeated(step, 2);
    const Report report = verify(program(
        {begin + "all_gather n=1 dtype=int64 at=m.py:3 open; hung", begin + last + " open; hung"}));
    return report.findings.at(0).fix;
  };
  EXPECT_THAT(advice(log), HasSubstr("as many iterations on every rank"));
  EXPECT_THAT(advice("all_gather n=1 dtype=float64 at=m.py:3"), Not(HasSubstr("iterations")))
      << "it never made such a call";
}

// A validation of which rank 1 makes a round more, beside the training's next call.
TEST(Matching, ASizeThatDiffersBetweenTwoCallsOfTheProgram) {
  const std::string train = "all_reduce n=18 at=train.py:25; ";
  const std::string validate = "all_reduce n=2 at=train.py:11; ";
  const auto of = [&](const std::string& before) {
    const auto rank = [&](const std::string& last) {
      return before + last.substr(0, last.size() - 2) + " open; hung";
    };
    const Report report = verify(program({rank(train), rank(validate)}));
    return report.findings.at(0);
  };
  const Finding two_calls = of(repeated(train, 3) + repeated(validate, 4));
  EXPECT_EQ(two_calls.rule, RuleId::size_mismatch);
  EXPECT_THAT(two_calls.why, HasSubstr("two calls of the program"));
  EXPECT_THAT(two_calls.fix, HasSubstr("as many rounds of each loop"));
  // Where they never made both together, the lines may be two branches of one call.
  EXPECT_THAT(of("").fix, HasSubstr("pad to a common size"));
}

}  // namespace
}  // namespace lockstep::verify
