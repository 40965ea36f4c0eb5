// Calls of several NCCL communicators under way at once, in orders that may lock.
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/verify/program.h"
#include "verify/verify.h"

namespace lockstep::verify {
namespace {

using ::testing::HasSubstr;

std::string rank(const std::string& calls, const std::string& backend = "nccl") {
  return "backend " + backend + "; group a 0,1; group b 0,1; " + calls + " clean";
}
const std::string kAThenB =
    "all_reduce g=a n=4 async at=t.py:1; all_reduce g=b n=4 async at=t.py:2; wait 0; wait 1;";
const std::string kBThenA =
    "all_reduce g=b n=4 async at=t.py:2; all_reduce g=a n=4 async at=t.py:1; wait 0; wait 1;";

TEST(OrderInversions, OppositeOrdersAtTheSameTime) {
  const Report report = verify(program({rank(kAThenB), rank(kBThenA)}));
  EXPECT_EQ(summary(report),
            "cross-group-deadlock warning possible group=a seq=0\nverdict findings");
  const Finding& f = report.findings[0];
  EXPECT_THAT(f.message, HasSubstr("rank 0 issued all_reduce"));
  EXPECT_THAT(f.message, HasSubstr("t.py:1"));
  EXPECT_EQ(f.ranks, (std::vector<trace::Rank>{trace::Rank(0), trace::Rank(1)}));
  EXPECT_EQ(f.evidence.size(), 4U);
}

TEST(OrderInversions, OneOrderIsNone) {
  EXPECT_EQ(summary(verify(program({rank(kAThenB), rank(kAThenB)}))), "verdict clean");
}

TEST(OrderInversions, AWaitInBetweenOrdersThem) {
  const std::string b_then_a =
      "all_reduce g=b n=4 async; wait 0; all_reduce g=a n=4 async; wait 1;";
  EXPECT_EQ(summary(verify(program({rank(kAThenB), rank(b_then_a)}))), "verdict clean");
}

TEST(OrderInversions, GlooRunsThemSideBySide) {
  EXPECT_EQ(summary(verify(program({rank(kAThenB, "gloo"), rank(kBThenA, "gloo")}))),
            "verdict clean");
  EXPECT_THAT(summary(verify(program({rank(kAThenB, "gloo"), rank(kBThenA, "gloo")}),
                             {.semantics = CallSemantics::nccl})),
              HasSubstr("cross-group-deadlock warning possible"));
}

TEST(OrderInversions, ManyStepsAreOneFinding) {
  std::string ab;
  std::string ba;
  for (int step = 0; step < 500; ++step) {
    const std::string waits =
        "wait " + std::to_string(2 * step) + "; wait " + std::to_string(2 * step + 1) + ";";
    ab += "all_reduce g=a n=4 async; all_reduce g=b n=4 async;" + waits;
    ba += "all_reduce g=b n=4 async; all_reduce g=a n=4 async;" + waits;
  }
  EXPECT_EQ(summary(verify(program({rank(ab), rank(ba)}))),
            "cross-group-deadlock warning possible group=a seq=0\nverdict findings");
}

TEST(OrderInversions, ACycleOverThreeGroups) {
  const std::string groups = "backend nccl; group a 0,2; group b 0,1; group c 1,2; ";
  const auto two = [&](const std::string& x, const std::string& y) {
    return groups + "all_reduce g=" + x + " n=4 async; all_reduce g=" + y +
           " n=4 async; wait 0; wait 1; clean";
  };
  EXPECT_EQ(summary(verify(program({two("a", "b"), two("b", "c"), two("c", "a")}))),
            "cross-group-deadlock warning possible group=a seq=0\nverdict findings");
  EXPECT_EQ(summary(verify(program({two("a", "b"), two("b", "c"), two("a", "c")}))),
            "verdict clean");
}

TEST(OrderInversions, DisjointGroupsMayInterleaveAsTheyLike) {
  const std::string groups = "backend nccl; group a 0,1; group b 2,3; ";
  const auto calls = [&](const std::string& g, const std::string& waits) {
    return groups + "all_reduce g=" + g + " n=4 async; all_reduce g=" + g + " n=4 async; " + waits +
           " clean";
  };
  EXPECT_EQ(summary(verify(program({calls("a", "wait 0; wait 1;"), calls("a", "wait 1; wait 0;"),
                                    calls("b", "wait 0; wait 1;"), calls("b", "wait 1;")}))),
            "never-waited warning observed culprits=3 group=b seq=0\nverdict findings");
}

TEST(OrderInversions, WhereNoWaitsAreRecordedItCannotBeTold) {
  const std::string ab = "all_reduce g=a n=4 async; all_reduce g=b n=4 async;";
  const std::string ba = "all_reduce g=b n=4 async; all_reduce g=a n=4 async;";
  const Report report = verify(program({rank(ab), rank(ba)}));
  EXPECT_EQ(summary(report), "verdict clean");
  EXPECT_TRUE(std::any_of(report.unknown.begin(), report.unknown.end(), [](const std::string& s) {
    return s.find("waits: not recorded") != std::string::npos;
  }));
}

}  // namespace
}  // namespace lockstep::verify
