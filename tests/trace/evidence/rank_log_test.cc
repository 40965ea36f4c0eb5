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

// DistributedDataParallel names rank and parameters in further lines.
TEST(RankLog, ParametersWithoutGradientAreTold) {
  const std::string begin = "Traceback (most recent call last):\n  File \"t.py\", line 1, in f\n";
  const std::string unused =
      "RuntimeError: Expected to have finished reduction in the prior iteration before starting a "
      "new one. This error indicates that your module has parameters that were not used, and by \n"
      "making sure all `forward` function outputs participate in calculating loss. \n"
      "If you already have done the above, then it was not able to locate the output tensors.\n";
  const auto told = [](int rank, const std::string& list) {
    return "Parameter indices which did not receive grad for rank " + std::to_string(rank) + ": " +
           list + "\n";
  };
  EXPECT_EQ(
      read_log(begin + unused + "Parameters which did not receive grad for rank 3: a.w, a.b\n" +
               told(3, "6 7 ")),
      "rank 3 exception @3: RuntimeError: Expected to have finished reduction in the prior "
      "iteration; without gradient: a.w, a.b, number 6 7");
  EXPECT_EQ(notes_of(rank_log_source(), begin + unused + told(0, "6"), Rank(5)),
            "rank 5 exception @3: RuntimeError: Expected to have finished reduction in the prior "
            "iteration; without gradient: number 6")
      << "the lines of its message are no output after it";
  // Two processes wrote at once.
  EXPECT_EQ(read_log(begin + unused + told(2, "6") + told(3, "7")),
            "rank 2 exception @3: RuntimeError: Expected to have finished reduction in the prior "
            "iteration; without gradient: number 6\n"
            "rank 3 exception @7: RuntimeError: Expected to have finished reduction in the prior "
            "iteration; without gradient: number 7");
}

// HCCL says in a further line that a peer did not come.
TEST(RankLog, HcclsTimeoutsAreNobodysFault) {
  const std::string begin =
      "[rank1]: Traceback (most recent call last):\n[rank1]:   File \"t.py\", line 1, in f\n"
      "[rank1]: RuntimeError: OPS function error: HcclAllreduce, error code is 6\n"
      "[rank1]: [ERROR] 2025-04-08-18:07:20 (PID:129, Device:1, RankID:1) ERR01100 OPS failed.\n";
  EXPECT_THAT(read_log(begin + "[rank1]: EI0006: [PID: 129] Getting socket times out.\n"),
              HasSubstr("rank 1 lost a peer @3"));
  EXPECT_THAT(read_log(begin + "[rank1]: EI0003: The parameter is invalid.\n"),
              HasSubstr("rank 1 exception @3"));
}

