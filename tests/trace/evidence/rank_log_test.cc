// What the output of ranks says.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trace/evidence/evidence_testing.h"
#include "trace/evidence/evidence.h"

namespace lockstep::trace {
namespace {

using testing::HasSubstr;
using testing::Not;

const std::string kLoggedTraceback =
    "Traceback (most recent call last):\n"
    "  File \"train.py\", line 12, in <module>\n"
    "    main()\n"
    "ValueError: no more batches\n";

std::string prefixed(int rank, const std::string& text) {
  std::string out;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = text.find('\n', at);
    out += "[rank" + std::to_string(rank) + "]: " + text.substr(at, end - at) + "\n";
    at = end + 1;
  }
  return out;
}

TEST(RankLog, AnExceptionThatNobodyCaughtEndsTheRank) {
  EXPECT_EQ(notes_of(rank_log_source(), "step 3\n" + kLoggedTraceback, Rank(3)),
            "rank 3 exception @5: ValueError: no more batches");
  EXPECT_EQ(notes_of(rank_log_source(), prefixed(2, kLoggedTraceback) + "epoch 4\n"),
            "rank 2 exception @4: ValueError: no more batches")
      << "what PyTorch prefixes, nobody caught";
}

TEST(RankLog, AfterACaughtOneTheRankContinues) {
  EXPECT_EQ(notes_of(rank_log_source(), kLoggedTraceback + "retrying\nstep 4\n", Rank(0)),
            "rank 0 exception that it went on after @4: ValueError: no more batches");
}

TEST(RankLog, OfAChainTheLastOneCounts) {
  const std::string chain = kLoggedTraceback +
                            "\nDuring handling of the above exception, another exception "
                            "occurred:\n\n"
                            "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\n"
                            "KeyError: 'x'\n";
  EXPECT_THAT(notes_of(rank_log_source(), chain, Rank(0)), HasSubstr("exception @10: KeyError"));
}

TEST(RankLog, OutOfMemory) {
  const std::string oom =
      "Traceback (most recent call last):\n  File \"t.py\", line 1, in f\n"
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n";
  EXPECT_THAT(notes_of(rank_log_source(), oom, Rank(1)),
              HasSubstr("rank 1 out of memory @3: torch.OutOfMemoryError"));
}

TEST(RankLog, APeersEndIsNobodysFault) {
  const std::string lost =
      "Traceback (most recent call last):\n  File \"t.py\", line 1, in f\n"
      "torch.distributed.DistBackendError: NCCL communicator was aborted on rank 1.\n";
  EXPECT_THAT(notes_of(rank_log_source(), lost, Rank(1)), HasSubstr("rank 1 lost a peer"));
}

TEST(RankLog, WhatPythonIgnoresIsNoEnd) {
  EXPECT_EQ(notes_of(rank_log_source(),
                     "Exception ignored in: <function f at 0x1>\n" + kLoggedTraceback, Rank(0)),
            "");
}

TEST(RankLog, AThreadsExceptionLeavesTheProcess) {
  EXPECT_THAT(notes_of(rank_log_source(),
                       "Exception in thread Thread-1 (run):\n" + kLoggedTraceback, Rank(0)),
              HasSubstr("went on after"));
}

TEST(RankLog, CPlusPlusEndsWithItsWhat) {
  EXPECT_EQ(notes_of(rank_log_source(),
                     "terminate called after throwing an instance of 'std::runtime_error'\n"
                     "  what():  bad shard\n",
                     Rank(0)),
            "rank 0 exception @2: std::runtime_error: bad shard");
}

TEST(RankLog, TheGpuThatHasNoMemoryLeft) {
  EXPECT_THAT(notes_of(rank_log_source(),
                       "[rank3]: Traceback (most recent call last):\n[rank3]:   File \"a\"\n"
                       "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate "
                       "2.00 GiB. GPU 3 has a total capacity of 79.10 GiB\n"),
              HasSubstr("rank 3 GPU 3 out of memory"));
}

TEST(RankLog, TorchrunsSummaryNamesTheFirstFailure) {
  const std::string summary =
      "============================================================\n"
      "train.py FAILED\n"
      "------------------------------------------------------------\n"
      "Failures:\n"
      "[1]:\n"
      "  time      : 2025-01-01_00:00:00\n"
      "  host      : node1\n"
      "  rank      : 0 (local_rank: 0)\n"
      "  exitcode  : -6 (pid: 100)\n"
      "  error_file: <N/A>\n"
      "------------------------------------------------------------\n"
      "Root Cause (first observed failure):\n"
      "[0]:\n"
      "  rank      : 3 (local_rank: 3)\n"
      "  exitcode  : -9 (pid: 103)\n"
      "  traceback : Signal 9 (SIGKILL) received by PID 103\n";
  const std::string notes = notes_of(rank_log_source(), summary);
  EXPECT_THAT(notes, HasSubstr("rank 0 pid 100 on node1 lost a peer"));
  EXPECT_THAT(notes, HasSubstr("rank 3 pid 103 killed @15: the first failure, by torchrun"));
}

TEST(RankLog, TheOnlyExceptionOfAllRanksIsTheFirstFailures) {
  const std::string root =
      "Root Cause (first observed failure):\n[0]:\n  rank      : 3 (local_rank: 3)\n"
      "  exitcode  : 1 (pid: 103)\n";
  EXPECT_THAT(notes_of(rank_log_source(), kLoggedTraceback + "another rank's output\n" + root),
              HasSubstr("rank 3 exception @4: ValueError"));
  EXPECT_THAT(notes_of(rank_log_source(), kLoggedTraceback +
                                              "Traceback (most recent call last):\n  File \"b\"\n"
                                              "KeyError: 'x'\n" +
                                              root),
              HasSubstr("some rank exception @4"))
      << "of two nobody knows which is whose";
}

TEST(RankLog, TheKernelAndTheDriverNameProcesses) {
  EXPECT_THAT(notes_of(rank_log_source(),
                       "[123.4] Out of memory: Killed process 103 (python) total-vm:1kB\n"),
              HasSubstr("some rank pid 103 out of memory"));
  EXPECT_THAT(notes_of(rank_log_source(),
                       "NVRM: Xid (PCI:0000:3b:00): 79, pid=104, name=python, GPU has fallen off "
                       "the bus.\n"),
              HasSubstr("some rank pid 104 GPU fault"));
  EXPECT_THAT(notes_of(rank_log_source(),
                       "NVRM: Xid (PCI:0000:3b:00): 63, pid='<unknown>', Row remapper\n"),
              HasSubstr("some rank GPU warning"))
      << "a job survives it";
}

TEST(RankLog, NcclsWarningsAndTheWatchdog) {
  EXPECT_EQ(
      notes_of(rank_log_source(),
               "gpu1:103:200 [3] transport/net_ib.cc:99 NCCL WARN NET/IB: timeout\n", Rank(3)),
      "rank 3 pid 103 on gpu1 GPU 3 NCCL warning @1: NCCL WARN NET/IB: timeout");
  EXPECT_THAT(
      notes_of(rank_log_source(),
               "[rank1]:[E709 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective "
               "operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE, NumelIn=1, "
               "NumelOut=1, Timeout(ms)=600000) ran for 600001 milliseconds\n"),
      HasSubstr("rank 1 watchdog @1: Watchdog caught collective operation timeout"));
}

TEST(RankLog, OtherTextIsNoRankLog) {
  EXPECT_FALSE(rank_log_source().recognises("a note about the weather\n", "notes.txt"));
  EXPECT_TRUE(rank_log_source().recognises("step 1\n", "rank_3.log")) << "it may say more later";
  EXPECT_FALSE(rank_log_source().recognises("{\"a\": 1}", "a.log"));
  EXPECT_FALSE(rank_log_source().recognises(std::string("a\0b", 3), "a.log"));
}

TEST(RankLog, SurvivesDamage) {
  survives_damage(rank_log_source(), prefixed(2, kLoggedTraceback) + kLoggedTraceback +
                                         "terminate called after throwing an instance of 'X'\n"
                                         "  what():  a\n  rank      : 3 (local_rank: 3)\n"
                                         "  exitcode  : -9 (pid: 103)\n"
                                         "NVRM: Xid (PCI:0000:3b:00): 79, pid=104\n"
                                         "h:1:2 [0] NCCL WARN x\n");
}

}  // namespace
}  // namespace lockstep::trace
