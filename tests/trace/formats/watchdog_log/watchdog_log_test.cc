// Messages of PyTorch's NCCL watchdog.
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"
#include "tests/trace/formats/format_testing.h"
#include "tests/trace/formats/watchdog_log/watchdog_messages.h"
#include "trace/formats/format.h"
#include "trace/load.h"

namespace lockstep::trace {
namespace {

using testing::HasSubstr;

TEST(WatchdogLog, ReadsWhatTheMessagesTell) {
  const auto run = run_of_log(timed_out(3, 12, "ALLREDUCE", 1024, 14, 11) +
                              timed_out(3, 12, "ALLREDUCE", 1024, 14, 11));
  ASSERT_EQ(run.ranks.size(), 1U);
  EXPECT_EQ(run.world_size, 4) << "the highest rank that is named";
  const RankTrace& trace = run.ranks[0];
  EXPECT_EQ(trace.world_size, kNone) << "it does not say how many there are";
  EXPECT_EQ(trace.rank, Rank(3));
  EXPECT_EQ(trace.end, End::hung);
  EXPECT_FALSE(trace.snapshot) << "ten minutes went by: it hangs";
  ASSERT_EQ(trace.calls.size(), 2U) << "the last that completed, and the one that came twice";
  EXPECT_EQ(trace.calls[0].seq, 10U);
  EXPECT_TRUE(trace.calls[0].has(kCompleted));
  const Call& call = trace.calls[1];
  EXPECT_EQ(call.seq, 11U);
  EXPECT_FALSE(call.has(kCompleted));
  EXPECT_EQ(trace.first_seq.at(call.group), 10U);
  EXPECT_EQ(run.tables.str(call.group), "world");
  const Signature& s = run.tables.signatures[call.signature];
  EXPECT_EQ(s.op, Op::all_reduce);
  EXPECT_EQ(s.in_elements, 1024);
  ASSERT_EQ(trace.progress.size(), 1U);
  EXPECT_EQ(trace.progress[0].enqueued, 14U);
  EXPECT_EQ(trace.progress[0].completed, 11U);
  EXPECT_FALSE(trace.progress[0].started);
}

TEST(WatchdogLog, FindsTheRankThatNeverCame) {
  const auto run = run_of_log(timed_out(0, 12, "ALLREDUCE", 64, 14, 11) +
                              timed_out(1, 12, "ALLREDUCE", 64, 14, 11) + told_to_dump(2, 11, 11) +
                              timed_out(3, 12, "ALLREDUCE", 64, 14, 11));
  EXPECT_THAT(judged(run), HasSubstr("world#11 by 2"));
  EXPECT_EQ(run.find(Rank(2))->end, End::hung) << "it is alive";
}

TEST(WatchdogLog, FindsTheRankWhoseDeviceStalls) {
  const auto run = run_of_log(
      timed_out(0, 13, "ALLREDUCE", 64, 14, 12) + timed_out(1, 13, "ALLREDUCE", 64, 14, 12) +
      timed_out(2, 12, "ALLREDUCE", 64, 14, 11) + timed_out(3, 13, "ALLREDUCE", 64, 14, 12));
  ASSERT_EQ(run.ranks.size(), 4U);
  EXPECT_EQ(run.ranks[2].calls.size(), 3U)
      << "its own, the one before, and the one that it had issued after it";
  EXPECT_THAT(judged(run), HasSubstr("by 2"));
}

TEST(WatchdogLog, FindsAnotherOperation) {
  std::string text;
  for (int rank = 0; rank < 4; ++rank) {
    text += timed_out(rank, 7, rank == 1 ? "_ALLGATHER_BASE" : "ALLREDUCE", 64, 7, 6);
  }
  EXPECT_THAT(judged(run_of_log(text)), HasSubstr("op-mismatch world#6 by 1"));
}

TEST(WatchdogLog, FindsAnotherSize) {
  std::string text;
  for (int rank = 0; rank < 4; ++rank) {
    text += timed_out(rank, 7, "ALLREDUCE", rank == 1 ? 32 : 64, 7, 6);
  }
  EXPECT_THAT(judged(run_of_log(text)), HasSubstr("size-mismatch world#6 by 1"));
}

// What --expect-ranks does.
Run load_expecting(const std::string& file, std::int32_t ranks) {
  LoadOptions options;
  options.expect_ranks = ranks;
  Result<Run> run = load_run({file}, options);
  return std::move(*run);
}

// Everybody came, with the same call: nobody is to blame. But the log does not tell how many there
// are, and the watchdog of a rank that never came says nothing.
TEST(WatchdogLog, BlamesNobodyWhereAllAreInOneCall) {
  std::string text;
  for (int rank = 0; rank < 4; ++rank) text += timed_out(rank, 7, "ALLREDUCE", 64, 7, 6);
  EXPECT_EQ(judged(run_of_log(text)), "inconclusive");
  TempDir dir;
  const std::string log = dir.write("job.log", text);
  const auto told = [&](std::int32_t ranks) { return judged(load_expecting(log, ranks)); };
  EXPECT_EQ(told(4), "findings\ndevice-stall world#6 by");
  EXPECT_EQ(told(5), "inconclusive") << "the last one never came";
}

// torch_npu's watchdog, of ranks that use HCCL.
TEST(WatchdogLog, TheWatchdogOfAnotherLibrary) {
  std::string text = timed_out(0, 12, "ALLREDUCE", 64, 14, 11) + told_to_dump(1, 11, 11) +
                     timed_out(2, 12, "ALLREDUCE", 64, 14, 11);
  for (std::size_t at = text.find("NCCL"); at != std::string::npos; at = text.find("NCCL", at))
    text.replace(at, 1, "H");
  const auto run = run_of_log(text);
  EXPECT_EQ(judged(run), "findings\nhost-stall world#11 by 1");
  EXPECT_EQ(run.ranks[0].backend, "hccl");
}

// torch_mlu's, of Cambricon's CNCL.
TEST(WatchdogLog, TheWatchdogOfCncl) {
  std::string text;
  for (const int rank : {0, 2})
    text += fmt::format(
        "[Rank {}] Watchdog caught collective operation timeout: WorkCNCL(SeqNum=7, "
        "c10d::OpType=ALLREDUCE, TensorShape=[8, 4], Timeout(ms)=600000) ran for 600012 "
        "milliseconds before timing out.\n",
        rank);
  const auto run = run_of_log(text);
  ASSERT_EQ(run.ranks.size(), 2U);
  EXPECT_EQ(run.ranks[0].backend, "cncl");
  ASSERT_EQ(run.ranks[0].calls.size(), 2U) << "the last that completed, and the one that timed out";
  EXPECT_EQ(run.tables.op(run.ranks[0].calls[1]), Op::all_reduce);
  EXPECT_EQ(run.ranks[0].calls[1].seq, 6U);
}

TEST(WatchdogLog, OtherSpellingsSayTheSame) {
  const std::string middle =
      "[1] [rank1]:[E321 02:07:08.4 ProcessGroupNCCL.cpp:1664] [PG 1 Rank 0] Exception (either an "
      "error or timeout) detected by watchdog at work: 808, last enqueued NCCL work: 811, last "
      "completed NCCL work: 807.\n";
  const auto run = run_of_log(
      "[rank1]:[E1] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=808, "
      "OpType=_REDUCE_SCATTER_BASE, NumelIn=544997376, NumelOut=68124672, Timeout(ms)=600000) ran "
      "for 600061 milliseconds before timing out.\n" +
      middle +
      "terminate called after throwing an instance of 'c10::DistBackendError'\n  what():  [PG 1 "
      "Rank 0] Process group watchdog thread terminated with exception: [Rank 0] Watchdog caught "
      "collective operation timeout: WorkNCCL(SeqNum=808, OpType=_REDUCE_SCATTER_BASE, "
      "NumelIn=544997376, NumelOut=68124672, Timeout(ms)=600000) ran for 600061 milliseconds "
      "before "
      "timing out.\n");
  ASSERT_EQ(run.ranks.size(), 1U);
  const RankTrace& trace = run.ranks[0];
  EXPECT_EQ(trace.rank, Rank(1)) << "the prefix is the global rank, the bracket the group's";
  ASSERT_EQ(trace.calls.size(), 2U);
  EXPECT_EQ(run.tables.str(trace.calls[1].group), "1");
  EXPECT_EQ(trace.calls[1].seq, 807U);
  const Signature& s = run.tables.signatures[trace.calls[1].signature];
  EXPECT_EQ(s.op, Op::reduce_scatter_tensor);
  EXPECT_EQ(s.out_elements, 68124672);
  EXPECT_EQ(trace.progress[0].enqueued, 811U);
}

// By its counters rank 3 is past the call in which most others wait: their devices may stall, or
// rank 3 called something smaller there. Nobody knows what it called.
TEST(WatchdogLog, MostRanksAreNotAccusedWhereOneIsPastThem) {
  std::string most, few;
  for (int rank = 0; rank < 4; ++rank) {
    most += timed_out(rank, rank == 3 ? 11 : 8, "ALLREDUCE", rank == 3 ? 1 : 64, 11,
                      rank == 3 ? 10 : 7);
    few += timed_out(rank, rank == 3 ? 8 : 9, "ALLREDUCE", 64, 11, rank == 3 ? 7 : 8);
  }
  EXPECT_EQ(judged(run_of_log(most)), "findings\ndevice-stall world#7 by");
  EXPECT_EQ(judged(run_of_log(few)), "findings\ndevice-stall world#7 by 3");
}

// NCCL says of what size the communicators are that the watchdog gives up.
TEST(WatchdogLog, AbortedCommunicatorsTellTheSizeOfTheJob) {
  const std::string text =
      timed_out(0, 7, "ALLREDUCE", 1, 7, 6) + timed_out(1, 7, "ALLREDUCE", 1, 7, 6);
  const auto says = [](const std::string& what) {
    return fmt::format("gpu-3:1234:1301 [1] NCCL INFO {}\n", what);
  };
  const std::string aborted =
      "comm 0x55ed37268f30 rank 1 nranks 4 cudaDev 1 busId 1c000 - Abort "
      "COMPLETE";
  EXPECT_EQ(run_of_log(text + says(aborted)).world_size, 4);
  EXPECT_EQ(run_of_log(text + says("comm 0x55ed37268f30 rank 4 nranks 4 cudaDev 1")).world_size, 2)
      << "no rank of it";
  EXPECT_EQ(run_of_log(text + aborted + "\n").world_size, 2) << "not NCCL's own line";
  EXPECT_EQ(run_of_log(text + says("comm 0x1 rank 0 nranks 2000000000 -")).world_size, 2);
}

// The output of a gather holds every rank's part, so the size of the default group is known.
TEST(WatchdogLog, SizesOfGathersTellTheSizeOfTheJob) {
  const auto gather = [](int out, const std::string& group) {
    return fmt::format(
        "[rank1]:[E] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, "
        "OpType=_ALLGATHER_BASE, NumelIn=100, NumelOut={}, Timeout(ms)=600000) ran for 600096 "
        "milliseconds before timing out.\n[rank1]:[E] [{} Rank 1] Timeout at NCCL work: 7, last "
        "enqueued NCCL work: 7, last completed NCCL work: 6.\n",
        out, group);
  };
  EXPECT_EQ(run_of_log(gather(400, "PG 0")).world_size, 4);
  EXPECT_EQ(run_of_log(gather(450, "PG 0")).world_size, 2) << "no whole number";
  EXPECT_EQ(run_of_log(gather(400, "PG 1")).world_size, 2) << "of another group";
  EXPECT_EQ(run_of_log(gather(400, "PG 0") + timed_out(5, 7, "ALLREDUCE", 1, 7, 6)).world_size, 6)
      << "there are more ranks";
}

// One rank's messages do not show that all others stopped.
TEST(WatchdogLog, FewRanksDoNotShowThatMostStopped) {
  const auto headline = [](const std::string& text) {
    const verify::Report report = verify::verify(run_of_log(text));
    return report.findings.empty() ? "" : report.findings[0].headline;
  };
  const std::string one = timed_out(3, 12, "ALLREDUCE", 64, 12, 11);
  EXPECT_EQ(headline(one), "");
  EXPECT_EQ(headline(one + timed_out(1, 12, "ALLREDUCE", 64, 12, 11)), "") << "half of them";
  EXPECT_THAT(headline(one + timed_out(1, 12, "ALLREDUCE", 64, 12, 11) +
                       timed_out(2, 12, "ALLREDUCE", 64, 12, 11)),
              HasSubstr("rank 0 (no trace) stopped"));
}

// What a rank raises because it lost a peer accuses nobody, also where nothing else is known.
TEST(WatchdogLog, ALostPeerAccusesNobody) {
  const auto ended = [](const std::string& why) {
    return run_of_log(
        "[rank4]:[E] [PG 0 Rank 4] Process group watchdog thread terminated with "
        "exception: " +
        why + "\n" + timed_out(5, 12, "ALLREDUCE", 64, 12, 11, "PG ID 3 PG GUID 3(TP)", 1));
  };
  EXPECT_EQ(judged(ended("NCCL error: remote process exited or there was a network error")),
            "findings\nrank-exception  by");
  EXPECT_EQ(judged(ended("CUDA error: an illegal memory access was encountered")),
            "findings\nrank-exception  by 4");
}

TEST(WatchdogLog, ConsolesMayWrapAndColourMessages) {
  const auto wrapped = [](std::string text) {
    for (const std::string before : {"WorkNCCL", "by watchdog"})
      for (std::size_t at = text.find(before); at != std::string::npos;
           at = text.find(before, at + before.size() + 1))
        text.insert(at, "\n");
    return text;
  };
  const auto old = [&](int rank) {
    return fmt::format(
        "node4 [rank{0}]:[E ProcessGroupNCCL.cpp:629] [Rank {0}] Watchdog caught collective "
        "operation timeout: "
        "WorkNCCL(SeqNum=70, OpType=REDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for "
        "600034 milliseconds before timing out.\nnode4 [rank{0}]:[E ProcessGroupNCCL.cpp:629] [PG "
        "0 (default_pg) "
        "Rank {0}] Exception (either an error or timeout) detected by watchdog at work: 70, last "
        "enqueued NCCL work: 70, last completed NCCL work: 69.\n",
        rank);
  };
  const auto dump_all = [](const trace::Run& of) {
    std::string out;
    for (const RankTrace& trace : of.ranks) out += dump(trace, of.tables);
    return out;
  };
  const std::string text = old(1) + old(2) + old(3);
  ASSERT_TRUE(watchdog_log_format().recognises(wrapped(text)));
  const auto run = run_of_log(wrapped(text));
  ASSERT_EQ(run.ranks.size(), 3U);
  EXPECT_EQ(run.ranks[0].damaged_count, 0U);
  EXPECT_EQ(run.ranks[2].progress.at(0).completed, 69U);
  EXPECT_EQ(dump_all(run), dump_all(run_of_log(text)));
  // Some break lines after so many characters, in a word, too; others drop the blank there.
  for (const int columns : {300, 140, 100, 80, 60}) {
    std::string broken;
    int column = 0;
    for (const char c : text) {
      if (c == '\n') column = 0;
      if (column == columns) broken += '\n';
      if (column == columns) column = 0;
      column += c == '\n' ? 0 : 1;
      broken += c;
    }
    EXPECT_EQ(dump_all(run_of_log(broken)), dump_all(run_of_log(text))) << columns;
  }
  std::string halved = text;
  for (const std::string before : {"Numel", "NCCL work: 70, last c"})
    for (std::size_t at = halved.find(before); at != std::string::npos;
         at = halved.find(before, at + 2 * before.size()))
      halved.insert(at, "\n");
  EXPECT_EQ(dump_all(run_of_log(halved)), dump_all(run_of_log(text)));
  std::string trimmed = wrapped(text);
  for (std::size_t at = trimmed.find(" \n"); at != std::string::npos; at = trimmed.find(" \n"))
    trimmed.erase(at, 1);
  EXPECT_EQ(dump_all(run_of_log(trimmed)), dump_all(run_of_log(text)));
  std::string coloured;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    coloured += "\x1b[31m" + text.substr(at, end - at) + "\x1b[0m\n";
    at = end + 1;
  }
  EXPECT_EQ(dump_all(run_of_log(coloured)), dump_all(run_of_log(text)));
}

TEST(WatchdogLog, ARankThatWroteOtherLinesBelongsToTheJob) {
  const auto timed_out = [](int rank) {
    return fmt::format(
        "[rank{0}]:[E9] [Rank {0}] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=70, OpType=REDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for "
        "600034 milliseconds before timing out.\n",
        rank);
  };
  const std::string text = timed_out(0) + timed_out(1);
  EXPECT_EQ(run_of_log("[rank2]: step 7\n" + text).world_size, 3);
  // That the highest one wrote of it does not show that there are no others.
  EXPECT_EQ(run_of_log("[rank1]: step 7\n" + text).ranks[0].world_size,
            run_of_log(text).ranks[0].world_size);
}

// The log tells the call of rank 2, but only the number of rank 7's: rank 7 waits as well.
TEST(WatchdogLog, ANumberAloneIsACallThatWaits) {
  const std::string number_alone = fmt::format(
      "{}[PG ID 0 PG GUID 0(default_pg) Rank 7] Timeout at NCCL work: 75, last enqueued NCCL work: "
      "75, last completed NCCL work: 74.\n",
      prefix(7));
  const auto run = run_of_log(number_alone + timed_out(2, 72, "ALLREDUCE", 64, 72, 71));
  EXPECT_THAT(judged(run), testing::Not(HasSubstr("host-stall")));
  EXPECT_THAT(judged(run), testing::Not(HasSubstr("by 7")));
  EXPECT_TRUE(watchdog_log_format().recognises(number_alone)) << "the file of rank 7";
  // All of the same call: nobody stopped.
  std::string same;
  for (const int rank : {1, 2, 3})
    same += fmt::format(
        "{}[PG 0 Rank {}] Timeout at NCCL work: 19, last enqueued NCCL work: 19, "
        "last completed NCCL work: 18.\n",
        prefix(rank), rank);
  const verify::Report report =
      verify::verify(run_of_log(same + timed_out(2, 19, "ALLREDUCE", 1, 19, 18)));
  ASSERT_FALSE(report.findings.empty());
  EXPECT_THAT(report.findings[0].headline, HasSubstr("before call 19 of group world (all_reduce"));
  EXPECT_EQ(report.verdict, verify::Verdict::inconclusive);
}

// Rank 1 did not come to the call, as far as the messages tell; but it waits in a send, and for
// whom they do not say.
TEST(WatchdogLog, WhoWaitsInAMessageHasNotStopped) {
  const std::string others =
      timed_out(0, 12, "ALLREDUCE", 8, 12, 11) + timed_out(2, 12, "ALLREDUCE", 8, 12, 11);
  EXPECT_EQ(judged(run_of_log(others + timed_out(1, 3, "SEND", 8, 3, 2))), "inconclusive");
  EXPECT_EQ(judged(run_of_log(others + told_to_dump(1, 11, 11))),
            "findings\nhost-stall world#11 by 1");
}

// Sends and receives are numbered by another counter than collectives.
TEST(WatchdogLog, CountersOfMessagesAreNotTaken) {
  const auto run =
      run_of_log(timed_out(0, 40, "SEND", 8, 41, 39) + timed_out(1, 7, "COALESCED", 8, 9, 6));
  EXPECT_TRUE(run.ranks[0].progress.empty());
  EXPECT_TRUE(run.ranks[1].progress.empty());
  EXPECT_EQ(run.tables.signatures[run.ranks[0].calls[0].signature].op, Op::send);
}

TEST(WatchdogLog, ExceptionsOfOtherRanksAreTheCause) {
  const auto run = run_of_log(timed_out(0, 12, "ALLREDUCE", 64, 12, 11) +
                              "[rank1]: Traceback (most recent call last):\n"
                              "[rank1]:   File \"/app/train.py\", line 12, in <module>\n"
                              "[rank1]:     main()\n"
                              "[rank1]: ValueError: no more batches\n" +
                              timed_out(2, 12, "ALLREDUCE", 64, 12, 11));
  const RankTrace* failed = run.find(Rank(1));
  ASSERT_NE(failed, nullptr);
  EXPECT_EQ(failed->end, End::exception);
  ASSERT_EQ(failed->exceptions.size(), 1U);
  EXPECT_EQ(failed->exceptions[0].what, "ValueError: no more batches");
  EXPECT_THAT(judged(run), HasSubstr("by 1"));
}

TEST(WatchdogLog, CutMessagesAreDamage) {
  const std::string whole = timed_out(0, 12, "ALLREDUCE", 64, 14, 11);
  const auto run = run_of_log(whole + whole.substr(0, 150));
  EXPECT_EQ(run.ranks[0].calls.size(), 2U);
  EXPECT_EQ(run.ranks[0].damaged_count, 1U);
}

TEST(WatchdogLog, NumbersOutOfRangeAreNoCalls) {
  const auto run = run_of_log(
      "[rank0]: [Rank 0] Watchdog caught collective operation timeout: "
      "WorkNCCL(SeqNum=9223372036854775807, OpType=ALLREDUCE, NumelIn=-4, NumelOut=1, "
      "Timeout(ms)=1)"
      " ran for 2 milliseconds\n");
  EXPECT_TRUE(run.ranks[0].calls.empty());
}

TEST(WatchdogLog, RecognisedAtTheEndOfALongLog) {
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += fmt::format("step {} loss 0.5\n", i);
  EXPECT_FALSE(watchdog_log_format().recognises(text));
  EXPECT_TRUE(watchdog_log_format().recognises(text + timed_out(0, 1, "ALLREDUCE", 1, 1, 0)));
}

TEST(WatchdogLog, SurvivesDamage) {
  survives_damage(watchdog_log_format(), timed_out(0, 12, "ALLREDUCE", 64, 14, 11) +
                                             told_to_dump(1, 3, 3) +
                                             "[rank1]: Traceback (most recent call last):\n"
                                             "[rank1]: ValueError: x\n");
}

}  // namespace
}  // namespace lockstep::trace
