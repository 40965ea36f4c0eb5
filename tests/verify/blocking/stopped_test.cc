// What is said first about ranks that stopped: who, where, how long ago, before which call, who
// waits, and what to run next. And: numbers are those of the user's log, one defect is one finding.
#include <cstdint>
#include <map>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"
#include "tests/support/trace_lines.h"
#include "tests/support/trace_text.h"
#include "tests/verify/program.h"
#include "trace/load.h"
#include "verify/verify.h"

namespace lockstep::verify {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

TEST(Stopped, BeforeTheTimeoutOfThoseThatWaitWasOver) {
  const auto waits = [](const std::string& error) {
    return "all_reduce n=4; all_reduce n=4 async open; wait 1 open; raise 1 " + error +
           "; raise RuntimeError: " + error + "; exception";
  };
  const auto headline = [&](const std::string& error) {
    const Report report = verify(program({waits(error), "all_reduce n=4; cut", waits(error)}));
    return report.findings.empty() ? "" : report.findings[0].headline;
  };
  EXPECT_THAT(headline("Timed out waiting 8000ms for recv operation to complete"),
              AllOf(StartsWith("rank 1 stopped "), Not(HasSubstr("died"))));
  EXPECT_THAT(headline("Connection closed by peer"), HasSubstr("rank 1 died"));
}

// Of a trace that just ends nothing shows that its process died, once others explain the wait.
TEST(Stopped, ATraceThatJustEndsIsNoCauseBesideAProvenOne) {
  const std::string past = repeated("all_reduce n=1; all_reduce n=2; all_reduce n=3; ", 2);
  const std::string full = past +
                           "all_reduce n=1; all_reduce n=2 async open; all_reduce n=3 async "
                           "open; wait 7 open; hung";
  const std::string skips = past + "all_reduce n=1; all_reduce n=3 async open; wait 7 open; hung";
  const std::string told = judge({past + "all_reduce n=1; cut", skips, full, full, full});
  EXPECT_THAT(told, AllOf(HasSubstr("missing-collective"), HasSubstr("culprits=1"),
                          Not(HasSubstr("host-stall"))));
  // Its process was killed: that is a fault of its own.
  EXPECT_THAT(judge({past + "all_reduce n=1; killed", skips, full, full, full}),
              AllOf(HasSubstr("culprits=1"), HasSubstr("host-stall")));
}

// Two tensor-parallel groups of two ranks, two data-parallel ones across them: c10d's numbers as
// names, with Megatron's descriptions. Rank 3 stops before the second call of its tensor-parallel
// group; rank 2 waits for it there, rank 1 in a data-parallel call, and rank 0 for rank 2.
//
//   rank 0   tp call 1   tp call 2   dp: waits for rank 2
//   rank 1   tp call 1   tp call 2   dp: waits for rank 3
//   rank 2   tp call 1   tp call 2: waits for rank 3
//   rank 3   tp call 1
class MeshJob {
 public:
  std::string host3 = "node1";
  std::int64_t pid3 = 4711;
  std::int32_t gpu3 = trace::kNone;
  bool dump3 = true;
  std::map<int, std::int64_t> time;  // of the ranks' last calls, in seconds after the first

  trace::Run run() const {
    std::vector<std::string> texts;
    for (int r = 0; r < (dump3 ? 4 : 3); ++r) texts.push_back(text(r));
    trace::Run out = run_from_text(texts);
    for (trace::RankTrace& trace : out.ranks) {
      trace.snapshot = true;
      trace.first_number = 1;
      trace.host = trace.rank.value == 3 ? host3 : "node0";
      if (trace.rank.value == 3) trace.pid = pid3;
      if (trace.rank.value == 3) trace.gpu = gpu3;
    }
    return out;
  }

