// What launchers, the shell and the kernel write into the output of ranks: labels before lines, and
// which process ended.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trace/evidence/evidence_testing.h"
#include "trace/evidence/evidence.h"
#include "trace/evidence/line_labels.h"

namespace lockstep::trace {
namespace {

using testing::HasSubstr;

TEST(LauncherLog, MpirunMayWriteTheTimeBeforeItsLabel) {
  EXPECT_EQ(
      read_log("Fri Aug 11 12:31:45 2023[1,3]<stdout>:node1:185:188 [3] transport.cc:154 NCCL "
               "WARN Cuda failure 'invalid argument'\n"),
      "rank 3 pid 185 on node1 GPU 3 NCCL warning @1: NCCL WARN Cuda failure 'invalid "
      "argument'");
}

TEST(LauncherLog, LightningSaysWhichRankEnded) {
  EXPECT_EQ(read_log(kLoggedTraceback +
                     "[rank: 1] Child process with PID 71 terminated with code 1. Forcefully "
                     "terminating all other processes to avoid zombies\n"),
            "rank 1 exception @4: ValueError: no more batches\n"
            "rank 1 pid 71 ended @5: Child process with PID 71 terminated with code 1. Forcefully "
            "terminating all other processes to avoid zombies");
}

TEST(LauncherLog, VllmSaysWhichWorkerEnded) {
  const std::string died = " died unexpectedly, shutting down executor.";
  EXPECT_EQ(read_log("(EngineCore pid=2) ERROR 02-27 [multiproc_executor.py:231] Worker proc "
                     "VllmWorker-2" +
                     died + "\n"),
            "some rank ended @1: Worker proc VllmWorker-2 died unexpectedly, shutting down "
            "executor");
  EXPECT_EQ(read_log("E RayWorkerProc rank=[3]" + died + "\n"),
            "some rank ended @1: RayWorkerProc rank=[3] died unexpectedly, shutting down executor");
  EXPECT_EQ(read_log("the web server" + died + "\n" + kLoggedTraceback),
            "some rank exception @5: ValueError: no more batches");
}

TEST(LauncherLog, TheShellSaysWhatWasKilled) {
  EXPECT_EQ(read_log("/opt/run.sh: line 12:    71 Killed                  python train.py\n"),
            "some rank pid 71 killed @1: line 12:    71 Killed                  python train.py");
  EXPECT_EQ(read_log("notes.txt: line 12: it Killed  the job\n" + kLoggedTraceback),
            "some rank exception @5: ValueError: no more batches");
}

TEST(LauncherLog, TorchrunsSummaryNamesTheFirstFailure) {
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
  EXPECT_THAT(notes, HasSubstr("rank 0 pid 100 on node1 ended"));
  EXPECT_THAT(notes, HasSubstr("rank 3 pid 103 killed @15: the first failure, by torchrun"));
}

TEST(LauncherLog, TheOnlyExceptionOfAllRanksIsTheFirstFailures) {
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

TEST(LauncherLog, TheKernelAndTheDriverNameProcesses) {
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

TEST(LauncherLog, LaunchersLabelLinesWithRanks) {
  const std::string raised = "rank 3 exception @4: ValueError: no more batches";
  EXPECT_EQ(read_log(labelled("3: ", kLoggedTraceback)), raised);
  EXPECT_EQ(read_log(labelled(" 3: ", kLoggedTraceback)), raised);
  EXPECT_EQ(read_log(labelled("[1,3]<stderr>:", kLoggedTraceback)), raised);
  EXPECT_EQ(read_log(labelled("[prterun-n1-12@1,3]<stderr>: ", kLoggedTraceback)), raised);
  EXPECT_EQ(read_log(labelled("2025-01-31T12:37:42.149692541Z [rank3]: ", kLoggedTraceback)),
            raised);
  EXPECT_EQ(read_log(labelled("\x1b[31m[rank3]:\x1b[0m ", kLoggedTraceback)), raised);
  EXPECT_EQ(
      read_log(labelled("2025-01-31T12:37:42.149692541Z stderr F [rank3]: ", kLoggedTraceback)),
      raised);
  EXPECT_THAT(read_log(labelled("3: ", kLoggedTraceback) + "0: step 1\n3: step 2\n"),
              HasSubstr("rank 3 exception that it went on after"));
}

TEST(LauncherLog, LabelsThatEveryLineHas) {
  const std::string log = "step 1\n" + kLoggedTraceback;
  const auto raised = [](const std::string& who) {
    return who + " exception @5: ValueError: no more batches";
  };
  EXPECT_EQ(read_log(labelled("[3] ", log)), raised("rank 3"));
  EXPECT_EQ(read_log(labelled("[pod/job-worker-3/pytorch] ", log)),
            raised("some rank on job-worker-3"));
  EXPECT_EQ(read_log(labelled("[pod/job-worker-3/pytorch] 2025-01-31T12:37:42.149692541Z ", log)),
            raised("some rank on job-worker-3"));
  EXPECT_EQ(read_log(labelled("worker-3  | ", log)), raised("some rank on worker-3"));
  EXPECT_EQ(read_log(labelled("node03: ", log)), raised("some rank on node03"));
  EXPECT_EQ(read_log(labelled("node03: [rank7]: ", log)), raised("rank 7 on node03"));
  // What a process wrote itself: only some lines begin so, or each begins otherwise.
  EXPECT_EQ(read_log("epoch 1\nepoch 2\n" + labelled("[3] ", log)),
            "some rank exception @7: ValueError: no more batches");
  EXPECT_EQ(label_form_of("step1: a\nstep2: a\nstep3: a\nstep4: a\nstep5: a\n"), LabelForm::none);
  EXPECT_EQ(label_form_of("INFO: a\nINFO: a\nINFO: a\nINFO: a\nINFO: a\n"), LabelForm::none);
}

TEST(LauncherLog, HostsThatWriteInTurn) {
  EXPECT_EQ(read_log("w-0  | Traceback (most recent call last):\n"
                     "w-1  | Traceback (most recent call last):\n"
                     "w-0  |   File \"a.py\", line 1, in f\n"
                     "w-1  |   File \"a.py\", line 2, in f\n"
                     "w-0  | KeyError: 'x'\n"
                     "w-1  | IndexError: y\n"),
            "some rank on w-0 exception @5: KeyError: 'x'\n"
            "some rank on w-1 exception @6: IndexError: y");
}

TEST(LauncherLog, DockersLogHoldsALineInJson) {
  const auto line = [](const std::string& text) {
    return R"({"log":")" + text + R"(\n","stream":"stderr","time":"2025-01-31T12:37:42Z"})" + "\n";
  };
  EXPECT_EQ(read_log(line("[rank3]: Traceback (most recent call last):") +
                     line(R"([rank3]:   File \"train.py\", line 12, in <module>)") +
                     line(R"([rank3]: KeyError: \"x\")")),
            "rank 3 exception @3: KeyError: \"x\"");
}

TEST(LauncherLog, ATaskThatStartsRanksIsNoRank) {
  EXPECT_EQ(
      read_log("1: + torchrun --nproc-per-node 8 train.py\n" + labelled("1: ", kLoggedTraceback)),
      "some rank exception @5: ValueError: no more batches");
  EXPECT_EQ(read_log(labelled("1: [rank9]: ", kLoggedTraceback) +
                     "srun: error: n1: task 1: Exited with exit code 1\n"),
            "rank 9 exception @4: ValueError: no more batches\n"
            "some rank on n1 ended @5: srun: error: n1: task 1: Exited with exit code 1");
  EXPECT_EQ(
      read_log("1: Traceback (most recent call last):\n"
               "1:   File \"/x/torch/multiprocessing/spawn.py\", line 1, in spawn\n"
               "1: torch.multiprocessing.spawn.ProcessExitedException: process 3 ended\n"),
      "some rank ended @3: torch.multiprocessing.spawn.ProcessExitedException: process 3 ended");
  EXPECT_EQ(read_log(labelled("4711: ", kLoggedTraceback)),
            "some rank exception @4: ValueError: no more batches")
      << "a line's number";
}

TEST(LauncherLog, OtherLabelsKeepTracebacksApart) {
  const std::string one = "\x1b[36m(WorkerDict pid=833, ip=10.0.0.3)\x1b[0m ";
  EXPECT_EQ(read_log(labelled(one, kLoggedTraceback)),
            "some rank pid 833 on 10.0.0.3 exception @4: ValueError: no more batches");
  EXPECT_EQ(read_log(labelled("[default3]:", kLoggedTraceback)),
            "some rank exception @4: ValueError: no more batches");
  // Two processes that write in turn.
  EXPECT_EQ(read_log("(W pid=1) Traceback (most recent call last):\n"
                     "(W pid=2) Traceback (most recent call last):\n"
                     "(W pid=1)   File \"a.py\", line 1, in f\n"
                     "(W pid=2)   File \"a.py\", line 2, in f\n"
                     "(W pid=1) KeyError: 'x'\n"
                     "(W pid=2) IndexError: y\n"),
            "some rank pid 1 exception @5: KeyError: 'x'\n"
            "some rank pid 2 exception @6: IndexError: y");
  EXPECT_EQ(
      read_log(labelled("(W pid=1) ", "Exception ignored in: <function f>\n" + kLoggedTraceback)),
      "");
}

TEST(LauncherLog, SlurmSaysWhichTaskFailedFirst) {
  EXPECT_EQ(
      read_log("slurmstepd: error: Detected 1 oom_kill event in StepId=12.0. Some of the step "
               "tasks have been OOM Killed.\n"
               "srun: error: node7: task 3: Out Of Memory\n"
               "srun: error: node1: tasks 0-2: Killed\n"),
      "some rank out of memory @1: slurmstepd: error: Detected 1 oom_kill event in "
      "StepId=12.0. Some of the step tasks have been OOM Killed.\n"
      "rank 3 on node7 out of memory @2: srun: error: node7: task 3: Out Of Memory\n"
      "rank 0 on node1 ended @3: srun: error: node1: tasks 0-2: Killed\n"
      "rank 1 on node1 ended @3: srun: error: node1: tasks 0-2: Killed\n"
      "rank 2 on node1 ended @3: srun: error: node1: tasks 0-2: Killed");
  EXPECT_THAT(read_log("srun: error: node7: task 3: Segmentation fault (core dumped)\n"),
              HasSubstr("rank 3 on node7 crashed"));
  EXPECT_THAT(read_log(kLoggedTraceback + "srun: error: node7: task 3: Exited with exit code 1\n"),
              HasSubstr("rank 3 exception @4: ValueError"));
  const std::string limit = read_log(
      "slurmstepd: error: *** JOB 47 ON n1 CANCELLED AT 2025-01-01T00:00:00 DUE TO TIME LIMIT "
      "***\nsrun: error: n1: task 3: Killed\n");
  EXPECT_THAT(limit, HasSubstr("some rank killed @1"));
  EXPECT_THAT(limit, HasSubstr("rank 3 on n1 ended")) << "with all others";
}

TEST(LauncherLog, MpirunSaysWhichRankFailedFirst) {
  EXPECT_EQ(
      read_log("mpirun noticed that process rank 3 with PID 71 on node node7 exited on signal "
               "9 (Killed).\n"),
      "rank 3 pid 71 on node7 killed @1: noticed that process rank 3 with PID 71 on node "
      "node7 exited on signal 9 (Killed).");
  EXPECT_THAT(read_log(kLoggedTraceback + "  Process name: [[4711,1],3]\n  Exit code:    1\n"),
              HasSubstr("rank 3 exception @4: ValueError"));
}

TEST(LauncherLog, TheRankThatAbortedMpiIsTold) {
  EXPECT_EQ(
      read_log("MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD\nwith errorcode "
               "1.\n"),
      "rank 3 ended @1: MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD");
  EXPECT_EQ(read_log("Abort(1) on node 2 (rank 2 in comm 0): application called "
                     "MPI_Abort(MPI_COMM_WORLD, 1) - process 2\n"),
            "rank 2 ended @1: application called MPI_Abort(MPI_COMM_WORLD, 1) - process 2");
  // What it raised before is why.
  EXPECT_THAT(read_log(kLoggedTraceback + "MPI_ABORT was invoked on rank 3 in communicator X\n"),
              HasSubstr("rank 3 exception @4: ValueError"));
}

TEST(LauncherLog, LaunchersOfProcessesNameProcesses) {
  EXPECT_THAT(read_log("ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -11) "
                       "local_rank: 3 (pid: 74) of binary: /usr/bin/python\n"),
              HasSubstr("some rank pid 74 crashed"));
  EXPECT_THAT(read_log("[ERROR] [launch.py:321:sigkill_handler] ['python', '--local_rank=3'] exits "
                       "with return code = -9\n"),
              HasSubstr("some rank killed"));
  EXPECT_THAT(
      read_log("(raylet) A worker died or was killed while executing a task by an unexpected "
               "system error. Worker IP address: 10.0.0.3 Worker port: 1 Worker PID: 833 "
               "Worker exit type: SYSTEM_ERROR Worker exit detail: End of file.\n"),
      HasSubstr("some rank pid 833 on 10.0.0.3 killed"));
}

TEST(LauncherLog, OlderKernelsAndManyProcesses) {
  std::string log;
  for (int pid = 1; pid <= 9; ++pid) {
    log += "[1.2] Out of memory: Kill process " + std::to_string(pid) +
           " (python) score 900 or sacrifice child\n";
  }
  EXPECT_THAT(read_log(log), HasSubstr("some rank pid 9 out of memory @9"));
  EXPECT_THAT(read_log("kernel: oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task=python3,"
                       "pid=71,uid=0\n"),
              HasSubstr("some rank pid 71 out of memory"));
}

TEST(LauncherLog, MultiprocessingSaysHowAProcessEnded) {
  const auto ended = [](const std::string& how) {
    return read_log(
        "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\n"
        "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with " +
        how + "\n");
  };
  EXPECT_THAT(ended("signal SIGKILL"), HasSubstr("some rank killed"));
  EXPECT_THAT(ended("signal SIGSEGV"), HasSubstr("some rank crashed"));
  EXPECT_THAT(ended("exit code 1"), HasSubstr("some rank ended"));
}

TEST(LauncherLog, TorchrunsSummaryHasTimes) {
  EXPECT_EQ(read_log("Root Cause (first observed failure):\n[0]:\n"
                     "  time      : 2023-06-03_22:45:01\n"
                     "  host      : n2\n"
                     "  rank      : 4 (local_rank: 0)\n"
                     "  exitcode  : 1 (pid: 194)\n"),
            "rank 4 pid 194 on n2 ended @6: the first failure, by torchrun: exit code 1 at "
            "2023-06-03_22:45:01");
}

TEST(LauncherLog, DeepSpeedNamesTheLocalRank) {
  EXPECT_EQ(read_log("[2023-05-20 12:02:54,095] [ERROR] [launch.py:324:sigkill_handler] ['python', "
                     "'main.py', '--local_rank=3'] exits with return code = -11\n"),
            "some rank crashed @1: --local_rank=3'] exits with return code = -11");
}

}  // namespace
}  // namespace lockstep::trace
