// Calls that a rank leaves out, makes too often, or makes in another order.
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/verify/program.h"
#include "verify/verify.h"

namespace lockstep::verify {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(Edits, ASkippedCallIsOneFindingThoughEverythingAfterItIsOff) {
  const std::string step = "all_reduce n=1 what=a; all_reduce n=2 what=b; all_reduce n=3 what=c; ";
  EXPECT_EQ(judge({step + step + "all_reduce n=1 what=a; all_reduce n=2 what=b open; hung",
                   step + step + "all_reduce n=1 what=a; all_reduce n=2 what=b open; hung",
                   step + step + "all_reduce n=1 what=a; all_reduce n=3 what=c open; hung"}),
            "missing-collective error proven culprits=2 group=world seq=7\nverdict findings");
}

TEST(Edits, ASkippedCallIsSeenWithoutParameterNames) {
  const std::string step = "all_reduce n=1; all_reduce n=2; all_reduce n=3; ";
  EXPECT_EQ(judge({step + step + "all_reduce n=1; all_reduce n=2 open; hung",
                   step + step + "all_reduce n=1; all_reduce n=2 open; hung",
                   step + step + "all_reduce n=1; all_reduce n=3 open; hung"}),
            "missing-collective error proven culprits=2 group=world seq=7\nverdict findings");
}

TEST(Edits, ASkipInEveryStepIsStillOneFinding) {
  std::string full;
  std::string skipping;
  for (int s = 0; s < 6; ++s) {
    const std::string step = " step=" + std::to_string(s) + "; ";
    full += "all_reduce n=4 what=a" + step + "all_reduce n=4 what=b" + step;
    skipping += "all_reduce n=4 what=b" + step;
  }
  EXPECT_EQ(judge({full + "clean", full + "clean", skipping + "clean"}).substr(0, 71),
            "missing-collective error observed culprits=2 group=world seq=0 step=0\nv");
}

TEST(Edits, AnExtraCall) {
  const std::string step = "all_reduce n=1 what=a; all_reduce n=2 what=b; ";
  EXPECT_EQ(
      judge({step + "barrier; " + step + "clean", step + step + "clean", step + step + "clean"})
          .substr(0, 58),
      "extra-collective error observed culprits=0 group=world seq");
}

// Every backward reduces, and rank 1 has one more micro-batch per step.
TEST(Edits, OneMicroBatchMoreIsADifferentAccumulationCount) {
  const auto steps = [](int micro_batches) {
    std::string out;
    for (const char* step : {"0", "1"})
      for (int m = 0; m < micro_batches; ++m)
        for (const char* name : {"a", "b"})
          out += std::string("all_reduce n=8 what=") + name + " step=" + step + "; ";
    return out;
  };
  const Report report =
      verify(program({steps(2) + "clean", steps(3) + "hung", steps(2) + "clean"}));
  ASSERT_FALSE(report.findings.empty());
  const Finding& f = report.findings[0];
  EXPECT_EQ(f.rule, RuleId::extra_collective);
  EXPECT_THAT(f.message, testing::StartsWith("the accumulation counts differ: rank 1 reduced its "
                                             "gradients more often in step 0 than ranks 0, 2."));
  EXPECT_THAT(f.fix, HasSubstr("the same number of micro-batches per step"));
  // A call more that repeats none before it is another matter.
  const Report other =
      verify(program({"all_reduce n=8 what=a step=0; all_reduce n=8 what=b step=0; clean",
                      "all_reduce n=8 what=a step=0; all_reduce n=9 what=c step=0; "
                      "all_reduce n=8 what=b step=0; clean",
                      "all_reduce n=8 what=a step=0; all_reduce n=8 what=b step=0; clean"}));
  ASSERT_FALSE(other.findings.empty());
  EXPECT_THAT(other.findings[0].message, testing::Not(HasSubstr("accumulation")));
}

// Rank 0 alone validates: its gathers pair with those of the other's next step, and only what comes
// later differs.
// The same of a call left out. What to do about a barrier is not what helps with gradients.
TEST(Edits, ACallLeftOutAtTheEndPairsNothingWrongly) {
  const auto told = [](const std::string& call, const std::string& then) {
    const std::string both = "backend nccl; group a 0,1,2; all_reduce n=8 g=a async step=0; ";
    const std::string other =
        both + call + " async step=0 open; all_reduce n=8 g=a async step=1 open; " + then + "hung";
    const Report report = verify(
        program({both + "all_reduce n=8 g=a async step=1 open; " + then + "hung", other, other}));
    EXPECT_EQ(report.findings.at(0).rule, RuleId::missing_collective);
    return report.findings.at(0).why + " " + report.findings.at(0).fix;
  };
  const std::string barrier = told("barrier", "");
  EXPECT_THAT(barrier, HasSubstr("Without rank 0 the call does not end"));
  EXPECT_THAT(barrier, HasSubstr("a condition before it must come out alike"));
  EXPECT_THAT(told("all_reduce n=6", ""), HasSubstr("with zeros"));
  EXPECT_THAT(told("all_reduce n=6", "all_reduce n=4 async step=1 open; "),
              HasSubstr("paired with the wrong one"));
}

// What the report says of an extra call: later calls pair with the wrong ones only where there are
// such calls.
TEST(Edits, AnExtraCallThatNobodyElseFollowsPairsWithNothing) {
  const auto why = [](const std::string& others_then) {
    const std::string both = "backend nccl; group a 0,1,2; all_reduce n=8 g=a async; ";
    const std::string other = both + "all_reduce n=8 g=a async open; " + others_then + "hung";
    const Report report = verify(program(
        {both + "barrier async open; all_reduce n=8 g=a async open; " + others_then + "hung", other,
         other}));
    EXPECT_EQ(report.findings.at(0).rule, RuleId::extra_collective);
    return report.findings.at(0).why;
  };
  EXPECT_THAT(why(""), HasSubstr("The others never make that call, so it does not end"));
  EXPECT_THAT(why("all_reduce n=4 async open; "), HasSubstr("paired with the wrong one"));
}

TEST(Edits, CallsThatPairedWithOthersAreToldByTheirLines) {
  const std::string step =
      "all_reduce n=4 at=t.py:9; all_reduce n=4 at=t.py:9; "
      "all_reduce n=8 at=t.py:9; ";
  const std::string goes_on = step + step +
                              "all_reduce n=4 at=t.py:9; all_reduce n=4 at=t.py:9; "
                              "all_reduce n=8 at=t.py:9 open; hung";
  const std::string validates = step + step +
                                "all_reduce n=4 at=v.py:5; all_reduce n=4 at=v.py:5; "
                                "all_reduce n=4 at=t.py:9 open; hung";
  const auto found =
      HasSubstr("extra-collective error proven culprits=0 group=world seq=6\nverdict findings");
  EXPECT_THAT(judge({validates, goes_on}), found);
  EXPECT_THAT(judge({validates, goes_on, goes_on}), found);
  // Other lines alone are not a fault: a root may call from another branch.
  EXPECT_EQ(judge({"broadcast n=4 root=0 at=t.py:3; barrier at=t.py:7; clean",
                   "broadcast n=4 root=0 at=t.py:5; barrier at=t.py:7; clean"}),
            "verdict clean");
}

// A tower that runs once for images and, on ranks 0 and 1, once more for videos.
TEST(Edits, APartThatRunsOnceMoreFromALineOfItsOwnIsTooMany) {
  const auto rank = [](bool has_video) {
    const std::string tower = "all_gather_into_tensor n=120 at=m.py:28; ";
    const std::string layers = repeated("all_gather_into_tensor n=276 at=m.py:31; ", 3);
    const std::string last = has_video ? "all_gather_into_tensor n=120 at=m.py:29 open; hung"
                                       : "all_gather_into_tensor n=276 at=m.py:31 open; hung";
    return repeated(tower + layers, 2) + tower + last;
  };
  EXPECT_THAT(judge({rank(true), rank(true), rank(false), rank(false)}),
              StartsWith("extra-collective error proven culprits=0,1 group=world seq=9"));
}

// Rank 1 leaves out three gathers of its encoder, and blocks in the second one after them. Only
// these three are told.
TEST(Edits, NoMoreCallsAreLeftOutThanWereMade) {
  const std::string step =
      "all_gather_into_tensor n=1056; all_gather_into_tensor n=240; "
      "all_gather_into_tensor n=816; all_gather_into_tensor n=816; " +
      repeated("all_gather_into_tensor n=552; ", 3) +
      repeated("reduce_scatter_tensor n=1104; ", 3) + "reduce_scatter_tensor n=480; ";
  const std::string root = "all_gather_into_tensor n=1056; ";
  const Report report = verify(
      program({repeated(step, 7) + root + "all_gather_into_tensor n=240 open; hung",
               repeated(step, 7) + root +
                   "all_gather_into_tensor n=552; all_gather_into_tensor n=552 open; hung"}));
  EXPECT_EQ(report.findings.at(0).message,
            "rank 1 never issued all_gather_into_tensor of 240, which rank 0 issued as call 78 of "
            "group world");
}

// In the first round, where nothing shows which is usual, gathers from two lines are two calls, and
// from one line they may be one in two sizes.
TEST(Edits, GathersFromTwoLinesAreNotOneInTwoSizes) {
  const auto rank = [](int n, int line) {
    return "all_gather_into_tensor n=64 at=m.py:10; " +
           fmt::format("all_gather_into_tensor n={} at=m.py:{} open; hung", n, line);
  };
  EXPECT_THAT(judge({rank(1872, 28), rank(552, 31)}),
              StartsWith("missing-collective error proven "));
  EXPECT_THAT(judge({rank(1872, 28), rank(552, 28)}), StartsWith("size-mismatch error proven "));
}

TEST(Edits, TwoCallsInAnotherOrder) {
  EXPECT_THAT(judge({"all_reduce n=4 what=a; all_reduce n=4 what=b; barrier; clean",
                     "all_reduce n=4 what=b; all_reduce n=4 what=a; barrier; clean",
                     "all_reduce n=4 what=a; all_reduce n=4 what=b; barrier; clean"}),
              HasSubstr("order-swap error observed culprits=1 group=world seq=0"));
}

TEST(Edits, SeveralCallsInAnotherOrder) {
  const auto rank = [](const std::string& order) {
    std::string out = "all_reduce n=9; ";
    for (const char size : order) {
      out += "all_reduce n=";
      out += size;
      out += " async; ";
    }
    out += "barrier; clean";
    return out;
  };
  const Report report = verify(program({rank("1234"), rank("4321"), rank("1234")}));
  EXPECT_THAT(summary(report),
              StartsWith("order-swap error observed culprits=1 group=world seq=1\nverdict"));
  EXPECT_THAT(report.findings[0].message, HasSubstr("rank 1 issued 4 calls in another order than"));
  // A row that only moved, or calls that are alike: as well something was left out.
  EXPECT_THAT(judge({rank("1234"), rank("2341"), rank("1234")}), Not(HasSubstr("order-swap")));
  EXPECT_THAT(judge({rank("1224"), rank("4221"), rank("1224")}), Not(HasSubstr("order-swap")));
}

TEST(Edits, AWholeBranchLeftOutIsSeenFromTheOneCallAfterIt) {
  std::string step;
  for (int i = 0; i < 30; ++i)
    step += "all_reduce n=" + std::to_string(10 + i) + " what=image." + std::to_string(i) + "; ";
  step += "all_reduce n=7 what=text; all_reduce n=8 what=head; ";
  EXPECT_THAT(judge({step + step + "all_reduce n=10 what=image.0 open; hung",
                     step + step + "all_reduce n=7 what=text open; cut",
                     step + step + "all_reduce n=10 what=image.0 open; hung"}),
              HasSubstr("missing-collective error proven culprits=1 group=world seq=64"));
}

// One call of step 1 left out, one too many issued in step 2: the calls between pair across steps.
TEST(Edits, ACallLeftOutThatIsMadeUpForInTheNextStep) {
  const auto calls = [](const std::vector<int>& in_step) {
    std::string out;
    for (std::size_t s = 0; s < in_step.size(); ++s)
      for (int i = 0; i < in_step[s]; ++i)
        out += "all_reduce n=4 what=w step=" + std::to_string(s) + "; ";
    return out + "clean";
  };
  EXPECT_EQ(judge({calls({3, 3, 3, 3, 3}), calls({3, 2, 4, 3, 3})}),
            "step-mismatch error observed culprits=1 group=world seq=5 step=1\nverdict findings");
  EXPECT_EQ(judge({calls({3, 2, 4, 3, 3}), calls({3, 3, 3, 3, 3})}),
            "step-mismatch error observed culprits=0 group=world seq=5 step=1\nverdict findings");
  // The look-alike: a label that is late each time.
  EXPECT_EQ(judge({calls({3, 3, 3, 3, 3}), calls({4, 3, 3, 3, 2})}), "verdict clean");
  // Too few steps to tell the two apart.
  EXPECT_EQ(judge({calls({3, 3, 3}), calls({3, 2, 4})}), "verdict clean");
  // Batches tell them apart: the rank went to the next step early where it lacked images.
  const std::string images =
      "modality 0 image,text; modality 1 image,text; modality 2 image,text; ";
  const std::string text_in_1 = "modality 0 image,text; modality 1 text; modality 2 image,text; ";
  EXPECT_THAT(judge({images + calls({3, 3, 3}), text_in_1 + calls({3, 2, 4})}),
              HasSubstr("modality-divergence error observed culprits=1 group=world seq=5 step=1"));
  // Its labels are late where it has images, too.
  EXPECT_EQ(judge({images + calls({3, 3, 3}), text_in_1 + calls({2, 3, 4})}), "verdict clean");
}

// Calls of another group in between show that the call was made up for.
TEST(Edits, ACallMadeUpForAfterThoseOfAnotherGroup) {
  const auto calls = [](const std::vector<int>& in_step, const std::string& late_label = "") {
    std::string out = "group dp 0,1,2; ";
    for (std::size_t s = 0; s < in_step.size(); ++s) {
      const std::string step = " step=" + std::to_string(s) + "; ";
      for (int i = 0; i < in_step[s]; ++i)
        out += "all_reduce n=4" + (s == 1 && i == 0 && !late_label.empty() ? late_label : step);
      out += "all_reduce g=dp n=8" + step;
    }
    return out + "clean";
  };
  EXPECT_EQ(judge({calls({3, 3, 3}), calls({3, 2, 4}), calls({3, 3, 3})}),
            "step-mismatch warning observed culprits=1 group=world seq=5 step=1\nverdict findings");
  // The look-alike: a label that is late.
  EXPECT_EQ(judge({calls({3, 3, 3}), calls({3, 3, 3}, " step=0; "), calls({3, 3, 3})}),
            "verdict clean");
}

// Values and their lengths, which rank 1 receives in the other order.
TEST(Edits, MessagesThatAreReceivedInAnotherOrder) {
  const auto of = [](const std::string& received) {
    const std::string sends = "send n=16 peer=1 async; send n=4 peer=1 async; ";
    const Report report =
        verify(program({"backend nccl; " + sends + "hung", "backend nccl; " + received + "hung"}));
    return report.findings.at(0);
  };
  const Finding crossed = of("recv n=4 peer=0 async; recv n=16 peer=0 async; ");
  EXPECT_EQ(crossed.rule, RuleId::p2p_size);
  EXPECT_THAT(crossed.why, HasSubstr("receives them in the other"));
  EXPECT_THAT(crossed.fix, HasSubstr("receive in the order of the sends"));
  // The look-alike: one message of another size.
  EXPECT_EQ(of("recv n=4 peer=0 async; recv n=4 peer=0 async; ").why, "");
}

// Micro-batches that are reduced one by one, of which rank 1 has one more. No parameters are known.
TEST(Edits, ACallMadeOnceMoreInAStepMayBeOfAMicroBatch) {
  const auto of = [](const std::string& more_at) {
    const auto rank = [&](const std::string& more) {
      std::string out;
      for (int step = 0; step < 4; ++step)
        out += fmt::format("all_reduce n=9 at=a.py:7 step={0}; {1}barrier step={0}; ", step,
                           step == 2 ? more : "");
      return out + "clean";
    };
    const std::string more = "all_reduce n=9 step=2 at=" + more_at + "; ";
    return verify(program({rank(""), rank(more), rank("")})).findings.at(0);
  };
  EXPECT_THAT(of("a.py:7").fix, HasSubstr("synchronise in as many micro-batches"));
  EXPECT_THAT(of("a.py:9").fix, Not(HasSubstr("micro-batches")));
}

}  // namespace
}  // namespace lockstep::verify