 private:
  std::string call(int rank, int id, const std::string& group, const std::string& at, bool done,
                   bool last) const {
    const auto late = time.find(rank);
    const std::int64_t seconds =
        1'700'000'000 + (last && late != time.end() ? late->second : std::int64_t{id});
    return issue_line(id, group, "all_reduce",
                      {{"t", seconds * 1'000'000'000},
                       {"in", {{67108864}}},
                       {"dtype", "bfloat16"},
                       {"async", true},
                       {"at", at}}) +
           (done ? event_line("complete", id) : "");
  }
  std::string text(int r) const {
    static const std::string kTensor = "/w/megatron/mappings.py:226";
    static const std::string kData = "/w/megatron/grads.py:160";
    const std::string tp = r < 2 ? "3" : "4";
    const std::string dp = r % 2 == 0 ? "1" : "2";
    std::string out =
        header_line(r, 4, {{"backend", "nccl"}}) +
        group_line(dp, {r % 2, r % 2 + 2}, {{"desc", "DATA_PARALLEL"}}) +
        group_line(tp, {r / 2 * 2, r / 2 * 2 + 1}, {{"desc", "TENSOR_MODEL_PARALLEL"}});
    out += call(r, 0, tp, kTensor, true, r == 3);
    if (r != 3) out += call(r, 1, tp, kTensor, r < 2, r == 2);
    if (r < 2) out += call(r, 2, dp, kData, false, true);
    return out + end_line("hung");
  }
};

// Before its first call, most of a job may wait for a key of the store or load its data.
TEST(Stopped, MostBeforeTheFirstCallDidNotGoOnWithoutIt) {
  EXPECT_EQ(judge({"barrier open; hung", "cut", "cut"}),
            "host-stall error proven culprits=1,2 group=world seq=0\nverdict findings");
  // The look-alike: they went on.
  const std::string others = "group p 1,2; all_reduce g=p n=4; cut";
  EXPECT_THAT(judge({"barrier open; hung", others, others}),
              HasSubstr("extra-collective error proven culprits=0 group=world seq=0"));
}

TEST(Stopped, TheHeadlineSaysWhoWhereAndBeforeWhichCall) {
  MeshJob job;
  job.time = {{3, 0}, {2, 601}};
  const Report report = verify(job.run());
  ASSERT_THAT(report.findings, SizeIs(1));
  const Finding& f = report.findings[0];
  EXPECT_EQ(f.rule, RuleId::host_stall);
  EXPECT_EQ(f.headline,
            "rank 3 (node1) stopped 10 min 1 s ago before call 2 of TENSOR_MODEL_PARALLEL "
            "(mappings.py:226); 3 ranks wait for it");
  EXPECT_EQ(f.message, f.headline);
  EXPECT_EQ(f.next, "ssh node1 py-spy dump --pid 4711");
  EXPECT_THAT(f.waiting, ElementsAre(trace::Rank(2)));
  // The report's keys count from 0; what people read has the dump's number.
  EXPECT_EQ(f.group, "4");
  EXPECT_EQ(f.seq, 1U);
  EXPECT_EQ(f.number, 2U);
  EXPECT_EQ(f.group_label, "TENSOR_MODEL_PARALLEL (ranks 2, 3)");
}

// Rank 1 receives in pipe.py:7 and sends in pipe.py:9. It stops after the first micro-batch.
TEST(Stopped, AStageKeepsBothItsNeighboursWaiting) {
  const Report report =
      verify(program({"send peer=1 n=8 at=pipe.py:9; send peer=1 n=8 at=pipe.py:9 open; hung",
                      "recv peer=0 n=8 at=pipe.py:7; send peer=2 n=8 at=pipe.py:9; hung",
                      "recv peer=1 n=8 at=pipe.py:7; recv peer=1 n=8 at=pipe.py:7 open; hung"}));
  ASSERT_THAT(report.findings, SizeIs(1));
  const Finding& f = report.findings[0];
  EXPECT_THAT(f.culprits, ElementsAre(trace::Rank(1)));
  EXPECT_THAT(f.waiting, ElementsAre(trace::Rank(0), trace::Rank(2)));
  // The line is the culprit's own: where it received the message before.
  EXPECT_THAT(f.headline, HasSubstr("before receiving from rank 0 (pipe.py:7); 2 ranks wait"));
}

TEST(Stopped, EvidenceIsOrderedByDistanceToTheCulprit) {
  const Report report = verify(MeshJob().run());
  std::vector<int> ranks;
  for (const Evidence& e : report.findings.at(0).evidence) ranks.push_back(e.rank.value);
  EXPECT_THAT(ranks, ElementsAre(3, 2, 1, 0));
}

TEST(Stopped, WhatIsNotKnownIsLeftOut) {
  MeshJob job;
  job.host3 = "";
  job.pid3 = trace::kNone;
  Finding f = verify(job.run()).findings.at(0);
  EXPECT_THAT(f.headline, HasSubstr("rank 3 stopped "));
  EXPECT_EQ(f.next, "py-spy dump --pid <PID of rank 3>");
  job.host3 = "$(reboot)";  // a name from a file is never given to a shell
  f = verify(job.run()).findings.at(0);
  EXPECT_THAT(f.headline, Not(HasSubstr("reboot")));
  EXPECT_EQ(f.next, "py-spy dump --pid <PID of rank 3>");
  job.host3 = "node1:1234";  // as PyTorch's debug server names it
  EXPECT_EQ(verify(job.run()).findings.at(0).next, "ssh node1 py-spy dump --pid <PID of rank 3>");
}

TEST(Stopped, TheGpuStandsBesideTheHost) {
  MeshJob job;
  job.gpu3 = 5;
  EXPECT_THAT(verify(job.run()).findings.at(0).headline,
              StartsWith("rank 3 (node1, GPU 5) stopped"));
  job.host3 = "";
  EXPECT_THAT(verify(job.run()).findings.at(0).headline, StartsWith("rank 3 (GPU 5) stopped"));
}

TEST(Stopped, OthersTellWhereARankWithoutADumpRan) {
  MeshJob job;
  job.dump3 = false;
  trace::Run run = job.run();
  run.notes.push_back({.kind = trace::RankNote::Kind::ras,
                       .rank = trace::Rank(3),
                       .pid = 4711,
                       .text = "INCOMPLETE: no data of this process",
                       .location = {},
                       .host = "node1",
                       .gpu = 5});
  const Finding note = verify(run).findings.at(0);
  EXPECT_THAT(note.headline, StartsWith("rank 3 (no trace; node1, GPU 5) stopped"));
  EXPECT_EQ(note.next, "ssh node1 py-spy dump --pid 4711");
}

TEST(Stopped, NeighboursTellTheProbableHostOfARankWithoutADump) {
  const auto rank = [](int r) {
    return header_line(r, 3, {{"backend", "nccl"}}) +
           issue_line(0, "world", "all_reduce", {{"in", {{8}}}}) + end_line("hung");
  };
  trace::Run run = run_from_text({rank(0), rank(2)});
  for (trace::RankTrace& trace : run.ranks) {
    trace.snapshot = true;
    trace.host = "node4";
  }
  Finding note = verify(run).findings.at(0);
  EXPECT_THAT(note.headline, StartsWith("rank 1 (no trace; probably node4) stopped"));
  EXPECT_EQ(note.next, "ssh node4 py-spy dump --pid <PID of rank 1>");
  run.ranks[1].host = "node5";
  note = verify(run).findings.at(0);
  EXPECT_THAT(note.headline, StartsWith("rank 1 (no trace) stopped"));
}

// Gloo's timeout ended rank 0. What it raised shows less than whom it waited for.
TEST(Stopped, WhoGaveUpWaitingForARankWithoutATraceTellsOfIt) {
  const auto report_of = [](const std::string& raised) {
    trace::Run run =
        program({"all_reduce n=4; all_reduce n=8 at=t.py:39 open; raise " + raised + "; exception",
                 "all_reduce n=4; clean"});
    run.ranks.pop_back();
    return verify(run);
  };
  const Report gave_up = report_of("RuntimeError: Timed out waiting 12000ms for recv operation");
  ASSERT_FALSE(gave_up.findings.empty());
  EXPECT_EQ(gave_up.findings[0].rule, RuleId::rank_exception);
  EXPECT_EQ(gave_up.findings[0].headline,
            "rank 1 (no trace) stopped or took another way before call 1 of group world (t.py:39); "
            "1 rank waits for it");
  EXPECT_EQ(gave_up.findings[0].next, "") << "nothing runs any more";
  // A connection that was closed does not show that rank 1 did not come.
  const Report lost = report_of("RuntimeError: Connection closed by peer");
  ASSERT_FALSE(lost.findings.empty());
  EXPECT_THAT(lost.findings[0].headline, testing::Not(HasSubstr("took another way")));
}

TEST(Stopped, ClocksOfTwoMachinesAreNotCompared) {
  MeshJob job;
  trace::Run run = job.run();
  // Since each machine's start: no time of day, and no common zero.
  for (trace::RankTrace& trace : run.ranks)
    for (trace::Event& event : trace.events.own())
      if (event.time != trace::kNoTime) event.time = event.time % 1'000'000'000'000'000;
  EXPECT_THAT(verify(run).findings.at(0).headline,
              HasSubstr("rank 3 (node1) stopped before call 2 of TENSOR_MODEL_PARALLEL "));
}

TEST(Stopped, TheWatchdogTellsHowLong) {
  trace::Run run = MeshJob().run();
  run.notes.push_back({.kind = trace::RankNote::Kind::watchdog,
                       .rank = trace::Rank(2),
                       .text = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2) "
                               "ran for 1800029 milliseconds before timing out.",
                       .location = {}});
  EXPECT_THAT(verify(run).findings.at(0).headline, HasSubstr("stopped 30 min ago before call 2"));
}

TEST(Stopped, ARankWithoutADumpHasTheSameHeadline) {
  MeshJob job;
  job.dump3 = false;
  const Report report = verify(job.run());
  EXPECT_EQ(report.verdict, Verdict::inconclusive);
  ASSERT_FALSE(report.findings.empty());
  const Finding& note = report.findings[0];
  EXPECT_EQ(note.rule, RuleId::missing_rank);
  EXPECT_THAT(note.headline, HasSubstr("rank 3 (no trace) stopped"));
  EXPECT_THAT(note.headline, HasSubstr("before call 2 of TENSOR_MODEL_PARALLEL (mappings.py:226); "
                                       "3 ranks wait for it"));
  EXPECT_EQ(note.next, "py-spy dump --pid <PID of rank 3>");
  EXPECT_THAT(note.waiting, ElementsAre(trace::Rank(2)));
}

TEST(Stopped, APipelineStageWithoutADumpHasTheSameHeadline) {
  // Four stages, of which stage 2 left nothing: stage 1 sends to it, stage 3 receives from it, and
  // stage 0 waits for stage 1.
  const auto stage = [](int rank, const std::string& op, int peer, const std::string& at) {
    return header_line(rank, 4, {{"backend", "nccl"}}) +
           group_line("7", {0, 1, 2, 3}, {{"desc", "PIPELINE_PARALLEL"}}) +
           issue_line(0, "7", op, {{"peer", peer}, {"in", {{64}}}, {"at", at}}) + end_line("hung");
  };
  trace::Run run =
      run_from_text({stage(0, "recv", 1, "p2p.py:230"), stage(1, "send", 2, "p2p.py:214"),
                     stage(3, "recv", 2, "p2p.py:205")});
  for (trace::RankTrace& trace : run.ranks) trace.snapshot = true;
  const Report report = verify(run);
  EXPECT_EQ(report.verdict, Verdict::inconclusive);
  ASSERT_FALSE(report.findings.empty());
  const Finding& note = report.findings[0];
  EXPECT_EQ(note.rule, RuleId::missing_rank);
  EXPECT_EQ(note.headline,
            "rank 2 (no trace) stopped before receiving from rank 1 (p2p.py:214); 3 ranks wait for "
            "it");
  EXPECT_EQ(note.next, "py-spy dump --pid <PID of rank 2>");
  EXPECT_THAT(note.waiting, ElementsAre(trace::Rank(1), trace::Rank(3)));
  EXPECT_EQ(note.group_label, "PIPELINE_PARALLEL");
}

TEST(Stopped, TheFirstCallThatTheCulpritLacksIsNamed) {
  // Rank 0 issues three calls and waits for the last one; rank 1 lacks the last two.
  const auto issue = [](int id) {
    return issue_line(id, "world", "all_reduce",
                      {{"async", true}, {"at", fmt::format("a.py:{}", id)}});
  };
  const Report report = verify(run_from_text({header_line(0, 2) + issue(0) + issue(1) + issue(2) +
                                                  event_line("wait", 2) + end_line("hung"),
                                              header_line(1, 2) + issue(0) + end_line("hung")}));
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].seq, 1U);
  EXPECT_THAT(report.findings[0].headline, HasSubstr("before call 1 of group world (a.py:1)"));
}

