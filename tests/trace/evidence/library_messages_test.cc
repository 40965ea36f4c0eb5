// What libraries write about a job's ranks in the output of these: PyTorch, Horovod, Accelerate,
// HCCL, JAX, Ray, DeepEP.
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

const std::string kRaises = "Traceback (most recent call last):\n  File \"t.py\", line 1, in f\n";

// DistributedDataParallel names rank and parameters in further lines.
TEST(LibraryMessages, ParametersWithoutGradientAreTold) {
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
TEST(LibraryMessages, HcclsTimeoutsAreNobodysFault) {
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
TEST(LibraryMessages, HcclsNewerMessages) {
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

TEST(LibraryMessages, RaySaysWhichActorDied) {
  const std::string died =
      "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
      "        class_name: W\n        pid: 876\n        name: W_0:3\n        ip: 10.2.5.1\n"
      "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR\n";
  EXPECT_EQ(read_log("Traceback (most recent call last):\n  File \"t.py\", line 1, in f\n" + died),
            "some rank lost a peer @3: ray.exceptions.ActorDiedError: The actor died unexpectedly "
            "before finishing this task.\n"
            "some rank pid 876 on 10.2.5.1 killed @8: actor W_0:3: its worker process has died");
}

const std::string kHorovodWaits =
    "[2023-06-26 07:23:58.4: W /h/common/stall_inspector.cc:107] One or more tensors were "
    "submitted "
    "to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of "
    "ranks for more than 60 seconds.\n";

TEST(LibraryMessages, HorovodNamesTheRanksThatDidNotSubmitATensor) {
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

// Hugging Face's Accelerate, in its debug mode: on all ranks, with the shapes of each.
TEST(LibraryMessages, AcceleratesListOfShapesBelongsToItsException) {
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

TEST(LibraryMessages, WhatIsAddedToAnExceptionHasABound) {
  const std::string raises =
      kRaises + "accelerate.X: Cannot apply desired operation due to shape mismatches. " +
      std::string(2 * RankNote::kLongest, 'x') + "\n  - Process 0: [1, 5]\n" +
      "Traceback (most recent call last): (RANK 2)\n  File \"t.py\", line 7, in f\nOSError: " +
      std::string(2 * RankNote::kLongest, 'y') + "\n";
  EXPECT_LE(notes_of(rank_log_source(), raises, Rank(0)).size(),
            RankNote::kLongest + std::string("rank 0 exception @3: ").size());
}

TEST(LibraryMessages, BothRanksOfFsdpsMessageAreKept) {
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

TEST(LibraryMessages, FsdpNamesTheRankThatChangesItsOrder) {
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

TEST(LibraryMessages, WhoGivesUpInAMonitoredBarrierWaitsForOthers) {
  EXPECT_EQ(notes_of(rank_log_source(),
                     kRaises + "RuntimeError: Rank 0 timed out in monitoredBarrier after 8000 ms.\n"
                               " Successfully processed ranks: 1, 2\n",
                     Rank(0)),
            "rank 0 lost a peer @3: RuntimeError: Rank 0 timed out in monitoredBarrier after 8000 "
            "ms.");
}

TEST(LibraryMessages, WhatFollowsFromAnotherProcessIsNoFailureOfTheRank) {
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
TEST(LibraryMessages, WhatAnotherRankRaisedIsNotTheRanksOwn) {
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

TEST(LibraryMessages, RayTrainsDriverNamesTheRank) {
  EXPECT_EQ(read_log(kRaises + "ray.train.WorkerGroupError: Training failed due to worker errors:\n"
                               "[Rank 1 Error Snippet]:\n  File \"config.py\", line 35, in f\n"
                               "    torch.cuda.set_device(device)\n"
                               "torch.AcceleratorError: CUDA error: invalid device ordinal\n"
                               "GPU device may be out of range, do you have enough GPUs?\n"),
            "some rank lost a peer @3: ray.train.WorkerGroupError: Training failed due to worker "
            "errors:\nrank 1 exception @7: torch.AcceleratorError: CUDA error: invalid device "
            "ordinal");
}

TEST(LibraryMessages, JaxNamesTheTasksThatItMisses) {
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

TEST(LibraryMessages, OtherListsAreNotHorovods) {
  EXPECT_EQ(read_log("NCCL WARN x\nMissing ranks:\n2: [a]\n"),
            "some rank NCCL warning @1: NCCL WARN x");
  EXPECT_EQ(read_log(kHorovodWaits + "step 4\n2: [a]\n"), "");
  EXPECT_EQ(read_log(kHorovodWaits + "x: [a]\n: [a]\n99999999999: [a]\n"), "");
}

TEST(LibraryMessages, RayNamesTheProcessOfATask) {
  EXPECT_EQ(read_log("Traceback (most recent call last):\n"
                     "  File \"main.py\", line 3, in run\n"
                     "ray.exceptions.RayTaskError(ValueError): ray::Actor.train() (pid=491, "
                     "ip=10.0.0.8, actor_id=df76, repr=<m.Actor object at 0x7f>)\n"
                     "  File \"actor.py\", line 20, in train\n"
                     "ValueError: no more batches\n"),
            "some rank pid 491 on 10.0.0.8 exception @5: ValueError: no more batches");
}

TEST(LibraryMessages, AscendNamesTheRankBehindAnException) {
  EXPECT_THAT(
      read_log(kRaises +
               "RuntimeError: ACL stream synchronize failed, error code:507048\n"
               "[ERROR] 2025-10-11-15:09:34 (PID:296, Device:0, RankID:101) ERR00100 PTA call "
               "acl api failed.\n"
               "EI0002: The wait execution of the Notify register times out. remote rank: "
               "[24]\n"),
      testing::StartsWith("rank 101 lost a peer @3: RuntimeError: ACL stream synchronize"));
}

TEST(LibraryMessages, DeepEpsTimeoutsAreNobodysFault) {
  EXPECT_EQ(read_log("DeepEP timeout check failed: rank = 6, thread = 0, value = 0)\n"),
            "some rank watchdog @1: DeepEP timeout check failed: rank = 6, thread = 0, value = 0)");
}

}  // namespace
}  // namespace lockstep::trace
