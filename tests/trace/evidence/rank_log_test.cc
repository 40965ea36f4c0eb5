// What the output of ranks says.
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trace/evidence/evidence_testing.h"
#include "trace/evidence/evidence.h"

namespace lockstep::trace {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(RankLog, AnExceptionThatNobodyCaughtEndsTheRank) {
  EXPECT_EQ(notes_of(rank_log_source(), "step 3\n" + kLoggedTraceback, Rank(3)),
            "rank 3 exception @5: ValueError: no more batches");
  EXPECT_EQ(notes_of(rank_log_source(), labelled("[rank2]: ", kLoggedTraceback) + "epoch 4\n"),
            "rank 2 exception @4: ValueError: no more batches")
      << "what PyTorch prefixes, nobody caught";
}

TEST(RankLog, AfterACaughtOneTheRankContinues) {
  EXPECT_EQ(notes_of(rank_log_source(), kLoggedTraceback + "retrying\nstep 4\n", Rank(0)),
            "rank 0 exception that it went on after @4: ValueError: no more batches");
}

TEST(RankLog, AMessageOfSeveralLinesIsNoOutputAfterIt) {
  const std::string begin = "Traceback (most recent call last):\n  File \"t.py\", line 1, in f\n";
  EXPECT_EQ(
      notes_of(rank_log_source(),
               begin + "torch.AcceleratorError: CUDA error: device-side assert triggered\n"
                       "Search for `cudaErrorAssert' in https://docs.nvidia.com for more.\n"
                       "CUDA kernel errors might be asynchronously reported at some other call.\n"
                       "For debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
                       "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n",
               Rank(3)),
      "rank 3 exception @3: torch.AcceleratorError: CUDA error: device-side assert triggered");
  EXPECT_THAT(
      notes_of(rank_log_source(),
               begin + "torch.distributed.DistBackendError: NCCL error in: x.cpp:1\n"
                       "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\n"
                       "Cuda failure 2 'out of memory'\n",
               Rank(3)),
      HasSubstr("rank 3 out of memory @3"));
  EXPECT_THAT(notes_of(rank_log_source(),
                       begin + "RuntimeError: Error(s) in loading state_dict for Net:\n"
                               "\tMissing key(s) in state_dict: \"a\".\n",
                       Rank(3)),
              HasSubstr("rank 3 exception @3"));
}

// A message may stand in front of a traceback, with the process' label before it or without one.
TEST(RankLog, AMessageBeforeATracebackHidesNothing) {
  const auto labelled = [](const std::string& label, const std::string& message) {
    return label + message + "Traceback (most recent call last):\n" + label +
           "  File \"a.py\", line 1, in f\n" + label + "KeyError: 'x'\n";
  };
  EXPECT_EQ(read_log(labelled("(W pid=7) ERROR 07-24 08:26:01 worker.py:226] ",
                              "Exception in worker W while processing method init: ")),
            "some rank pid 7 exception @3: KeyError: 'x'");
  EXPECT_EQ(read_log(labelled("",
                              "  4%|\xE2\x96\x8D | 1/23 [00:07, 7.2s/it][2025-01-29 08:52:51 "
                              "DP0 TP5] Scheduler hit an exception: ")),
            "some rank exception @3: DP0 TP5: KeyError: 'x'");
  EXPECT_EQ(read_log(labelled("", "Error, Traceback (most recent call last) follows: ") +
                     labelled("(W pid=7) ", "")),
            "some rank exception @3: KeyError: 'x'\nsome rank pid 7 exception @6: KeyError: 'x'");
  EXPECT_EQ(read_log("a hint: Traceback (most recent call last):\nstep 4\nKeyError: 'x'\n"), "")
      << "no frame follows";
}

TEST(RankLog, ATimeBeforeNcclsLineIsNoProcess) {
  EXPECT_EQ(
      read_log("2025-11-24T03:20:21.001Z [2025-11-24 11:20:21] node7 [5] misc/socket.cc:46 "
               "NCCL WARN Call to send to 10.0.0.9<5290> failed : Connection reset by peer\n"),
      "some rank NCCL warning @1: NCCL WARN Call to send to 10.0.0.9<5290> failed : "
      "Connection reset by peer");
}

TEST(RankLog, NamesTheProcessOfWhatFollows) {
  EXPECT_EQ(read_log("Process SpawnProcess-3:\n" + kLoggedTraceback),
            "some rank exception @5: SpawnProcess-3: ValueError: no more batches");
  EXPECT_EQ(read_log("\n-- Process 5 terminated with the following error:\n" + kLoggedTraceback),
            "some rank exception @6: process 5: ValueError: no more batches");
  EXPECT_EQ(read_log("Process is ready:\n" + kLoggedTraceback),
            "some rank exception @5: ValueError: no more batches");
}

// Ray sees a worker die that its own watchdog ended.
TEST(RankLog, AWorkerThatItsWatchdogEndedWasNotKilled) {
  const auto log = [](int pid) {
    return "(W pid=90) [rank3]:[E814] [Rank 3] Watchdog caught collective operation timeout: "
           "WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=5, NumelOut=5, Timeout(ms)=600000) ran "
           "for "
           "600013 milliseconds before timing out.\n(raylet) A worker died or was killed while "
           "executing a task. Worker PID: " +
           std::to_string(pid) + " Worker exit type: SYSTEM_ERROR\n";
  };
  EXPECT_THAT(read_log(log(90)), HasSubstr("rank 3 pid 90 ended @2"));
  EXPECT_THAT(read_log(log(91)), HasSubstr("some rank pid 91 killed @2"));
}

TEST(RankLog, GpusThatFailWithoutAnXid) {
  EXPECT_EQ(read_log("366/903 [5:15:39]HW Exception by GPU node-9 (Agent handle: 0x63) reason :GPU "
                     "Hang\n"),
            "some rank GPU fault @1: HW Exception by GPU node-9 (Agent handle: 0x63) reason :GPU "
            "Hang");
  EXPECT_EQ(read_log("[ 1843.3] NVRM: The NVIDIA GPU 0000:b3:00.0\n"
                     "               NVRM: (PCI ID: 10de:26b5) installed in this system has\n"
                     "               NVRM: fallen off the bus and is not responding.\n"),
            "some rank GPU fault @3: GPU 0000:b3:00.0 has fallen off the bus");
  EXPECT_EQ(read_log("[ 1.2] NVRM: The NVIDIA GPU 0000:b3:00.0\n"
                     "       NVRM: (PCI ID: 10de:26b5) is not supported by open modules\n" +
                     kLoggedTraceback),
            "some rank exception @6: ValueError: no more batches");
}

TEST(RankLog, AnExceptionThatMuchOutputFollowsMayHaveBeenCaught) {
  std::string steps;
  for (int n = 0; n < 2500; ++n) steps += "step " + std::to_string(n) + "\n";
  const auto follows = [](const std::string& text) {
    std::string out;
    for (const RankNote& note : rank_log_source().read({text, "job.log", std::nullopt}).notes)
      out += note.output_follows ? '1' : '0';
    return out;
  };
  EXPECT_EQ(follows(kLoggedTraceback + steps + kLoggedTraceback + "step 1\n"), "10");
  EXPECT_EQ(follows(kLoggedTraceback + steps), "1");
  EXPECT_EQ(follows(steps + kLoggedTraceback), "0");
  EXPECT_EQ(follows(labelled("[rank1]: ", kLoggedTraceback) + steps), "0")
      << "PyTorch says who ended by it";
}

// Who waited for others accuses nobody.
TEST(RankLog, WhoWaitedInVainIsNobodysFault) {
  for (const std::string why :
       {"RuntimeError: Rank 3 failed to pass monitoredBarrier in 600000 ms",
        "torch.distributed.DistBackendError: [Rank 2] Caught collective operation timeout: "
        "WorkNCCL(SeqNum=31, OpType=BROADCAST) ran for 60009 milliseconds",
        "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 "
        "clients joined.",
        "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection failed",
        "RuntimeError: Timed out initializing process group in store based barrier on rank: 0"}) {
    EXPECT_THAT(read_log("[rank1]: Traceback (most recent call last):\n[rank1]:   File \"t.py\", "
                         "line 1, in f\n[rank1]: " +
                         why + "\n"),
                HasSubstr("rank 1 lost a peer"));
  }
}

// In the default group the group rank is the rank.
TEST(RankLog, TheWatchdogsExceptionNamesTheRank) {
  const auto ended = [](const std::string& group) {
    return read_log(
        "terminate called after throwing an instance of 'c10::DistBackendError'\n"
        "  what():  [" +
        group +
        " Rank 7] NCCL watchdog thread terminated with "
        "exception: CUDA error: unspecified launch failure\n");
  };
  EXPECT_THAT(ended("PG 0 (default_pg)"), HasSubstr("rank 7 exception @2"));
  EXPECT_THAT(ended("PG ID 2 PG GUID 9(TENSOR)"), HasSubstr("some rank exception @2"));
}

TEST(RankLog, AStoreThatEndedIsALostPeer) {
  EXPECT_EQ(
      read_log("[rank1]:[W1229 ProcessGroupNCCL.cpp:1662] [PG ID 0 PG GUID 0 Rank 1] Failed to "
               "check the \"should dump\" flag on TCPStore, (maybe TCPStore server has shut "
               "down too early), with error: Broken pipe\n"),
      "rank 1 lost a peer @1: Failed to check the \"should dump\" flag on TCPStore, (maybe "
      "TCPStore server has shut down too early), with error: Broken pipe");
}

// What Python prints of a dict is no JSON.
TEST(RankLog, ALogMayBeginWithADict) {
  EXPECT_TRUE(rank_log_source().recognises("{'loss': 0.45}\n" + kLoggedTraceback, "train"));
  EXPECT_FALSE(rank_log_source().recognises("{\"loss\": 0.45}\n" + kLoggedTraceback, "train"));
}

TEST(RankLog, TheLastOfAChainCounts) {
  const std::string chain = kLoggedTraceback +
                            "\nDuring handling of the above exception, another exception "
                            "occurred:\n\n"
                            "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\n"
                            "KeyError: 'x'\n";
  EXPECT_THAT(notes_of(rank_log_source(), chain, Rank(0)), HasSubstr("exception @10: KeyError"));
}

// Python writes the frames that did not catch the first one with the last one only.
TEST(RankLog, AChainsPlaceIsThatOfTheUsersCode) {
  const auto raised_at = [](const std::string& between) {
    const std::string chain =
        "[rank1]: Traceback (most recent call last):\n"
        "[rank1]:   File \"/v/site-packages/torch/__init__.py\", line 2145, in _check_with\n"
        "[rank1]: RuntimeError: a and b must have same reduction dim\n\n" +
        between +
        "[rank1]: Traceback (most recent call last):\n"
        "[rank1]:   File \"/app/train.py\", line 143, in step\n"
        "[rank1]:   File \"/v/site-packages/torch/nn/modules/linear.py\", line 7, in forward\n"
        "[rank1]: RuntimeError: Sharding propagation failed\n";
    const FileEvidence read = rank_log_source().read({chain, "log", std::nullopt});
    return read.notes.at(0).raised_at;
  };
  EXPECT_EQ(raised_at("[rank1]: The above exception was the direct cause of the following "
                      "exception:\n\n"),
            "/app/train.py:143");
  EXPECT_EQ(raised_at("[rank1]: During handling of the above exception, another exception "
                      "occurred:\n\n"),
            "/app/train.py:143");
  EXPECT_EQ(raised_at(""), "/v/site-packages/torch/__init__.py:2145") << "two exceptions";
}

TEST(RankLog, WhoLostAPeerWasInACallOfALibrary) {
  const auto call_in = [](const std::string& frames) {
    const std::string log =
        "[rank1]: Traceback (most recent call last):\n"
        "[rank1]:   File \"/app/train.py\", line 73, in main\n" +
        frames + "[rank1]: RuntimeError: Timed out waiting 12000ms for recv operation\n";
    const RankNote note = rank_log_source().read({log, "log", std::nullopt}).notes.at(0);
    EXPECT_EQ(note.raised_at, "/app/train.py:73");
    EXPECT_EQ(note.says, RankNote::Says::where_it_called);
    return note.content;
  };
  const std::string trainer =
      "[rank1]:   File \"/v/site-packages/transformers/trainer.py\", line 9, in train\n";
  const std::string torch =
      "[rank1]:   File \"/v/site-packages/torch/distributed/distributed_c10d.py\", line 5, in "
      "barrier\n";
  EXPECT_EQ(call_in(trainer + torch), "barrier, called from train (transformers/trainer.py:9)");
  EXPECT_EQ(call_in(trainer), "train (transformers/trainer.py:9)");
  EXPECT_EQ(call_in(torch), "barrier");
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

TEST(RankLog, ATracebackInABox) {
  EXPECT_EQ(read_log("╭───── Traceback (most recent call last) ─────╮\n"
                     "│ /app/train.py:12 in <module>                │\n"
                     "│ ❱ 12 main()                                 │\n"
                     "╰─────────────────────────────────────────────╯\n"
                     "ValueError: no more batches\n"),
            "some rank exception @5: ValueError: no more batches");
}

// The watchdog ends the calls of a rank that waited, and what it reads then is garbage.
TEST(RankLog, AnExceptionAfterTheRanksOwnTimeoutFollowsFromIt) {
  EXPECT_THAT(
      read_log("[rank1]:[E709 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective "
               "operation timeout: WorkNCCL(SeqNum=12, OpType=BROADCAST, NumelIn=1, NumelOut=1, "
               "Timeout(ms)=600000) ran for 600001 milliseconds\n"
               "[rank1]: Traceback (most recent call last):\n"
               "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate more than "
               "1EB memory.\n"),
      HasSubstr("rank 1 lost a peer @3: torch.OutOfMemoryError"));
}

TEST(RankLog, WhatTheWatchdogSaysBesidesTimeouts) {
  const std::string prefix =
      "[rank3]:[E626 ProcessGroupNCCL.cpp:1] [PG ID 0 PG GUID 0(default_pg) Rank 3] ";
  EXPECT_EQ(
      read_log(prefix +
               "ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress "
               "in monitoring enqueued collectives. This typically indicates a hang.\n"),
      "rank 3 watchdog @1: watchdog got stuck for 480 seconds without making progress in "
      "monitoring enqueued collectives");
  EXPECT_EQ(
      read_log(prefix + "Process group watchdog thread terminated with exception: CUDA error: "
                        "an illegal memory access was encountered\n"),
      "rank 3 exception @1: CUDA error: an illegal memory access was encountered");
  EXPECT_EQ(read_log("[rank1]:[E1] [Rank 1] Collective WorkNCCL(SeqNum=335) raised the following "
                     "async exception: NCCL error: remote process exited or there was a network "
                     "error, NCCL version 2.21.5\n"),
            "rank 1 lost a peer @1: NCCL error: remote process exited or there was a network "
            "error, NCCL version 2.21.5");
}

TEST(RankLog, AnotherRanksTimeoutIsTold) {
  EXPECT_EQ(read_log("[rank4]:[E703 ProcessGroupNCCL.cpp:1987] [PG ID 0 PG GUID 0(default_pg) Rank "
                     "4] Received a dump signal due to a collective timeout from  rank 7 and we "
                     "will try our best to dump the debug info. Last enqueued NCCL work: 56\n"),
            "rank 4 watchdog @1: Received a dump signal due to a collective timeout from  rank 7");
}

// torchrun --tee 3: what C++ writes has no prefix of PyTorch's.
TEST(RankLog, TorchrunsNumbersOnANodeBecomeRanks) {
  const auto aborts = [](int local) {
    return fmt::format(
        "[default{0}]:terminate called after throwing an instance of 'gloo::EnforceNotMet'\n"
        "[default{0}]:  what():  op.preamble.length <= op.nbytes. 344 vs 24\n",
        local);
  };
  const auto raises = [](int local, int rank) {
    return labelled(fmt::format("[default{}]:[rank{}]: ", local, rank), kLoggedTraceback);
  };
  const std::string what =
      " exception @2: gloo::EnforceNotMet: op.preamble.length <= op.nbytes. 344 vs 24";
  const std::string other = "\nrank 9 exception @6: ValueError: no more batches";
  EXPECT_EQ(read_log(aborts(3) + raises(1, 9)), "rank 11" + what + other);
  EXPECT_EQ(read_log(aborts(3)), "some rank" + what) << "of which node?";
  EXPECT_EQ(read_log(aborts(3) + raises(1, 9) + raises(0, 0)),
            "some rank" + what + other + "\nrank 0 exception @10: ValueError: no more batches")
      << "of two nodes";
  const std::string summary =
      "Root Cause (first observed failure):\n[0]:\n  time      : 2025-07-09_17:05:38\n  host      "
      ": node4\n  rank      : 5 (local_rank: 1)\n  exitcode  : -6 (pid: 72)\n";
  EXPECT_THAT(read_log(aborts(3) + summary), HasSubstr("rank 7" + what));
  EXPECT_EQ(read_log("[rank3]:[E1 x] y\nterminate called after throwing an instance of 'X'\n  "
                     "what():  z\n" +
                     raises(1, 9)),
            "some rank exception @3: X: z\nrank 9 exception @7: ValueError: no more batches");
}

// What C++ writes has no rank, but torchrun says which ranks ended with SIGABRT.
TEST(RankLog, WhoWasAbortedRaisedWhatCppDidNotCatch) {
  const auto aborts = [](int wants) {
    return fmt::format(
        "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n"
        "  what():  op.preamble.length <= op.nbytes. {} vs 4\n",
        wants);
  };
  const auto failed = [](int rank, int code) {
    return fmt::format("  rank      : {0} (local_rank: {0})\n  exitcode  : {1} (pid: 7{0})\n", rank,
                       code);
  };
  const std::string first = "Root Cause (first observed failure):\n[0]:\n";
  const std::string what = " exception @2: gloo::EnforceNotMet: op.preamble.length <= op.nbytes. ";
  EXPECT_THAT(read_log(aborts(36) + failed(0, -15) + first + failed(1, -6)),
              HasSubstr("rank 1" + what + "36 vs 4"));
  EXPECT_THAT(read_log(aborts(36) + aborts(36) + failed(2, -6) + first + failed(1, -6)),
              AllOf(HasSubstr("rank 2" + what), HasSubstr("rank 1 exception @4")));
  // Which of the two raised which?
  EXPECT_THAT(read_log(aborts(36) + aborts(8) + failed(2, -6) + first + failed(1, -6)),
              AllOf(HasSubstr("some rank" + what), HasSubstr("some rank exception @4")));
  EXPECT_THAT(read_log(aborts(36) + failed(2, -6) + first + failed(1, -6)),
              HasSubstr("some rank" + what));
}

TEST(RankLog, NcclsLastErrorSaysWhetherAPeerIsAtFault) {
  const std::string error =
      "[rank1]: Traceback (most recent call last):\n[rank1]:   File \"a\"\n"
      "[rank1]: torch.distributed.DistBackendError: NCCL error in: x.cpp:1, internal error\n"
      "[rank1]: ncclInternalError: Internal check failed.\n[rank1]: Last error:\n";
  EXPECT_EQ(read_log(error + "[rank1]: socketProgress: Connection closed by remote peer n2<1>\n"),
            "rank 1 lost a peer @3: torch.distributed.DistBackendError: NCCL error in: x.cpp:1, "
            "internal error; socketProgress: Connection closed by remote peer n2<1>");
  EXPECT_THAT(read_log(error + "[rank1]: Duplicate GPU detected : rank 1 and rank 0\n"),
              HasSubstr("rank 1 exception @3"));
}

TEST(RankLog, OtherTextIsNoRankLog) {
  EXPECT_FALSE(rank_log_source().recognises("a note about the weather\n", "notes.txt"));
  EXPECT_TRUE(rank_log_source().recognises("step 1\n", "rank_3.log")) << "it may say more later";
  EXPECT_FALSE(rank_log_source().recognises("{\"a\": 1}", "a.log"));
  EXPECT_FALSE(rank_log_source().recognises(std::string("a\0b", 3), "a.log"));
}

TEST(RankLog, SurvivesDamage) {
  survives_damage(rank_log_source(), labelled("[rank2]: ", kLoggedTraceback) + kLoggedTraceback +
                                         "terminate called after throwing an instance of 'X'\n"
                                         "  what():  a\n  rank      : 3 (local_rank: 3)\n"
                                         "  exitcode  : -9 (pid: 103)\n"
                                         "NVRM: Xid (PCI:0000:3b:00): 79, pid=104\n"
                                         "srun: error: n: tasks 0-2,4: Killed\n"
                                         "2: \x1b[3mTraceback (most recent call last):\n"
                                         "[1,3]<stderr>:KeyError: 'x'\n"
                                         "h:1:2 [0] NCCL WARN x\n");
}

std::string raised(const std::string& exception) {
  return read_log("Traceback (most recent call last):\n  File \"a.py\", line 1, in f\n" +
                  exception);
}

TEST(RankLog, APortThatIsTakenIsNoLostPeer) {
  EXPECT_EQ(raised("torch.distributed.DistNetworkError: The server socket has failed to listen on "
                   "any local network address. port: 29500, code: -98, name: EADDRINUSE\n"),
            "some rank exception @3: torch.distributed.DistNetworkError: The server socket has "
            "failed to listen on any local network address. port: 29500, code: -98, name: "
            "EADDRINUSE");
  EXPECT_THAT(raised("torch.distributed.DistNetworkError: Connection reset by peer\n"),
              HasSubstr("lost a peer"));
}

TEST(RankLog, AnExceptionMayNameItsRank) {
  EXPECT_THAT(raised("AssertionError: Rank 11: found NaN in local grad norm\n"),
              HasSubstr("rank 11 exception"));
  EXPECT_THAT(
      raised("RuntimeError: Rank 3, node n7, device 3, iteration 2: Unexpected result nan\n"),
      HasSubstr("rank 3 exception"));
  EXPECT_THAT(
      raised("RuntimeError: [Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 9 ms\n"),
      HasSubstr("rank 0 lost a peer"));
  EXPECT_THAT(raised("RuntimeError: Timed out receiving the shared seed from the distribtued store "
                     "on Rank 2. (world_size=3)\n"),
              HasSubstr("rank 2 lost a peer"));
  EXPECT_THAT(
      raised("RuntimeError: Timed out initializing process group in store based barrier on "
             "rank: 7, for key: store_based_barrier_key:32 (world_size=8, worker_count=4)\n"),
      HasSubstr("rank 7 lost a peer"));
  EXPECT_THAT(raised("torch.distributed.DistStoreError: Timed out initializing process group in "
                     "store based barrier on rank 5, for key: store_based_barrier_key:3 "
                     "(world_size=8, num_workers_joined=4, timeout=0:10:00)\n"),
              HasSubstr("rank 5 lost a peer"));
  // Words about another rank, or about tensors.
  EXPECT_THAT(raised("RuntimeError: no answer: Rank 3: gone\n"), HasSubstr("some rank exception"));
  EXPECT_THAT(raised("ValueError: Rank 3 tensors are needed\n"), HasSubstr("some rank exception"));
}

// A copy that ends in a line shows no exception of the rank's own.
TEST(RankLog, TypesThatAreCutOff) {
  EXPECT_EQ(raised("torch.distributed.DistStoreEr"), "");
  EXPECT_THAT(raised("AssertionError"), HasSubstr("some rank exception"));
  EXPECT_THAT(raised("mine.OutOfBatches"), HasSubstr("some rank exception"));
  EXPECT_EQ(read_log("[rank4]:[E916 x.cpp:1] [PG ID 1 PG GUID 1 Rank 4] Process group watchdog "
                     "thread terminated with exception: [Rank 4] Watchdog caught collective ope"),
            "");
}

TEST(RankLog, OldVersionsOfNcclDoNotNameThemselves) {
  EXPECT_EQ(read_log("gpu7:18553:18611 [0] include/socket.h:360 WARN Call to connect failed : "
                     "Connection timed out\n"
                     "gpu7:18553:18611 [0] INFO transport/net_socket.cu:118 -> 2\n"),
            "some rank pid 18553 on gpu7 GPU 0 NCCL warning @1: NCCL WARN Call to connect failed : "
            "Connection timed out");
  EXPECT_FALSE(rank_log_source().recognises("2024-01-01 12:00:05 WARN disk is full\n", "f"));
}

TEST(RankLog, SignalsThatLibrariesCatch) {
  EXPECT_EQ(read_log("[n7:5283 :0:5704] Caught signal 7 (Bus error: nonexistent physical address)\n"
                     "[n8:00071] Signal: Segmentation fault (11)\n"
                     "[n9:00072] Signal: Aborted (6)\n"),
            "some rank pid 5283 on n7 crashed @1: [n7:5283 :0:5704] Caught signal 7 (Bus error: "
            "nonexistent physical address)\n"
            "some rank pid 71 on n8 crashed @2: [n8:00071] Signal: Segmentation fault (11)\n"
            "some rank pid 72 on n9 ended @3: [n9:00072] Signal: Aborted (6)");
}

TEST(RankLog, TheWatchdogSaysWhereACallWasMade) {
  EXPECT_EQ(
      read_log("[rank9]:[E607 x.cpp:733] Stack trace of the failed collective: \n"
               "#0 all_gather from /v/site-packages/torch/distributed/distributed_c10d.py:4186\n"
               "#1 save from /home/u/train.py:311\n"
               "#2 main from /home/u/train.py:420\n"
               "\n[rank9]: Traceback (most recent call last):\n[rank9]: KeyError: 'x'\n"),
      "rank 9 stack @1: it made the call that failed in all_gather "
      "(/v/site-packages/torch/distributed/distributed_c10d.py:4186), called from save "
      "(/home/u/train.py:311)\n"
      "rank 9 exception @7: KeyError: 'x'");
}

TEST(RankLog, ACrashIsNotCaughtWhateverFollows) {
  EXPECT_EQ(notes_of(rank_log_source(),
                     "Fatal Python error: Segmentation fault\n\n"
                     "Current thread 0x00007f3b (most recent call first):\n"
                     "  File \"/home/k/train.py\", line 120 in main\n"
                     "Extension modules: numpy._core._multiarray_umath, torch._C (total: 95)\n",
                     Rank(3)),
            "rank 3 crashed @1: Fatal Python error: Segmentation fault");
}

}  // namespace
}  // namespace lockstep::trace