// A debugger would hang as well.
TEST(Stopped, InTheKernelIsLookedAtThroughTheKernel) {
  const std::string waits = "all_reduce n=4; all_reduce n=4 open; hung";
  trace::Run run = program({waits, "all_reduce n=4; hung", waits});
  const auto next = [&](trace::RankNote::Says says) {
    run.notes = {{.kind = trace::RankNote::Kind::stack,
                  .rank = trace::Rank(1),
                  .pid = 71,
                  .text = "blocked in the kernel",
                  .says = says,
                  .content = "nfs_wait [nfs]"}};
    const Report report = verify(run);
    return report.findings.empty()
               ? ""
               : fmt::format("{} | {}", report.findings[0].next, report.findings[0].fix);
  };
  EXPECT_THAT(next(trace::RankNote::Says::in_the_kernel),
              AllOf(StartsWith("sudo cat /proc/71/stack | "), HasSubstr("a file system")));
  EXPECT_THAT(next(trace::RankNote::Says::where_it_was), StartsWith("py-spy dump"));
}

TEST(Stopped, OneDefectInManyGroupsIsOneFinding) {
  // In every data-parallel group the second member reduces one element too many, at one line.
  std::vector<std::string> texts;
  for (int r = 0; r < 8; ++r) {
    const std::string group = std::to_string(1 + r % 4);
    texts.push_back(
        header_line(r, 8) + group_line(group, {r % 4, r % 4 + 4}, {{"desc", "DATA_PARALLEL"}}) +
        issue_line(0, group, "all_reduce", {{"in", {{r < 4 ? 64 : 65}}}, {"at", "grads.py:160"}}) +
        end_line("hung"));
  }
  const Report report = verify(run_from_text(texts));
  ASSERT_THAT(report.findings, SizeIs(1));
  const Finding& f = report.findings[0];
  EXPECT_EQ(f.rule, RuleId::size_mismatch);
  EXPECT_THAT(f.ranks, SizeIs(8));
  ASSERT_THAT(f.also, SizeIs(3));
  EXPECT_EQ(f.also[0].group, "2");
  EXPECT_EQ(f.also[0].group_label, "DATA_PARALLEL (ranks 1, 5)");
  EXPECT_THAT(f.also[0].ranks, ElementsAre(trace::Rank(1), trace::Rank(5)));
  EXPECT_THAT(f.message, HasSubstr("call 0 of DATA_PARALLEL"));
  EXPECT_THAT(f.message, HasSubstr("; the same in 3 more groups like it: ranks 1-3, 5-7"));
}

