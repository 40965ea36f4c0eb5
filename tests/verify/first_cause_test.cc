// Which of the reports about a job without recorded calls stands first.
#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trace/run.h"
#include "verify/verify.h"

namespace lockstep::verify {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Kind = trace::RankNote::Kind;
using Says = trace::RankNote::Says;

struct Told {
  Kind kind;
  int rank;  // -1: not known
  std::string text;
  std::string host = {};
  std::int64_t calls_behind = 0;
  trace::RankNote::Says says = trace::RankNote::Says::only_its_text;
  std::string content = {};
  std::string raised_at = {};
};

// The notes are of one file, a line each.
Report report_of(const std::vector<Told>& notes) {
  trace::Run run;
  int line = 0;
  for (const Told& note : notes) {
    const trace::Rank rank(note.rank);
    run.notes.push_back({.kind = note.kind,
                         .rank = rank,
                         .text = note.text,
                         .location = {"job.log", ++line},
                         .host = note.host,
                         .says = note.says,
                         .content = note.content,
                         .raised_at = note.raised_at,
                         .calls_behind = note.calls_behind});
    run.world_size = std::max(run.world_size, note.rank + 1);
  }
  std::stable_sort(run.notes.begin(), run.notes.end(),
                   [](const auto& a, const auto& b) { return a.rank < b.rank; });
  return verify(run);
}

// Headline and next command.
std::string first_cause(const std::vector<Told>& notes) {
  const Report report = report_of(notes);
  if (report.findings.empty()) return "";
  const Finding& first = report.findings.front();
  return first.next.empty() ? first.headline : fmt::format("{} | {}", first.headline, first.next);
}

const Told kTimeout{Kind::watchdog, 1,
                    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, "
                    "OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600001 milliseconds"};
const Told kClosed{Kind::peer_lost, 2, "RuntimeError: Connection closed by peer [10.0.0.4]:8021"};
const Told kEnded{.kind = Kind::ended,
                  .rank = 1,
                  .text = "the first failure, by torchrun: exit code -6",
                  .says = Says::failed_first};

TEST(FirstCause, ADefectiveGpuExplainsTheRest) {
  const Told ecc{Kind::exception, -1, "RuntimeError: CUDA error: uncorrectable ECC error", "node4"};
  const Told raised{Kind::exception, -1, "ValueError: x"};
  EXPECT_EQ(first_cause({kTimeout, kClosed, raised, ecc, kEnded}),
            "a rank on node4 that the log does not name raised an exception: RuntimeError: CUDA "
            "error: uncorrectable ECC error (job.log:4) | ssh node4 nvidia-smi -q -d "
            "ECC,ROW_REMAPPER");
  EXPECT_EQ(report_of({kTimeout, ecc}).verdict, Verdict::inconclusive) << "who it was is unknown";
}

TEST(FirstCause, TheFirstOfEqualReportsCounts) {
  const Told a{Kind::exception, -1, "OSError: a"};
  const Told b{Kind::out_of_memory, -1, "MemoryError: b"};
  EXPECT_THAT(first_cause({kClosed, a, b}), HasSubstr("OSError: a (job.log:2)"));
  EXPECT_THAT(first_cause({kClosed, b, a}), HasSubstr("ran out of memory: MemoryError: b"));
}

TEST(FirstCause, NcclsOwnWarningComesBeforeWhatFollowsFromIt) {
  const Told fails{Kind::exception, -1, "RuntimeError: NCCL Error 1: unhandled cuda error"};
  const Told memory{Kind::nccl_warning, -1, "NCCL WARN Cuda failure 'out of memory'"};
  const Told closed{Kind::nccl_warning, -1,
                    "NCCL WARN socketProgress: Connection closed by remote peer node2<42830>"};
  EXPECT_THAT(first_cause({closed, fails, memory}), HasSubstr("Cuda failure 'out of memory'"));
  EXPECT_THAT(first_cause({closed, fails}), HasSubstr("| export NCCL_DEBUG=INFO"));
  EXPECT_EQ(first_cause({closed}),
            "a rank that the log does not name lost the connection to node2: a process there ended "
            "first, or the network failed (job.log:1) | ssh node2 dmesg -T");
  const Told shell{Kind::nccl_warning, -1, "Connection closed by remote peer $(reboot)<1>"};
  EXPECT_THAT(first_cause({shell}), Not(HasSubstr("ssh")));
}

TEST(FirstCause, AProcessThatHangsInTheKernelExplainsTheTimeouts) {
  const auto blocked = [](int rank, const std::string& function) {
    return Told{.kind = Kind::stack,
                .rank = rank,
                .text = "blocked in the kernel for more than 122 seconds, in " + function,
                .says = Says::in_the_kernel,
                .content = function};
  };
  EXPECT_EQ(first_cause({kTimeout, kClosed, blocked(0, "rpc_wait_bit_killable [sunrpc]")}),
            "rank 0 was blocked in the kernel for more than 122 seconds, in rpc_wait_bit_killable "
            "[sunrpc] (job.log:3)");
  EXPECT_THAT(first_cause({kTimeout, blocked(0, "f [nfs]"), blocked(3, "f [nfs]")}),
              HasSubstr("(job.log:2); 1 other process is blocked, too"));
  const auto advice = [&](const std::string& function) {
    const Report report = report_of({kTimeout, blocked(0, function)});
    return report.findings.empty() ? "" : report.findings[0].fix;
  };
  EXPECT_THAT(advice("nfs4_file_fsync [nfsv4]"), HasSubstr("file system"));
  EXPECT_THAT(advice("os_acquire_mutex [nvidia]"), HasSubstr("the GPU's driver"));
  EXPECT_THAT(advice("ib_uverbs_write [ib_uverbs]"), HasSubstr("network card"));
  EXPECT_THAT(advice("do_exit"), HasSubstr("a disk, a file server"));
  // What ended a process by itself says more.
  const Told raised{Kind::exception, -1, "OSError: a"};
  EXPECT_THAT(first_cause({blocked(0, "f [nfs]"), raised}), HasSubstr("OSError: a"));
}

TEST(FirstCause, OfNcclsWarningsOnlySomeAreOfALostPeer) {
  const auto told = [](const std::string& warning) {
    const Report report =
        report_of({{Kind::nccl_warning, 1, fmt::format("NCCL WARN {}", warning), "node1"}});
    if (report.findings.empty()) return std::string();
    return fmt::format("{} | {}", report.findings[0].headline, report.findings[0].fix);
  };
  EXPECT_THAT(told("Bootstrap Root : rank 3 of 8 ranks has already checked in"),
              AllOf(HasSubstr("rank 1: NCCL WARN Bootstrap Root"), HasSubstr("have one rank")));
  EXPECT_THAT(told("Call to ibv_reg_mr failed with error Cannot allocate memory"),
              HasSubstr("ulimit -l unlimited"));
  EXPECT_THAT(told("Call to ibv_modify_qp failed with 110 Connection timed out"),
              AllOf(Not(HasSubstr("lost a peer")), HasSubstr("NCCL_IB_GID_INDEX")));
  EXPECT_THAT(told("NET/Socket : peer 10.0.0.4<412> message truncated : receiving 8 bytes instead "
                   "of 4"),
              AllOf(Not(HasSubstr("lost")), HasSubstr("compare the shapes")));
  EXPECT_THAT(told("Error while creating shared memory segment /dev/shm/nccl-a (size 9637888)"),
              HasSubstr("shared memory is too small"));
  EXPECT_THAT(told("Could not enable P2P between dev 0 and dev 1"), Not(HasSubstr("lost a peer")));
  EXPECT_THAT(told("socketPollConnect connect failed"), HasSubstr("lost a peer"));
}

TEST(FirstCause, ModelsThatDifferAreToBeBuiltAlike) {
  const auto advice = [](const std::string& text) {
    const Report report = report_of({{Kind::exception, 1, text}});
    return report.findings.empty() ? "" : report.findings[0].fix;
  };
  for (const char* const text :
       {"RuntimeError: DDP expects same model across all ranks, but Rank 1 has 4 params, while "
        "rank 0 "
        "has inconsistent 8 params.",
        "RuntimeError: [Rank 1]: params[0] in this process with sizes [4, 8] appears not to match "
        "sizes of the same param in process 0."})
    EXPECT_THAT(advice(text), HasSubstr("build one model on every rank")) << text;
  EXPECT_THAT(advice("ValueError: this process lacks a param"), Not(HasSubstr("one model")));
}

// Where a library compared the ranks, all of them raise. Who is named then.
std::string culprits_where_all_raise(int ranks, const std::string& text) {
  std::vector<Told> notes;
  for (int rank = 0; rank < ranks; ++rank) notes.push_back({Kind::exception, rank, text});
  const Report report = report_of(notes);
  std::string out;
  for (const trace::Rank rank : report.findings.at(0).culprits)
    out += fmt::format("{} ", rank.value);
  return out;
}

TEST(FirstCause, RanksThatALibraryComparedAreNotAllToBlame) {
  const auto order = [](int ranks, const char* other) {
    return culprits_where_all_raise(
        ranks, fmt::format("RuntimeError: Forward order differs across ranks: rank 0 is "
                           "all-gathering 3 parameters while rank {} is all-gathering 1 parameters",
                           other));
  };
  EXPECT_EQ(order(3, "2"), "2 ") << "ranks 0 and 1 agree";
  EXPECT_EQ(order(4, "2"), "") << "two each, as far as the message tells";
  EXPECT_EQ(order(2, "1"), "");
  EXPECT_EQ(order(1, "2"), "") << "the others' output is not there";
  EXPECT_EQ(order(3, "99999999999999999999"), "");

  const auto shapes = [](int ranks, const char* list) {
    return culprits_where_all_raise(
        ranks, fmt::format("DistributedOperationException: Cannot apply desired operation due to "
                           "shape mismatches. All shapes across devices must be valid.; gather: {}",
                           list));
  };
  EXPECT_EQ(shapes(4, "Process 0: [1, 5], Process 2: [2, 5]"), "2 ");
  EXPECT_EQ(shapes(3, "Process 0: [1, 5], Process 1: [2, 5], Process 2: [2, 5]"), "0 ");
  EXPECT_EQ(shapes(2, "Process 0: [1, 5], Process 1: [2, 5]"), "");
  EXPECT_EQ(shapes(4, "Process 0: [1, 5], Process 1: [2, 5], Process 2: [2, 5]"), "");
  EXPECT_EQ(shapes(100, "Process 0: [1, 5], Process 1: [2, 5], …"), "") << "more may differ";
  EXPECT_EQ(culprits_where_all_raise(2, "ValueError: Process 1: x"), "0 1 ");
}

TEST(FirstCause, WhoFailedIsNamedWhereAllRaise) {
  const auto checkpoint = [](int ranks, const char* failed) {
    return culprits_where_all_raise(
        ranks,
        fmt::format("CheckpointException: CheckpointException ranks:dict_keys([{}])", failed));
  };
  EXPECT_EQ(checkpoint(3, "2, 1"), "1 2 ");
  EXPECT_EQ(checkpoint(1, "2"), "2 ") << "the others' output is not there";
  EXPECT_EQ(checkpoint(3, "0, 1, 2"), "") << "none stands out";
  EXPECT_EQ(culprits_where_all_raise(3, "RuntimeError: Rank 2 failed: stage load: exception x"),
            "2 ");
  EXPECT_EQ(culprits_where_all_raise(2, "RuntimeError: Rank x failed: y"), "0 1 ");
}

TEST(FirstCause, JoinNamesTheRankWithoutInputs) {
  const Told others{Kind::peer_lost, 0,
                    "RuntimeError: Detected at least one rank that exhausted inputs. Throwing "
                    "across all ranks."};
  const Report report =
      report_of({others, {Kind::exception, 1, "RuntimeError: Rank 1 exhausted all inputs."}});
  EXPECT_EQ(report.findings.at(0).culprits, std::vector{trace::Rank(1)});
  EXPECT_THAT(report.findings.at(0).fix, HasSubstr("the same number of batches"));
}

// Each library's own variables; none where it writes nothing on a timeout.
TEST(FirstCause, TheAdviceNamesTheLibrarysOwnVariables) {
  const auto next = [](const std::string& work) {
    return first_cause({{Kind::watchdog, 1,
                         fmt::format("Watchdog caught collective operation timeout: {}(SeqNum=12, "
                                     "OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600001 "
                                     "milliseconds",
                                     work)}});
  };
  EXPECT_THAT(next("WorkNCCL"),
              HasSubstr("| export TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_"));
  EXPECT_THAT(next("WorkHCCL"),
              HasSubstr("| export TORCH_HCCL_TRACE_BUFFER_SIZE=2000 TORCH_HCCL_"));
  EXPECT_THAT(next("WorkMCCL"),
              HasSubstr("| export TORCH_MCCL_TRACE_BUFFER_SIZE=2000 TORCH_MCCL_"));
  EXPECT_THAT(next("WorkCNCL"), Not(HasSubstr("export")));
}

TEST(FirstCause, WhatHcclSaysOfAPeerIsTold) {
  const auto cause = [](const std::string& text) {
    return first_cause({{Kind::peer_lost, 25, "RuntimeError: NPU function error; " + text}});
  };
  const std::string waits =
      "EI0002: [PID: 2969] The wait execution of the Notify register times out. Reason: The Notify "
      "register has not received the Notify record from remote rank";
  EXPECT_EQ(
      cause(waits + ": [24]. base information: [streamID:[109], taskID[38], taskType[Notify "
                    "Wait], tag[AllReduce_group_name_1654], AlgType(level 0-1-2):[ring]"),
      "rank 25 waited for rank 24 of its group (HCCL, in AllReduce_group_name_1654), which did "
      "not come in time (job.log:1)");
  EXPECT_EQ(cause(waits + " [unknown].base information: [streamID:[2], taskID[5]"
                          "; Cluster Exception Location[IP/ID]:[90.90.92.240/1], Discoverer:"
                          "[90.90.92.240/0], ExceptionType:[Heartbeat Lost Occurred], Possible"),
            "rank 25 waited for a peer (HCCL), which did not come in time; HCCL says of device "
            "90.90.92.240/1: Heartbeat Lost Occurred (job.log:1)");
  EXPECT_EQ(
      cause("Communication_Error_Get_Socket(EI0006): Getting socket times out. Reason: Remote "
            "Rank did not send the data in time"),
      "rank 25 waited for a peer to connect (HCCL), which did not come in time (job.log:1)");
  EXPECT_THAT(cause("EI0005: The arguments for collective communication are inconsistent between "
                    "ranks: tag [a], parameter [count], local [8192], remote [24576]"),
              HasSubstr("ranks made different calls: "));
}

TEST(FirstCause, WhoDidNotComeIsTold) {
  const auto waits = [](int rank) {
    return Told{Kind::peer_lost, rank,
                fmt::format("DistBackendError: [{}] is setting up NCCL communicator and retrieving "
                            "ncclUniqueId from [0] via c10d key-value store by key '0', but got "
                            "error: Socket Timeout",
                            rank)};
  };
  EXPECT_EQ(first_cause({waits(1), waits(2), waits(3)}),
            "ranks 1-3 waited for rank 0 of their group, which did not come to the group's first "
            "call");
  EXPECT_EQ(first_cause({{Kind::peer_lost, 0,
                          "RuntimeError: Timed out initializing process group in store based "
                          "barrier on rank: 0, for key: store_based_barrier_key:1 (world_size=2, "
                          "worker_count=1)"}}),
            "rank 0 waited for rank 1 to start");
}

// The barrier in which all ranks create a process group.
std::vector<Told> creating(const std::vector<int>& ranks, int joined, const std::string& rest) {
  std::vector<Told> out;
  for (const int rank : ranks)
    out.push_back({Kind::peer_lost, rank,
                   fmt::format("DistStoreError: Timed out initializing process group in store "
                               "based barrier on rank {}, for key: store_based_barrier_key:{}, "
                               "num_workers_joined={}, timeout=0:10:00 error=wait timeout)",
                               rank, rest, joined)});
  return out;
}

TEST(FirstCause, WhoDidNotCreateAGroupIsTold) {
  EXPECT_EQ(first_cause(creating({0, 1, 3}, 3, "2 (world_size=4")),
            "ranks 0, 1, 3 waited for rank 2 to create process group 2");
  EXPECT_EQ(first_cause(creating({0, 1, 3}, 3, "default_pg (world_size=4")),
            "ranks 0, 1, 3 waited for rank 2 to start");
  // Some who came say nothing.
  EXPECT_EQ(first_cause(creating({0, 3}, 3, "0 (world_size=4")),
            "ranks 0, 3 waited for the other ranks to start: 3 of 4 came");
  // The one who gave up first had seen fewer.
  std::vector<Told> notes = creating({0}, 1, "2 (world_size=3");
  notes.push_back(creating({2}, 2, "2 (world_size=3")[0]);
  EXPECT_EQ(first_cause(notes), "ranks 0, 2 waited for rank 1 to create process group 2");
  // They numbered the barriers before they named the group.
  EXPECT_EQ(first_cause({{Kind::peer_lost, 7,
                          "RuntimeError: Timed out initializing process group in store based "
                          "barrier on rank: 7, for key: store_based_barrier_key:32 (world_size=8, "
                          "worker_count=4, timeout=0:00:30)"}}),
            "rank 7 waited for the other ranks to create process group 32: 4 of 8 came");
}

TEST(FirstCause, MoreProcessesThanRanksAreTold) {
  EXPECT_EQ(first_cause({{Kind::peer_lost, 0,
                          "RuntimeError: Timed out initializing process group in store based "
                          "barrier on rank: 0, for key: store_based_barrier_key:1 (world_size=2, "
                          "worker_count=4, timeout=0:30:00)"}}),
            "rank 0 waited to start, and 4 processes came where 2 were to: they are of two starts "
            "of the job, or several have one rank");
}

TEST(FirstCause, WhoDidNotPassABarrierIsTold) {
  EXPECT_EQ(first_cause({{Kind::peer_lost, 0,
                          "RuntimeError: Rank 3 failed to pass monitoredBarrier in 600000 ms"}}),
            "rank 0 waited in monitored_barrier() for rank 3, which did not come");
  EXPECT_EQ(first_cause({{Kind::peer_lost, 0,
                          "RuntimeError: Ranks 1, 2 failed to pass monitoredBarrier in 6 ms"}}),
            "rank 0 waited in monitored_barrier() for ranks 1, 2, which did not come");
  EXPECT_EQ(first_cause({{Kind::peer_lost, 0,
                          "DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 "
                          "clients joined."}}),
            "rank 0 waited for the other ranks to start: 1 of 2 came");
}

TEST(FirstCause, TimeoutsNameThoseWhoWroteNothing) {
  std::vector<Told> notes;
  for (const int rank : {1, 2, 3}) {
    notes.push_back(kTimeout);
    notes.back().rank = rank;
  }
  EXPECT_THAT(first_cause(notes),
              HasSubstr("ranks 1-3 gave up waiting in ALLREDUCE (call 12); rank 0 wrote nothing"));
  EXPECT_THAT(first_cause({notes[2]}), HasSubstr("the log does not show who did not come"));
  notes.push_back(kTimeout);
  notes.back().rank = 0;
  EXPECT_THAT(
      first_cause(notes),
      HasSubstr("ranks 0-3 gave up waiting in ALLREDUCE (call 12); the log names no other"));
}

TEST(FirstCause, AnErrorThatNamesARankNeedsNone) {
  const Report report = report_of({{Kind::exception, 1, "ValueError: x"},
                                   {Kind::nccl_warning, -1, "NCCL WARN Cuda failure 'a'"}});
  EXPECT_EQ(report.verdict, Verdict::findings);
  for (const Finding& f : report.findings) EXPECT_EQ(f.headline, "");
}

TEST(FirstCause, TheAdviceIsAboutTheReason) {
  const auto fix = [](const std::string& text) {
    return report_of({{Kind::exception, 1, text}}).findings.front().fix;
  };
  EXPECT_THAT(fix("CUDA error: uncorrectable ECC error"), HasSubstr("the GPU is defective"));
  EXPECT_THAT(fix("CUDA out of memory. Tried 2 GiB"), HasSubstr("use less memory"));
  EXPECT_THAT(fix("CUDA error: device-side assert triggered"), HasSubstr("fix what raised"));
}

// An import that failed at the start, and was caught.
TEST(FirstCause, WhatMuchOutputFollowsIsNoEqual) {
  trace::Run run;
  const auto add = [&](Kind kind, const std::string& text, bool follows) {
    const int line = 1 + static_cast<int>(run.notes.size());
    run.notes.push_back(
        {kind, trace::Rank(trace::kNone), trace::kNone, text, {"job.log", line}, "", trace::kNone});
    run.notes.back().output_follows = follows;
  };
  add(Kind::exception, "ModuleNotFoundError: no module named 'triton'", true);
  add(Kind::peer_lost, "Connection closed by peer", false);
  EXPECT_THAT(verify(run).findings.front().headline,
              HasSubstr("after which the log goes on for long: ModuleNotFoundError"));
  add(Kind::exception, "ValueError: x", false);
  EXPECT_THAT(verify(run).findings.front().headline, HasSubstr("raised an exception: ValueError"));
}

TEST(FirstCause, WhatSaysNothingOfAnEndIsNoCause) {
  EXPECT_EQ(first_cause({{Kind::stack, 1, "in all_reduce"}, {Kind::caught, 2, "ValueError: x"}}),
            "");
}

Told exception(const std::string& text, const std::string& host = "") {
  return {Kind::exception, -1, text, host};
}

Told lost(const std::string& text) { return {Kind::peer_lost, -1, text}; }

TEST(FirstCause, APortThatIsTakenComesBeforeWhoWaitsForTheStore) {
  EXPECT_THAT(
      first_cause({lost("torch.distributed.DistStoreError: Timed out after 61 seconds waiting for "
                        "clients. 1/4 clients joined."),
                   exception("RuntimeError: The server socket has failed to bind to [::]:29512 "
                             "(errno: 98 - Address already in use).",
                             "node4")}),
      testing::EndsWith("(job.log:2) | ssh node4 ss -ltnp 'sport = :29512'"));
}

TEST(FirstCause, AStoreThatNobodyServes) {
  EXPECT_EQ(first_cause({lost("torch.distributed.DistNetworkError: The client socket has timed out "
                              "after 600s while trying to connect to (10.0.0.7, 29500).")}),
            "a rank that the log does not name could not reach the store at 10.0.0.7, 29500: rank "
            "0, or its launcher, does not serve it there (job.log:1) | nc -vz 10.0.0.7 29500");
}

TEST(FirstCause, WhoCannotBeReachedNeedNotHaveEnded) {
  const Told unreachable{Kind::nccl_warning, -1,
                         "NCCL WARN Net : Connect to 192.168.1.9<54263> failed : No route to host"};
  EXPECT_THAT(first_cause({unreachable}), HasSubstr("cannot reach 192.168.1.9: NCCL WARN"));
  EXPECT_THAT(first_cause({unreachable}), testing::EndsWith("| ip route get 192.168.1.9"));
}

Told lost_at(int rank, const std::string& text, const std::string& place) {
  return {.kind = Kind::peer_lost, .rank = rank, .text = text, .raised_at = place};
}

TEST(FirstCause, GloosTimeoutsTellWhereTheRanksWaited) {
  const std::string send =
      "RuntimeError: [unbound_buffer.cc:129] Timed out waiting 1800000ms for "
      "send operation to complete";
  const std::string closed = "RuntimeError: [pair.cc:561] Connection closed by peer [127.0.0.1]:80";
  const Told early = lost_at(1, send, "t.py:12");
  EXPECT_EQ(first_cause({lost_at(0, send, "t.py:10"), early, lost_at(2, closed, "t.py:10")}),
            "rank 1 waited in vain at t.py:12, ranks 0, 2 at t.py:10");
  EXPECT_THAT(report_of({lost_at(0, send, "t.py:10"), early}).findings.front().fix,
              HasSubstr("came to different lines"));
  EXPECT_EQ(first_cause({early, lost_at(2, send, "t.py:12")}),
            "ranks 1, 2 waited in vain at t.py:12; rank 0 wrote nothing of it");
  EXPECT_THAT(report_of({early, lost_at(2, send, "t.py:12")}).findings.front().fix,
              HasSubstr("py-spy dump"));
  EXPECT_EQ(first_cause({lost_at(7, send, "t.py:12")}), "rank 7 waited in vain at t.py:12")
      << "seven ranks' output is not there";
  EXPECT_EQ(first_cause({lost_at(0, send, "a:1"), lost_at(1, send, "b:1"), lost_at(2, send, "c:1"),
                         lost_at(3, send, "d:1"), lost_at(4, send, "d:1")}),
            "rank 0 waited in vain at a:1, rank 1 at b:1, rank 2 at c:1, and others at 1 other "
            "place");
  const std::string key = "torch.distributed.DistStoreError: wait timeout after 300000ms, keys: ";
  EXPECT_EQ(first_cause({lost_at(1, key + "/default_pg/0//data_ready", "t.py:9")}),
            "rank 1 waited in vain at t.py:9 for the store's key data_ready; rank 0 wrote nothing "
            "of it");
  EXPECT_EQ(first_cause({lost_at(0, key + "/a//b, /a//c", "t.py:9")}),
            "rank 0 waited in vain at t.py:9 for the store's key /a//b, /a//c");
}

// Who ends the launcher ends the ranks, which then lose each other.
TEST(FirstCause, ALauncherThatWasToldToEndComesBeforeLostConnections) {
  const std::string closed = "RuntimeError: [pair.cc:561] Connection closed by peer [127.0.0.1]:80";
  const auto launcher = [](int signal) {
    return Told{Kind::peer_lost, -1,
                fmt::format("torch.distributed.elastic.multiprocessing.api.SignalException: "
                            "Process 19 got signal: {}",
                            signal)};
  };
  EXPECT_THAT(first_cause({lost_at(1, closed, "t.py:152"), launcher(2)}),
              testing::StartsWith("the launcher was told to end, as by Ctrl-C: torch."));
  EXPECT_THAT(report_of({lost_at(1, closed, "t.py:152"), launcher(2)}).findings.front().fix,
              HasSubstr("py-spy dump"));
  EXPECT_THAT(first_cause({lost_at(1, closed, "t.py:152"), launcher(15)}),
              testing::StartsWith("the launcher was told to end: torch."));
  // Where ranks had given up waiting, that is what happened before.
  const std::string send = "RuntimeError: Timed out waiting 1800000ms for send operation";
  EXPECT_THAT(first_cause({lost_at(1, send, "t.py:152"), launcher(15)}),
              testing::StartsWith("rank 1 waited in vain at t.py:152"));
}

// trainer.train() is one line of the program, whatever a framework does in it.
TEST(FirstCause, RanksAtOneLineAreToldApartByTheirCalls) {
  const auto waits = [](int rank, const std::string& call) {
    Told told = lost_at(rank, "RuntimeError: Timed out waiting 12000ms for send", "t.py:73");
    told.says = Says::where_it_called;
    told.content = call;
    return told;
  };
  const std::string gather = "all_gather, called from gather (accelerate/utils/operations.py:355)";
  const std::vector<Told> differ = {waits(0, "barrier"), waits(1, gather), waits(2, gather)};
  EXPECT_EQ(first_cause(differ),
            "at t.py:73, rank 0 waited in vain in barrier; ranks 1, 2 in " + gather);
  EXPECT_THAT(report_of(differ).findings.front().fix, HasSubstr("came to different calls"));
  // Nobody wrote nothing, so that no such rank can be looked at.
  const std::vector<Told> alike = {waits(0, gather), waits(1, gather)};
  EXPECT_EQ(first_cause(alike), "ranks 0, 1 waited in vain at t.py:73");
  EXPECT_THAT(report_of(alike).findings.front().fix,
              AllOf(HasSubstr("`lockstep record`"), Not(HasSubstr("wrote nothing"))));
  EXPECT_EQ(first_cause({waits(0, ""), waits(1, gather)}), "ranks 0, 1 waited in vain at t.py:73");
}

TEST(FirstCause, WhereRanksWereWhenAPeerEndedIsNoTimeout) {
  const std::string closed = "RuntimeError: [pair.cc:561] Connection closed by peer [127.0.0.1]:80";
  EXPECT_THAT(first_cause({lost_at(0, closed, "t.py:10"), lost_at(2, closed, "t.py:12")}),
              testing::AllOf(testing::StartsWith("rank 0 lost a peer: "),
                             testing::EndsWith("; rank 1 wrote nothing of it")));
  EXPECT_THAT(first_cause({lost_at(3, closed, "t.py:10")}), Not(HasSubstr("wrote nothing")));
  const std::string send = "RuntimeError: Timed out waiting 1800000ms for send operation";
  EXPECT_EQ(first_cause({lost_at(0, send, "t.py:10"), {Kind::exception, 1, "ValueError: x"}}), "")
      << "the exception is a finding";
}

TEST(FirstCause, ACommandForThisMachineNeedsNoHost) {
  const auto next = [](const std::string& host) {
    return report_of({{Kind::killed, 1, "by torchrun: exit code -9", host}}).findings.front().next;
  };
  EXPECT_EQ(next("node4"), "ssh node4 dmesg -T | grep -i 'killed process'");
  EXPECT_EQ(next("localhost"), "dmesg -T | grep -i 'killed process'");
}

TEST(FirstCause, RanksThatCalledDifferently) {
  const Told differ = lost(
      "RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running collective: "
      "CollectiveFingerPrint(SequenceNumber=1OpType=BARRIER), but Rank 2 is running collective: x");
  EXPECT_THAT(first_cause({kClosed, differ, kTimeout}),
              testing::StartsWith("ranks 1 and 2 made different calls: RuntimeError"));
  EXPECT_EQ(report_of({differ}).verdict, Verdict::inconclusive);
}

TEST(FirstCause, TheFirstFailureOfSeveralNodesByTheClockCounts) {
  const auto failed = [](int rank, const std::string& time) {
    return Told{.kind = Kind::ended,
                .rank = rank,
                .text = "the first failure, by torchrun: exit code 1 at " + time,
                .says = Says::failed_first,
                .content = time};
  };
  EXPECT_THAT(first_cause({failed(0, "2023-06-03_22:45:52"), failed(4, "2023-06-03_22:45:01")}),
              testing::StartsWith("rank 4 ended"));
}

TEST(FirstCause, RasTellsWhoIsBehindWhereNothingElseDoes) {
  const Told ahead{Kind::ras, 1, "MISMATCH: counts differ"};
  const Told behind{Kind::ras, 0, "MISMATCH: counts differ", "", 1};
  EXPECT_THAT(first_cause({behind, ahead}),
              testing::StartsWith("rank 0 was 1 call behind when NCCL's RAS asked"));
  EXPECT_THAT(first_cause({behind, {Kind::ras, 1, "MISMATCH: counts differ", "", 4}}),
              testing::StartsWith("rank 1 was 4 calls behind"));
  EXPECT_THAT(first_cause({behind, ahead, kTimeout, kClosed}), HasSubstr("lost the connection"));
  EXPECT_EQ(first_cause({ahead}), "");
  EXPECT_EQ(report_of({behind, ahead}).verdict, Verdict::inconclusive);
}

TEST(FirstCause, StacksShowWhoIsElsewhere) {
  const auto in = [](int rank, const std::string& place) {
    return Told{.kind = Kind::stack,
                .rank = rank,
                .text = "its process was in " + place,
                .says = Says::where_it_was,
                .content = place};
  };
  EXPECT_EQ(first_cause({in(0, "save (io.py:3)"), in(1, "all_reduce (c.py:1)"),
                         in(2, "all_reduce (c.py:1)")}),
            "rank 0 was in save (io.py:3); ranks 1, 2 were in all_reduce (c.py:1)");
  EXPECT_THAT(first_cause({in(0, "save (io.py:3)"), kTimeout}), HasSubstr("gave up waiting"));
}

TEST(FirstCause, TorchfrtraceNamesWhoDidNotJoin) {
  const auto missing = [](int rank) {
    const std::string missed = "did not join all_reduce (call 41 of group world)";
    return Told{.kind = Kind::analysis,
                .rank = rank,
                .text = "by torchfrtrace it " + missed,
                .says = Says::did_not_join,
                .content = missed};
  };
  EXPECT_EQ(first_cause({kTimeout, missing(2), missing(3)}),
            "ranks 2, 3, by torchfrtrace, did not join all_reduce (call 41 of group world) "
            "(job.log:2)");
}

TEST(FirstCause, HorovodNamesWhoDidNotSubmit) {
  const auto missing = [](int rank) {
    return Told{.kind = Kind::analysis,
                .rank = rank,
                .text = "by Horovod it did not submit grad.a, which others did",
                .says = Says::did_not_submit,
                .content = "grad.a"};
  };
  EXPECT_EQ(first_cause({kTimeout, missing(2), missing(3)}),
            "ranks 2, 3 did not submit, by Horovod, grad.a (job.log:2)");
}

TEST(FirstCause, FsdpNamesWhoChangesTheOrder) {
  const Told warned{.kind = Kind::analysis,
                    .rank = 3,
                    .text = "by FullyShardedDataParallel its units ran in another order",
                    .says = Says::changed_order,
                    .content = "Expected to all-gather for [['a']]"};
  EXPECT_EQ(first_cause({kTimeout, warned}),
            "rank 3 ran FSDP units in another order than in the first iteration: Expected to "
            "all-gather for [['a']] (job.log:2)");
}

TEST(FirstCause, JaxNamesWhoStopped) {
  const Told stopped{.kind = Kind::analysis,
                     .rank = 3,
                     .text = "by JAX's coordination service it stopped sending heartbeats",
                     .says = Says::missed_by_jax,
                     .content = "stopped sending heartbeats"};
  EXPECT_EQ(first_cause({kClosed, stopped}),
            "rank 3, by JAX's coordination service, stopped sending heartbeats (job.log:2)");
}

TEST(FirstCause, RankZeroKnowsWhoDidNotPassABarrier) {
  const Told waits{
      Kind::peer_lost, 2,
      "RuntimeError: Rank 2 successfully reached monitoredBarrier, but received errors "
      "while waiting for send/recv from rank 0. Please check rank 0 logs for faulty "
      "rank."};
  EXPECT_EQ(first_cause({waits}),
            "rank 2 was in monitored_barrier() when rank 0 ended or gave up; its output says why "
            "(job.log:1)");
  EXPECT_EQ(first_cause({waits,
                         {Kind::peer_lost, 0,
                          "RuntimeError: Ranks 1 failed to pass monitoredBarrier in 6 ms"}}),
            "rank 0 waited in monitored_barrier() for ranks 1, which did not come");
  const Told gave_up{Kind::peer_lost, 0,
                     "RuntimeError: Rank 0 timed out in monitoredBarrier after 8000 ms."};
  EXPECT_EQ(first_cause({waits, gave_up}),
            "rank 0 waited in monitored_barrier() for others, which did not come");
}

TEST(FirstCause, AStuckWatchdogSaysLessThanACall) {
  const Told stuck{Kind::watchdog, 7, "watchdog got stuck for 480 seconds"};
  EXPECT_THAT(first_cause({stuck, kTimeout}), testing::StartsWith("rank 1 gave up waiting"));
  EXPECT_THAT(first_cause({stuck}), testing::StartsWith("rank 7: watchdog got stuck"));
  const Told place{.kind = Kind::stack,
                   .rank = 1,
                   .text = "it made the call that failed in f (a.py:1), called from save (t.py:3)",
                   .says = Says::where_it_called,
                   .content = "f (a.py:1), called from save (t.py:3)"};
  EXPECT_THAT(first_cause({kTimeout, place}),
              HasSubstr("ALLREDUCE (call 12), made in f (a.py:1), called from save (t.py:3); "));
}

}  // namespace
}  // namespace lockstep::verify