// Newer versions put a title before the code, and say which device is abnormal.
TEST(RankLog, HcclsNewerMessages) {
  const std::string begin =
      "Traceback (most recent call last):\n  File \"t.py\", line 1, in f\n"
      "RuntimeError: NPU function error: AclrtSynchronizeDeviceWithTimeout, error code is 507018\n"
      "[ERROR] 2025-06-25-10:45:23 (PID:13075, Device:0, RankID:8) ERR00100 PTA call acl failed\n"
      "[Error]: The execution of the internal task times out. \n"
      "        Rectify the fault based on the error information in the ascend log.\n";
  const std::string waits =
      begin +
      "[PID: 13075] 2025-06-25-10:45:23.586.187 Communication_Error_Timeout(EI0002): The wait "
      "execution of the Notify register times out. Reason: The Notify register has not received "
      "the "
      "Notify record from remote rank: [unknown]. base information: [streamID:[1], "
      "taskID[8318285], "
      "tag[AllReduce_group_name_710], AlgType(level 0-1-2):[fullmesh-ring-ring].]. task "
      "information: "
      "[\nthere are(is) 1 abnormal device(s):\n"
      "    Cluster Exception Location[IP/ID]:[90.90.92.240/1], Arrival Time:[Thu Nov 28 11:56:34 "
      "2024], Discoverer:[90.90.92.240/0], ExceptionType:[Heartbeat Lost Occurred], Possible "
      "Reason:1. Process has exited, 2. Network Disconnected\n]\n"
      "Solution: 1. Check whether the peer process exits first.\n";
  EXPECT_THAT(
      read_log(waits),
      AllOf(HasSubstr("rank 8 lost a peer @3"), HasSubstr("(EI0002): The wait"),
            HasSubstr("Location[IP/ID]:[90.90.92.240/1]"), HasSubstr("Heartbeat Lost Occurred")));
  EXPECT_THAT(notes_of(rank_log_source(), waits, Rank(8)), HasSubstr("rank 8 lost a peer @3"))
      << "nothing of the message is output after it";
  EXPECT_THAT(read_log(begin + "[PID: 13075] 2025 Resource_Error(EI0007): Failed to allocate.\n"),
              HasSubstr("rank 8 exception @3"));
  // A program's own line with such a word.
  EXPECT_THAT(notes_of(rank_log_source(), begin + "step 3: no EI0002 so far\n", Rank(8)),
              HasSubstr("rank 8 exception that it went on after @3"));
  // Without a code of HCCL: the device's own timeout.
  EXPECT_THAT(read_log("Traceback (most recent call last):\n  File \"t.py\", line 1, in f\n"
                       "RuntimeError: NPU function error: Aclrt, error code is 507048\n"),
              HasSubstr("some rank lost a peer @3"));
}

TEST(RankLog, NamesTheProcessOfWhatFollows) {
  EXPECT_EQ(read_log("Process SpawnProcess-3:\n" + kLoggedTraceback),
            "some rank exception @5: SpawnProcess-3: ValueError: no more batches");
  EXPECT_EQ(read_log("\n-- Process 5 terminated with the following error:\n" + kLoggedTraceback),
            "some rank exception @6: process 5: ValueError: no more batches");
  EXPECT_EQ(read_log("Process is ready:\n" + kLoggedTraceback),
            "some rank exception @5: ValueError: no more batches");
}