// Numbers are those that the user sees in the file: in dumps and in the watchdog's log from 1, in
// traces of our own from 0.

TEST(Numbers, OfADumpAreItsCollectiveSeqIds) {
  const TempDir folder;
  for (int r = 0; r < 2; ++r) {
    LineKeys entries = LineKeys::array();
    for (int seq = 317; seq <= (r == 0 ? 318 : 317); ++seq)
      entries.push_back({{"record_id", seq + 1000},
                         {"pg_id", 0},
                         {"process_group", {"7", "TENSOR_PARALLEL"}},
                         {"collective_seq_id", seq},
                         {"p2p_seq_id", 0},
                         {"op_id", 1},
                         {"profiling_name", "nccl:all_reduce"},
                         {"time_created_ns", 1795247719749931269},
                         {"input_sizes", {{8}}},
                         {"input_dtypes", {"Float"}},
                         {"output_sizes", {{8}}},
                         {"output_dtypes", {"Float"}},
                         {"state", seq == 317 ? "completed" : "scheduled"},
                         {"retired", false},
                         {"timeout_ms", 600000},
                         {"is_p2p", false}});
    const LineKeys group = {{"name", "7"}, {"desc", "TENSOR_PARALLEL"}, {"ranks", "[0, 1]"}};
    folder.write(fmt::format("trace_rank_{}", r), json_line({{"version", "2.10"},
                                                             {"pg_config", {{"7", group}}},
                                                             {"pg_status", LineKeys::object()},
                                                             {"entries", entries}}));
  }
  const auto run = trace::load_run({folder.path()});
  ASSERT_TRUE(run) << run.error().str();
  const Report report = verify(*run);
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].number, 318U);
  EXPECT_EQ(report.findings[0].seq, 317U);
  EXPECT_THAT(report.findings[0].headline, HasSubstr("before call 318 of TENSOR_PARALLEL ("));
}

