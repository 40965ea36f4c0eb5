// The frame that holds a process up.
#include <optional>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trace/evidence/evidence_testing.h"
#include "trace/evidence/evidence.h"

namespace lockstep::trace {
namespace {

using testing::HasSubstr;

const std::string kPySpy =
    "Process 103: python train.py\n"
    "Python v3.10.12 (/usr/bin/python3.10)\n\n"
    "Thread 190 (idle): \"pt_autograd_0\"\n"
    "    run (threading.py:953)\n\n"
    "Thread 103 (idle): \"MainThread\"\n"
    "    wait (threading.py:320)\n"
    "    all_reduce (torch/distributed/distributed_c10d.py:2501)\n"
    "    train_step (train.py:88)\n"
    "    <module> (train.py:120)\n";

const std::string kGdb =
    "Thread 2 (Thread 0x7f0100 (LWP 191) \"python\"):\n"
    "#0  0x00007f01 in poll () from /lib/libc.so.6\n"
    "#1  0x00007f02 in ncclProxyService () from /lib/libnccl.so.2\n\n"
    "Thread 1 (Thread 0x7f0200 (LWP 103) \"python\"):\n"
    "#0  0x00007f01 in pthread_cond_wait@@GLIBC_2.3.2 () from /lib/libc.so.6\n"
    "#1  0x00007f02 in c10d::TCPStore::waitHandler () from /lib/libtorch_cpu.so\n";

const std::string kFaulthandler =
    "=== Rank 0: node0:1 ===\n"
    "Thread 0x00007f01 (most recent call first):\n"
    "  File \"/usr/lib/python3.10/threading.py\", line 320 in wait\n\n"
    "Current thread 0x00007f02 (most recent call first):\n"
    "  File \"/site-packages/torch/distributed/distributed_c10d.py\", line 2501 in all_reduce\n"
    "  File \"/home/u/train.py\", line 88 in train_step\n"
    "=== Rank 1: node0:2 ===\n"
    "Thread 0x00007f02 (most recent call first):\n"
    "  File \"/home/u/data.py\", line 7 in fetch\n";

const std::string kTorchNpu =
    "pid: 4242\n"
    "thread 139872313337000:\n"
    "  File \"/usr/lib/python3.10/threading.py\", line 973, in _bootstrap\n"
    "    self._bootstrap_inner()\n"
    "thread <_MainThread(MainThread, started 139872313337664)>:\n"
    "  File \"/job/train.py\", line 88, in <module>\n    main()\n"
    "  File \"/job/train.py\", line 51, in main\n    dist.barrier()\n"
    "  File \"/usr/lib/python3/dist-packages/torch/distributed/c10d_logger.py\", line 75, in "
    "wrapper\n"
    "    return func(*args, **kwargs)\n";

TEST(Stacks, PySpysMainThread) {
  EXPECT_EQ(notes_of(stack_source(), kPySpy, Rank(3)),
            "rank 3 pid 103 stack @8: its process was in wait (threading.py:320), called from "
            "train_step (train.py:88)");
}

// py-spy shortens paths to what an import would say, so that nothing else tells a library's.
TEST(Stacks, FramesOfLibrariesAreNotTheUsers) {
  const auto called_from = [](const std::string& frames) {
    return notes_of(stack_source(),
                    "Process 103: python train.py\n\nThread 103 (idle): \"MainThread\"\n"
                    "    barrier (torch/distributed/distributed_c10d.py:6614)\n" +
                        frames);
  };
  EXPECT_THAT(called_from("    PartialState.wait_for_everyone (accelerate/state.py:412)\n"
                          "    Trainer._save (transformers/trainer.py:310)\n"
                          "    main (train.py:71)\n"),
              HasSubstr(", called from main (train.py:71)"));
  EXPECT_THAT(called_from("    SFTTrainer.train (/w/trl/trl/trainer/sft_trainer.py:9)\n"
                          "    Trainer.train (/w/transformers/src/transformers/trainer.py:9)\n"
                          "    main (/w/transformers/examples/run_clm.py:71)\n"),
              HasSubstr(", called from main (/w/transformers/examples/run_clm.py:71)"));
  EXPECT_THAT(called_from("    save (my_accelerate/state.py:412)\n    main (train.py:71)\n"),
              HasSubstr(", called from save (my_accelerate/state.py:412)"));
}

TEST(Stacks, GdbsFirstFrameThatDoesMoreThanWait) {
  EXPECT_EQ(notes_of(stack_source(), kGdb),
            "some rank pid 103 stack @6: its process was in c10d::TCPStore::waitHandler () from "
            "/lib/libtorch_cpu.so");
}

// As gdb prints them where glibc's debug information is installed: values of arguments, and names
// of glibc's own. Two ranks in one place have one text.
TEST(Stacks, GdbsFramesWithValuesAndGloosThreads) {
  const auto stack = [](const std::string& address, const std::string& call) {
    return "Thread 2 (Thread 0x7f02 (LWP 104) \"pt_gloo_runloop\"):\n"
           "#0  0x00007f03 in gloo::transport::tcp::UnboundBuffer::waitSend(int*) () from /l.so\n"
           "#1  0x00007f04 in " +
           call +
           " () from /l.so\n\n"
           "Thread 1 (Thread 0x7f01 (LWP 103) \"python\"):\n"
           "#0  __futex_abstimed_wait_common64 (private=0, cancel=true, futex_word=" +
           address +
           ") at ./nptl/futex-internal.c:57\n"
           "#1  0x00007f05 in __GI___futex_abstimed_wait_cancelable64 (futex_word=" +
           address +
           ") at ./nptl/futex-internal.c:139\n"
           "#2  ___pthread_cond_wait (cond=" +
           address +
           ") at ./nptl/pthread_cond_wait.c:618\n"
           "#3  0x00007f06 in wait_for_work (work=" +
           address + ", timeout=(1)) at work.c:12\n";
  };
  const std::string is = "rank 3 pid 103 stack @6: its process was in wait_for_work at work.c:12";
  const auto read = [&](const std::string& address, const std::string& call) {
    return notes_of(stack_source(), stack(address, call), Rank(3));
  };
  EXPECT_EQ(read("0x55ed", "gloo::allgather(gloo::AllgatherOptions&)"),
            is + ", and another thread in gloo::allgather");
  EXPECT_EQ(read("0x77aa", "gloo::transport::Pair::send(int)"), is) << "no collective";
}

TEST(Stacks, GdbsBacktraceAlone) {
  const std::string one =
      "what gdb says of rank 0:\n\n"
      "#0  0x0000145a in poll () from /lib/libc.so.6\n"
      "#1  0x0000145b in ccl_executor::wait(ccl_request const*) () from /lib/libccl.so.1\n";
  EXPECT_EQ(notes_of(stack_source(), one),
            "some rank stack @3: its process was in ccl_executor::wait(ccl_request const*) () from "
            "/lib/libccl.so.1");
  EXPECT_FALSE(stack_source().recognises("frame #0: c10::Error + 0x96 (0x7f)\n", "f"));
}

TEST(Stacks, AThreadThatWritesTheStacksIsNotTheProgram) {
  const std::string watchdog =
      "Current thread 0x00007f02 (most recent call first):\n"
      "  File \"/home/u/watchdog.py\", line 12 in dump\n"
      "  File \"/usr/lib/python3.11/threading.py\", line 982 in run\n\n"
      "Thread 0x00007f01 (most recent call first):\n"
      "  File \"/home/u/data.py\", line 7 in fetch\n";
  EXPECT_EQ(notes_of(stack_source(), watchdog, Rank(3)),
            "rank 3 stack @6: its process was in fetch (/home/u/data.py:7)");
}

TEST(Stacks, TheDebugServerNamesRanks) {
  const std::string notes = notes_of(stack_source(), kFaulthandler);
  EXPECT_THAT(notes, HasSubstr("rank 0 stack"));
  EXPECT_THAT(notes, HasSubstr("called from train_step (/home/u/train.py:88)"));
  EXPECT_THAT(notes, HasSubstr("rank 1 stack @10: its process was in fetch (/home/u/data.py:7)"));
}

TEST(Stacks, OfTorchNpuTheLastFrameIsTheInnermost) {
  EXPECT_EQ(
      notes_of(stack_source(), kTorchNpu, Rank(3)),
      "rank 3 pid 4242 stack @10: its process was in wrapper "
      "(/usr/lib/python3/dist-packages/torch/distributed/c10d_logger.py:75), called from main "
      "(/job/train.py:51)");
  // The look-alike: a log that begins with a process id.
  EXPECT_FALSE(
      stack_source().recognises("pid: 7\nthread pool of 4\n  File \"a.py\", line 3\n", "f"));
}

TEST(Stacks, ARankThatCreatesAProcessGroup) {
  const std::string creates =
      "Process 7: train.py\n\n"
      "Thread 70 (idle): \"MainThread\"\n"
      "    _create_gloo_process_group (torch/distributed/distributed_c10d.py:757)\n"
      "    _new_group_with_tag (torch/distributed/distributed_c10d.py:7270)\n"
      "        ranks: [0, 1]\n"
      "    new_group (torch/distributed/distributed_c10d.py:7137)\n"
      "        ranks: [0, 1]\n"
      "    main (train.py:12)\n";
  EXPECT_EQ(notes_of(stack_source(), creates, Rank(0)),
            "rank 0 pid 7 stack @4: its process was in the creation of a process group of ranks "
            "[0, 1], called from main (train.py:12)");
  // A function of the program that has the name.
  EXPECT_EQ(notes_of(stack_source(),
                     "Process 7: train.py\n\nThread 70 (idle): \"MainThread\"\n"
                     "    new_group (groups.py:3)\n",
                     Rank(0)),
            "rank 0 pid 7 stack @4: its process was in new_group (groups.py:3)");
  survives_damage(stack_source(), creates);
}

// The dumps of two processes whose lines a launcher labelled and mixed.
std::string mixed(const std::string& first, const std::string& second) {
  std::string out;
  const auto add = [&](const std::string& line) {
    out += fmt::format("{}{}\n{}{}\n", first, fmt::format(fmt::runtime(line), 103, "step"), second,
                       fmt::format(fmt::runtime(line), 104, "evaluate"));
  };
  for (const char* line :
       {"Process {}: python train.py", "", "Thread {} (idle): \"MainThread\"",
        "    all_reduce (torch/distributed/distributed_c10d.py:2501)", "    {1} (train.py:88)", "",
        "Thread 190 (idle): \"pt_autograd_0\"", "    run (threading.py:953)"})
    add(line);
  return out;
}

TEST(Stacks, LinesMayHaveLabelsAndTimes) {
  const std::string in =
      "stack @7: its process was in all_reduce "
      "(torch/distributed/distributed_c10d.py:2501), called from step "
      "(train.py:88)";
  const std::string and_in =
      "stack @8: its process was in all_reduce "
      "(torch/distributed/distributed_c10d.py:2501), called from evaluate "
      "(train.py:88)";
  const std::string of_ranks = fmt::format("rank 3 pid 103 {}\nrank 4 pid 104 {}", in, and_in);
  EXPECT_EQ(notes_of(stack_source(), mixed("[rank3]: ", "[rank4]: ")), of_ranks);
  EXPECT_EQ(notes_of(stack_source(), mixed("3: ", "4: ")), of_ranks);
  EXPECT_EQ(notes_of(stack_source(), mixed("[3] ", "[4] ")), of_ranks);
  const std::string time = "2025-01-31T12:37:42.149692541Z ";
  EXPECT_EQ(notes_of(stack_source(), mixed(time + "\x1b[32m[rank3]:\x1b[0m ", time + "[rank4]: ")),
            of_ranks);
  const std::string of_hosts =
      fmt::format("some rank pid 103 on w-0 {}\nsome rank pid 104 on w-1 {}", in, and_in);
  EXPECT_EQ(notes_of(stack_source(), mixed("[pod/w-0/pytorch] ", "[pod/w-1/pytorch] ")), of_hosts);
  EXPECT_EQ(notes_of(stack_source(), mixed("w-0  | ", "w-1  | ")), of_hosts);
  EXPECT_EQ(notes_of(stack_source(), mixed("w-0: ", "w-1: ")), of_hosts);
  survives_damage(stack_source(), mixed("w-0  | ", "4: ").substr(0, 200));
}

// Times are not asserted: a search that looks at the rest of the text for each heading takes a
// minute here.
TEST(Stacks, ManyHeadingsTakeNoLonger) {
  std::string lines;
  for (int i = 0; i < 400'000; ++i) lines += fmt::format("w{}: Thread {} (LWP ", i % 2000, i);
  EXPECT_FALSE(stack_source().recognises(lines, "f")) << "nothing follows";
  std::string text;
  for (int i = 0; i < 400'000; ++i)
    text += fmt::format("w{}: Thread {} (idle): \"x\"\nf (a.py:3)\n", i % 2000, i);
  EXPECT_TRUE(stack_source().recognises(text, "f"));
  EXPECT_LE(stack_source().read({text, "f", std::nullopt}).notes.size(), FileEvidence::kMaxNotes);
}

TEST(Stacks, ATracebackIsNoStack) {
  EXPECT_FALSE(stack_source().recognises(
      "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\nKeyError\n", "a"));
}

const std::string kPySpyJson =
    R"([{"pid":103,"thread_id":1,"thread_name":"pt_autograd_0","os_thread_id":190,"active":false,)"
    R"("owns_gil":false,"frames":[{"name":"run","short_filename":"threading.py","line":953}]},)"
    R"({"pid":103,"thread_id":2,"thread_name":"MainThread","os_thread_id":103,"active":false,)"
    R"("owns_gil":true,"frames":[{"name":"wait","filename":"/usr/lib/python3.10/threading.py",)"
    R"("short_filename":"threading.py","line":320},)"
    R"({"name":"train_step","filename":"/app/train.py","short_filename":"train.py","line":88}]}])";

TEST(Stacks, PySpysJsonSaysTheSame) {
  EXPECT_EQ(notes_of(stack_source(), kPySpyJson, Rank(3)),
            "rank 3 pid 103 stack @0: its process was in wait (threading.py:320), called from "
            "train_step (train.py:88)");
}

TEST(Stacks, SurvivesDamage) {
  survives_damage(stack_source(), kPySpyJson);
  survives_damage(stack_source(), kPySpy);
  survives_damage(stack_source(), kGdb);
  survives_damage(stack_source(), kFaulthandler);
  survives_damage(stack_source(), kTorchNpu);
}

}  // namespace
}  // namespace lockstep::trace