TEST(RankLog, RaySaysWhichActorDied) {
  const std::string died =
      "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
      "        class_name: W\n        pid: 876\n        name: W_0:3\n        ip: 10.2.5.1\n"
      "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR\n";
  EXPECT_EQ(read_log("Traceback (most recent call last):\n  File \"t.py\", line 1, in f\n" + died),
            "some rank lost a peer @3: ray.exceptions.ActorDiedError: The actor died unexpectedly "
            "before finishing this task.\n"
            "some rank pid 876 on 10.2.5.1 killed @8: actor W_0:3: its worker process has died");
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

const std::string kHorovodWaits =
    "[2023-06-26 07:23:58.4: W /h/common/stall_inspector.cc:107] One or more tensors were "
    "submitted "
    "to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of "
    "ranks for more than 60 seconds.\n";

TEST(RankLog, HorovodNamesTheRanksThatDidNotSubmitATensor) {
  const std::string list =
      "Missing ranks:\n2: [allreduce.image.bias, allreduce.image.weight ...]\n"
      "3!: [allreduce.image.bias]\n";
  const std::string said =
      "rank 2 analysis @3: by Horovod it did not submit allreduce.image.bias, "
      "allreduce.image.weight ..., which others did\n"
      "rank 3 analysis @4: by Horovod it did not submit allreduce.image.bias, which others did";
  EXPECT_EQ(read_log(kHorovodWaits + list), said);
  EXPECT_EQ(read_log(labelled("[1,0]<stderr>:", kHorovodWaits + list)), said);
  EXPECT_EQ(read_log(kHorovodWaits + list + "step 4: [0.5]\n"), said);
  // Before 0.17.
  EXPECT_EQ(read_log(kHorovodWaits + "Stalled ops:\nHorovodAllreduce_fc_0 [missing ranks: 1, 3]\n"),
            "rank 1 analysis @3: by Horovod it did not submit HorovodAllreduce_fc_0, which others "
            "did\n"
            "rank 3 analysis @3: by Horovod it did not submit HorovodAllreduce_fc_0, which others "
            "did");
}

const std::string kRaises = "Traceback (most recent call last):\n  File \"t.py\", line 1, in f\n";

// Hugging Face's Accelerate, in its debug mode: on all ranks, with the shapes of each.
TEST(RankLog, AcceleratesListOfShapesBelongsToItsException) {
  const std::string raises =
      kRaises +
      "accelerate.utils.operations.DistributedOperationException: Cannot apply desired operation "
      "due to shape mismatches. All shapes across devices must be valid.\n\n"
      "Operation: `accelerate.utils.operations.gather`\nInput shapes:\n"
      "  - Process 0: [1, 5]\n";
  const auto shapes = [&](const std::string& others) {
    const std::string said = notes_of(rank_log_source(), raises + others, Rank(3));
    const std::size_t at = said.find("valid.; ");
    EXPECT_THAT(said, HasSubstr("rank 3 exception @3")) << "the list is no output that goes on";
    return at == std::string::npos ? said : said.substr(at + 8);
  };
  EXPECT_EQ(shapes("  - Process 1: [1, 2, 5]\n  - Process 2: [1, 5]\n  - Process 3: [1, 5, 7]\n"),
            "accelerate.utils.operations.gather: Process 0: [1, 5], Process 1: [1, 2, 5], Process "
            "3: [1, 5, 7]");
  std::string many;
  for (int rank = 1; rank < 100; ++rank) many += fmt::format("  - Process {}: [2, 5]\n", rank);
  EXPECT_THAT(shapes(many), AllOf(HasSubstr("Process 1: [2, 5], "), testing::EndsWith(", …")));
}

TEST(RankLog, BothRanksOfFsdpsMessageAreKept) {
  const std::string list(2000, 'w');
  const std::string said =
      notes_of(rank_log_source(),
               kRaises +
                   "RuntimeError: Forward order differs across ranks: rank 0 is all-gathering "
                   "parameters for [['" +
                   list +
                   "']] while rank 2 is all-gathering parameters for "
                   "[['" +
                   list + "']]\n",
               Rank(1));
  EXPECT_THAT(said, AllOf(HasSubstr("rank 0 is all-gathering parameters for [['www"),
                          HasSubstr("www … while rank 2 is all-gathering parameters for [['www")));
}

const std::string kOrderWarning =
    "/x/_exec_order_utils.py:303: UserWarning: Forward order differs from that of the first "
    "iteration on rank 3. Collectives are unchecked and may give incorrect results or hang.\n";
const std::string kWhichOrder =
    "Expected to all-gather for [['a']] but trying to all-gather parameters for [['b']]\n";

TEST(RankLog, FsdpNamesTheRankThatChangesItsOrder) {
  const std::string said =
      "rank 3 analysis @1: by FullyShardedDataParallel its units ran in another order than in its "
      "first iteration";
  const std::string which =
      ": Expected to all-gather for [['a']] but trying to all-gather parameters for [['b']]";
  EXPECT_EQ(read_log(kOrderWarning + kWhichOrder + "  warnings.warn(\n"), said + which);
  EXPECT_EQ(read_log(labelled("[default3]:", kOrderWarning + kWhichOrder)), said + which);
  EXPECT_EQ(read_log(kOrderWarning), said) << "cut off";
  EXPECT_EQ(read_log(kOrderWarning + "we all-gather parameters for fun\n"), said);
  // Of two ranks whose outputs are mixed, nobody knows whose the second lines are.
  EXPECT_EQ(read_log(kOrderWarning + kOrderWarning + kWhichOrder + kWhichOrder),
            said + "\n" + "rank 3 analysis @2" + said.substr(said.find(':')));
}

TEST(RankLog, WhoGivesUpInAMonitoredBarrierWaitsForOthers) {
  EXPECT_EQ(notes_of(rank_log_source(),
                     kRaises + "RuntimeError: Rank 0 timed out in monitoredBarrier after 8000 ms.\n"
                               " Successfully processed ranks: 1, 2\n",
                     Rank(0)),
            "rank 0 lost a peer @3: RuntimeError: Rank 0 timed out in monitoredBarrier after 8000 "
            "ms.");
}

TEST(RankLog, WhatFollowsFromAnotherProcessIsNoFailureOfTheRank) {
  const auto kind = [](const std::string& raised) {
    const std::string said = notes_of(rank_log_source(), kRaises + raised + "\n", Rank(1));
    return said.substr(0, said.find(" @"));
  };
  for (const char* const raised :
       {"RuntimeError: Remote peer closed the connection.",
        "RuntimeError: [gloo/transport/tcp/pair.cc:598] Peer disconnected",
        "RuntimeError: unable to connect to peer 3", "RuntimeError: Operation timed out!",
        "RuntimeError: Wait timeout", "RuntimeError: Stop_waiting response is expected",
        "RuntimeError: [Rank 1] Found key in store: NCCLABORTEDCOMM:x, from rank: 0. This means "
        "that rank has aborted its NCCL communicators previously and is not in a healthy state.",
        "torch.distributed.DistBackendError: Work timed out during finalize",
        "horovod.common.exceptions.HorovodInternalError: Horovod has been shut down. This was",
        "mpi4py.MPI.Exception: MPI_ERR_PROC_FAILED: Process Failure",
        "ray.exceptions.NodeDiedError: Task failed due to the node",
        "ray.exceptions.GetTimeoutError: Get timed out: some object(s) not ready."})
    EXPECT_EQ(kind(raised), "rank 1 lost a peer") << raised;
  for (const char* const raised :
       {"ValueError: no peer named x", "EOFError", "TimeoutError: the tokenizer took too long",
        "RuntimeError: cannot connect the two graphs"})
    EXPECT_EQ(kind(raised), "rank 1 exception") << raised;
}

// torch.distributed.checkpoint tells on every rank what one of them raised.
TEST(RankLog, WhatAnotherRankRaisedIsNotTheRanksOwn) {
  const std::string raises =
      kRaises +
      "torch.distributed.checkpoint.api.CheckpointException: CheckpointException "
      "ranks:dict_keys([2])\n"
      "Traceback (most recent call last): (RANK 2)\n  File \"t.py\", line 7, in write_data\n"
      "OSError: [Errno 28] No space left on device\n\n";
  EXPECT_THAT(notes_of(rank_log_source(), raises, Rank(0)),
              AllOf(HasSubstr("rank 0 exception @3: torch.distributed.checkpoint"),
                    HasSubstr("([2]); rank 2: OSError: [Errno 28] No space left on device")));
  EXPECT_EQ(notes_of(rank_log_source(), raises, Rank(0)).find('\n'), std::string::npos);
  EXPECT_EQ(
      notes_of(rank_log_source(), kRaises + "ValueError: x\n" + kRaises + "KeyError: y\n", Rank(0)),
      "rank 0 exception @3: ValueError: x\nrank 0 exception @6: KeyError: y")
      << "a chain of its own";
}

TEST(RankLog, RayTrainsDriverNamesTheRank) {
  EXPECT_EQ(read_log(kRaises + "ray.train.WorkerGroupError: Training failed due to worker errors:\n"
                               "[Rank 1 Error Snippet]:\n  File \"config.py\", line 35, in f\n"
                               "    torch.cuda.set_device(device)\n"
                               "torch.AcceleratorError: CUDA error: invalid device ordinal\n"
                               "GPU device may be out of range, do you have enough GPUs?\n"),
            "some rank lost a peer @3: ray.train.WorkerGroupError: Training failed due to worker "
            "errors:\nrank 1 exception @7: torch.AcceleratorError: CUDA error: invalid device "
            "ordinal");
}

TEST(RankLog, JaxNamesTheTasksThatItMisses) {
  const std::string barrier =
      "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. ";
  const std::string tasks =
      "/job:jax_worker/replica:0/task:6\n/job:jax_worker/replica:0/task:1\n\n"
      "/job:jax_worker/replica:0/task:3\n";
  EXPECT_EQ(
      read_log(barrier +
               "Id: PjRT_Client_Connect::0. This usually happens because …\n"
               "# of tasks that reached the barrier: 6/8.\nThe first task at the "
               "barrier: /job:jax_worker/replica:0/task:0. Some timed out task names:\n" +
               tasks),
      "rank 6 analysis @4: by JAX's coordination service it did not come to barrier "
      "PjRT_Client_Connect in time\nrank 1 analysis @5: by JAX's coordination service it did not "
      "come to barrier PjRT_Client_Connect in time");
  EXPECT_EQ(read_log(barrier + "Barrier_id: x. Timed out task names:\n" + tasks),
            "rank 6 analysis @2: by JAX's coordination service it did not come to barrier x in "
            "time\nrank 1 analysis @3: by JAX's coordination service it did not come to barrier x "
            "in time");
  const std::string unhealthy =
      "0: UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats):\n"
      "0: /job:jax_worker/replica:0/task:8\n0: The tasks have crashed.\n"
      "0: /job:jax_worker/replica:0/task:9\n";
  EXPECT_EQ(read_log(unhealthy + unhealthy),
            "rank 8 analysis @2: by JAX's coordination service it stopped sending heartbeats")
      << "each task writes it";
  EXPECT_EQ(read_log(unhealthy.substr(0, 80) + "\n/task:99999999999999999999\n/task:8\n"), "");
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

TEST(RankLog, OtherListsAreNotHorovods) {
  EXPECT_EQ(read_log("NCCL WARN x\nMissing ranks:\n2: [a]\n"),
            "some rank NCCL warning @1: NCCL WARN x");
  EXPECT_EQ(read_log(kHorovodWaits + "step 4\n2: [a]\n"), "");
  EXPECT_EQ(read_log(kHorovodWaits + "x: [a]\n: [a]\n99999999999: [a]\n"), "");
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

TEST(RankLog, RayNamesTheProcessOfATask) {
  EXPECT_EQ(read_log("Traceback (most recent call last):\n"
                     "  File \"main.py\", line 3, in run\n"
                     "ray.exceptions.RayTaskError(ValueError): ray::Actor.train() (pid=491, "
                     "ip=10.0.0.8, actor_id=df76, repr=<m.Actor object at 0x7f>)\n"
                     "  File \"actor.py\", line 20, in train\n"
                     "ValueError: no more batches\n"),
            "some rank pid 491 on 10.0.0.8 exception @5: ValueError: no more batches");
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

TEST(RankLog, AscendNamesTheRankBehindAnException) {
  EXPECT_THAT(
      raised("RuntimeError: ACL stream synchronize failed, error code:507048\n"
             "[ERROR] 2025-10-11-15:09:34 (PID:296, Device:0, RankID:101) ERR00100 PTA call "
             "acl api failed.\n"
             "EI0002: The wait execution of the Notify register times out. remote rank: "
             "[24]\n"),
      testing::StartsWith("rank 101 lost a peer @3: RuntimeError: ACL stream synchronize"));
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

TEST(RankLog, DeepEpsTimeoutsAreNobodysFault) {
  EXPECT_EQ(read_log("DeepEP timeout check failed: rank = 6, thread = 0, value = 0)\n"),
            "some rank watchdog @1: DeepEP timeout check failed: rank = 6, thread = 0, value = 0)");
}

}  // namespace
}  // namespace lockstep::trace
