// What MPI leaves open: sends that may wait for their receive, collectives that may synchronise.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/verify/program.h"
#include "verify/verify.h"

namespace lockstep::verify {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const Finding& first_finding(const Report& report) {
  static const Finding kNone;
  return report.findings.empty() ? kNone : report.findings[0];
}

TEST(Rendezvous, SendsThatOnlyBuffersLetThroughAreAPossibleCycle) {
  const Report report = verify(program(
      {"mpi; send count=4 peer=1 ptag=0 at=ring.c:10; recv count=4 peer=1 ptag=0; finalize; clean",
       "mpi; send count=4 peer=0 ptag=0 at=ring.c:10; recv count=4 peer=0 ptag=0; finalize; "
       "clean"}));
  EXPECT_EQ(summary(report), "p2p-cycle error possible group=world seq=0\nverdict findings");
  EXPECT_THAT(first_finding(report).message,
              HasSubstr("where sends are not buffered, rank 0 waits in send"));
  EXPECT_THAT(first_finding(report).message, HasSubstr("ring.c:10"));
  EXPECT_EQ(first_finding(report).evidence.size(), 2U);
  EXPECT_FALSE(proves_stuck(report));
}

TEST(Rendezvous, ACycleOfThreeIsNamedInFull) {
  const auto rank = [](int r) {
    return fmt::format(
        "mpi; send count=1 peer={} ptag=0; recv count=1 peer={} ptag=0; finalize; clean",
        (r + 1) % 3, (r + 2) % 3);
  };
  const Report report = verify(program({rank(0), rank(1), rank(2)}));
  EXPECT_EQ(summary(report), "p2p-cycle error possible group=world seq=0\nverdict findings");
  EXPECT_EQ(first_finding(report).ranks,
            (std::vector<trace::Rank>{trace::Rank(0), trace::Rank(1), trace::Rank(2)}));
}

TEST(Rendezvous, OneThatReceivesFirstOpensTheCycle) {
  EXPECT_EQ(summary(verify(program(
                {"mpi; send count=4 peer=1 ptag=0; recv count=4 peer=1 ptag=0; finalize; clean",
                 "mpi; recv count=4 peer=0 ptag=0; send count=4 peer=0 ptag=0; finalize; clean"}))),
            "verdict clean");
}

TEST(Rendezvous, ReceivesPostedBeforehandOpenIt) {
  const auto rank = [](int peer) {
    const std::string p = std::to_string(peer);
    return "mpi; recv count=4 peer=" + p + " ptag=0 async open; send count=4 peer=" + p +
           " ptag=0; wait 0; finalize; clean";
  };
  EXPECT_EQ(summary(verify(program({rank(1), rank(0)}))), "verdict clean");
}

TEST(Rendezvous, BufferedModeReturnsByItself) {
  const auto rank = [](int peer) {
    const std::string p = std::to_string(peer);
    return "mpi; send count=4 mode=buffered peer=" + p + " ptag=0; recv count=4 peer=" + p +
           " ptag=0; finalize; clean";
  };
  EXPECT_EQ(summary(verify(program({rank(1), rank(0)}))), "verdict clean");
}

TEST(Rendezvous, SynchronousModeWaitsForCertain) {
  const auto rank = [](int peer) {
    const std::string p = std::to_string(peer);
    return "mpi; send count=4 mode=sync peer=" + p + " ptag=0; recv count=4 peer=" + p +
           " ptag=0; finalize; clean";
  };
  const Report report = verify(program({rank(1), rank(0)}, /*timed=*/false));
  EXPECT_EQ(summary(report), "p2p-cycle error proven group=world seq=0\nverdict findings");
}

TEST(Rendezvous, AHangInStandardSendsIsSeenButNotProven) {
  EXPECT_EQ(summary(verify(program({"mpi; send count=4 peer=1 ptag=0 open; hung",
                                    "mpi; send count=4 peer=0 ptag=0 open; hung"}))),
            "p2p-cycle error observed group=world seq=0\nverdict findings");
}

TEST(Rendezvous, ASendThatNobodyReceives) {
  const Report report =
      verify(program({"mpi; send count=4 peer=1 ptag=0; finalize; clean", "mpi; finalize; clean"}));
  EXPECT_EQ(summary(report), "p2p-unmatched error possible group=world seq=0\nverdict findings");
}

TEST(Rendezvous, ACollectiveThatNeedNotWaitAgainstAMessage) {
  // Rank 0's broadcast returned at once; an MPI in which it does not never comes to the send.
  const Report report = verify(program(
      {"mpi; broadcast count=1 root=0 at=a.c:5; send count=1 peer=1 ptag=0; finalize; clean",
       "mpi; recv count=1 peer=0 ptag=0 at=a.c:9; broadcast count=1 root=0; finalize; clean"}));
  EXPECT_EQ(summary(report), "deadlock error possible group=world seq=0\nverdict findings");
  EXPECT_THAT(first_finding(report).message,
              HasSubstr("where collectives wait for all their members"));
}

TEST(Rendezvous, TheSameOrderOnBothSidesIsNone) {
  EXPECT_EQ(summary(verify(program(
                {"mpi; broadcast count=1 root=0; send count=1 peer=1 ptag=0; finalize; clean",
                 "mpi; broadcast count=1 root=0; recv count=1 peer=0 ptag=0; finalize; clean"}))),
            "verdict clean");
}

TEST(Rendezvous, WhereARankIsMissingNobodyIsAccused) {
  const Report report = verify(
      run_of({{0, "mpi; send count=4 peer=1 ptag=0; recv count=4 peer=1 ptag=0; clean"}}, 2));
  EXPECT_EQ(summary(report), "verdict inconclusive");
}

TEST(Semantics, ForcedOnesDecideWhatBlocks) {
  const auto rank = [](int peer) {
    const std::string p = std::to_string(peer);
    return "send n=4 peer=" + p + " ptag=0; recv n=4 peer=" + p + " ptag=0; clean";
  };
  const auto run = program({rank(1), rank(0)}, /*timed=*/false);
  EXPECT_THAT(summary(verify(run)), HasSubstr("p2p-cycle error proven"));
  EXPECT_THAT(summary(verify(run, {.semantics = CallSemantics::mpi})),
              HasSubstr("p2p-cycle error possible"));
  EXPECT_THAT(summary(verify(run, {.semantics = CallSemantics::nccl})),
              HasSubstr("p2p-cycle error proven"));
}

TEST(Semantics, NcclRunsACommunicatorsCallsInOrder) {
  // The first pair never completes; after it nothing of this communicator does.
  const auto run = program({"all_reduce n=4 async; all_reduce n=8 async; wait 1 open; clean",
                            "all_reduce n=5 async; all_reduce n=8 async; wait 1 open; clean"},
                           /*timed=*/false);
  EXPECT_TRUE(proves_stuck(verify(run, {.semantics = CallSemantics::nccl})));
  EXPECT_FALSE(proves_stuck(verify(run, {.semantics = CallSemantics::gloo})));
}

TEST(Semantics, NamesAreFoundAgain) {
  for (const CallSemantics s : {CallSemantics::gloo, CallSemantics::nccl, CallSemantics::mpi}) {
    EXPECT_EQ(call_semantics_from_name(to_string(s)), s);
  }
  EXPECT_FALSE(call_semantics_from_name("smoke"));
  EXPECT_EQ(recorded_semantics(program({"backend cuda:nccl; clean"})), CallSemantics::nccl);
  for (const char* const of_other_devices : {"xpu:xccl", "hccl", "cncl", "mccl"})
    EXPECT_EQ(recorded_semantics(program({fmt::format("backend {}; clean", of_other_devices)})),
              CallSemantics::nccl);
  EXPECT_EQ(recorded_semantics(program({"backend ccl; clean"})), CallSemantics::gloo)
      << "oneCCL on CPUs";
  EXPECT_EQ(recorded_semantics(program({"mpi; clean"})), CallSemantics::mpi);
  EXPECT_EQ(recorded_semantics(program({"clean"})), CallSemantics::gloo);
}

TEST(MpiForms, BlockingAndNonblockingNeverMatch) {
  const Report report =
      verify(program({"mpi; broadcast count=1 root=0 at=a.c:3; finalize; clean",
                      "mpi; broadcast count=1 root=0 async at=a.c:7; wait 0; finalize; clean"}));
  EXPECT_EQ(summary(report), "op-mismatch error observed group=world seq=0\nverdict findings");
  EXPECT_THAT(first_finding(report).message, HasSubstr("nonblocking broadcast"));
}

TEST(MpiForms, CountsPerRankNeverMatchACommonCount) {
  EXPECT_THAT(summary(verify(
                  program({"mpi; all_to_all count=2 in_splits=1,1 out_splits=1,1; finalize; clean",
                           "mpi; all_to_all count=2; finalize; clean"}))),
              HasSubstr("op-mismatch error observed"));
}

TEST(MpiForms, InTorchAsynchronousCallsMatchOthers) {
  EXPECT_EQ(
      summary(verify(program({"all_reduce n=1; clean", "all_reduce n=1 async; wait 0; clean"}))),
      "verdict clean");
}

TEST(NearMisses, AMessageWithAnotherTagIsTheCause) {
  const Report report =
      verify(program({"mpi; send count=1 peer=1 ptag=0 async; wait 0; finalize open; hung",
                      "mpi; recv count=1 peer=0 ptag=1 async open at=a.c:61; wait 0 open; hung"}));
  EXPECT_EQ(summary(report), "p2p-unmatched error proven group=world seq=0\nverdict findings");
  EXPECT_THAT(first_finding(report).message, HasSubstr("with tag 1"));
  EXPECT_THAT(first_finding(report).message, HasSubstr("with tag 0"));
}

TEST(NearMisses, AMessageInAnotherGroupIsTheCause) {
  const Report report =
      verify(program({"mpi; group g 0,1; send count=1 g=g peer=1 ptag=0; finalize open; hung",
                      "mpi; group g 0,1; recv count=1 peer=0 ptag=0 open; hung"}));
  EXPECT_EQ(summary(report), "p2p-unmatched error proven group=world seq=0\nverdict findings");
  EXPECT_THAT(first_finding(report).message, HasSubstr("in group g"));
}

TEST(NearMisses, NoMessageAtAllIsNone) {
  const Report report =
      verify(program({"mpi; finalize open; hung", "mpi; recv count=1 peer=0 ptag=1 open; hung"}));
  EXPECT_EQ(summary(report),
            "p2p-unmatched error proven culprits=0 group=world seq=0\nverdict findings");
  EXPECT_THAT(first_finding(report).message, Not(HasSubstr("with tag 0")));
}

TEST(Probe, TwoThatProbeBeforeTheySendAreStuck) {
  EXPECT_EQ(summary(verify(program(
                {"mpi; probe peer=1 ptag=0 open; hung", "mpi; probe peer=0 ptag=0 open; hung"}))),
            "p2p-cycle error proven group=world seq=0\nverdict findings");
}

TEST(Probe, OneThatSendsFirstLetsItThrough) {
  EXPECT_EQ(
      summary(verify(program(
          {"mpi; send count=1 peer=1 ptag=0 async open; probe peer=1 ptag=0; "
           "recv count=1 peer=1 ptag=0; wait 0; finalize; clean",
           "mpi; probe peer=0 ptag=0; recv count=1 peer=0 ptag=0; send count=1 peer=0 ptag=0; "
           "finalize; clean"}))),
      "verdict clean");
}

TEST(Probe, AMessageThatAPostedReceiveTakesIsNotSeen) {
  const auto programs = [](const std::string& order) {
    return program({"mpi; send count=1 peer=1 ptag=0; finalize; clean",
                    "mpi; " + order + " wait 0 open; finalize; clean"},
                   /*timed=*/false);
  };
  EXPECT_TRUE(
      proves_stuck(verify(programs("recv count=1 peer=0 ptag=0 async; probe peer=0 ptag=0;"))));
}

}  // namespace
}  // namespace lockstep::verify