TEST(Numbers, OfTheWatchdogsLogAreItsSeqNums) {
  const TempDir folder;
  std::string log;
  for (int r = 0; r < 2; ++r)
    log += fmt::format(
        "[rank{}]:[E1 ProcessGroupNCCL.cpp:632] [PG ID 0 PG GUID 22(TENSOR_PARALLEL) Rank {}] "
        "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=318, OpType={}, NumelIn=8, "
        "NumelOut=8, Timeout(ms)=600000) ran for 600026 milliseconds before timing out.\n",
        r, r, (r == 0 ? "ALLREDUCE" : "ALLGATHER"));
  folder.write("job.log", log);
  const auto run = trace::load_run({folder.path()});
  ASSERT_TRUE(run) << run.error().str();
  const Report report = verify(*run);
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].number, 318U);
  EXPECT_THAT(report.findings[0].message, HasSubstr("call 318 of TENSOR_PARALLEL"));
}

TEST(Numbers, OfOurOwnTracesCountFromZero) {
  const auto issue = [](int id) { return issue_line(id, "world", "barrier"); };
  const Report report = verify(
      run_from_text({header_line(0, 2) + issue(0) + issue(1) + end_line("hung"),
                     header_line(1, 2) + issue(0) + event_line("complete", 0) + end_line("hung")}));
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].number, report.findings[0].seq);
  EXPECT_THAT(report.findings[0].message, HasSubstr("before call 1 of group world"));
}

}  // namespace
}  // namespace lockstep::verify
