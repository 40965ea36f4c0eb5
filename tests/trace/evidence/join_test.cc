// A folder with all that is left of a job: one recording is the calls, the rest is evidence.
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"
#include "tests/support/trace_lines.h"
#include "trace/formats/ring/writer.h"
#include "trace/load.h"
#include "verify/rules/rules.h"
#include "verify/verify.h"

namespace lockstep::trace {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// A rank's own trace of `calls` all-reduces, the last of which is open where it hangs.
std::string trace_of(int rank, int world, int calls, const std::string& end) {
  const bool open = end == "hung";
  std::string out = header_line(rank, static_cast<std::size_t>(world),
                                {{"backend", "nccl"}, {"pid", 100 + rank}});
  int t = 0;
  for (int id = 0; id < calls; ++id) {
    out += issue_line(id, "world", "all_reduce",
                      {{"in", {{8}}}, {"t", t++}, {"async", true}, {"step", id}});
    if (open && id + 1 == calls) break;
    out += event_line("complete", id, {{"t", t++}});
  }
  if (end != "cut") out += end_line(end);
  return out;
}

const std::string kJoinedTraceback =
    "Traceback (most recent call last):\n  File \"train.py\", line 12, in <module>\n";
const std::string kOom =
    kJoinedTraceback + "torch.OutOfMemoryError: CUDA out of memory. Tried 2 GiB\n";
const std::string kLost =
    kJoinedTraceback +
    "torch.distributed.DistBackendError: NCCL communicator was aborted on rank 0.\n";

std::string timeout_of(int rank, int completed) {
  const std::string prefix = fmt::format("[rank{}]:[E709 ProcessGroupNCCL.cpp:632] ", rank);
  return fmt::format(
      "{}[Rank {}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={}, "
      "OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600001 milliseconds "
      "before timing out.\n{}[PG ID 0 PG GUID 0(default_pg) Rank {}] failure detected by watchdog "
      "at work sequence id: {} PG status: last enqueued work: {}, last completed work: {}\n",
      prefix, rank, completed + 1, prefix, rank, completed + 1, completed + 1, completed);
}

class JoinTest : public testing::Test {
 protected:
  trace::Run load() {
    LoadOptions options;
    options.evidence = true;
    Result<trace::Run> run = load_run({dir_.path()}, options);
    EXPECT_TRUE(run) << (run ? "" : run.error().str());
    return run ? std::move(*run) : trace::Run{};
  }
  // Verdict, and a line for each error or warning: "host-stall by 3".
  static std::string judged(const trace::Run& run) {
    const verify::Report report = verify::verify(run);
    std::string out(verify::to_string(report.verdict));
    for (const verify::Finding& f : report.findings) {
      if (f.severity == verify::Severity::note) continue;
      out += "\n" + std::string(verify::rule(f.rule).name) + " by";
      for (const Rank rank : f.culprits) out += fmt::format(" {}", rank.value);
    }
    return out;
  }

  TempDir dir_;
};

TEST_F(JoinTest, TheRicherRecordingIsTheCalls) {
  for (int r = 0; r < 2; ++r) {
    dir_.write(fmt::format("rank_{}.trace.jsonl", r), trace_of(r, 2, 3, "clean"));
  }
  dir_.write("job.log", timeout_of(0, 2) + timeout_of(1, 2));
  const trace::Run run = load();
  EXPECT_EQ(run.ranks.size(), 2U);
  EXPECT_EQ(run.ranks[0].calls.size(), 3U);
  EXPECT_EQ(run.sources, "calls: 2 files of text; evidence: 1 file of watchdog-log");
  EXPECT_EQ(verify::verify(run).sources, run.sources);
}

// Ring files count as the text of the same recorder, and are called what they are.
TEST_F(JoinTest, RingFilesAreCalledThat) {
  RingWriter::Options options;
  options.path = dir_.file("rank_0.ring");
  options.rank = Rank(0);
  options.world_size = 2;
  options.capacity = 16;
  options.table_bytes = 4096;
  (*RingWriter::create(options))->finish(End::clean);
  dir_.write("rank_1.trace.jsonl", trace_of(1, 2, 3, "clean"));
  dir_.write("job.log", timeout_of(1, 2));
  EXPECT_THAT(load().sources, HasSubstr("calls: 1 file of ring and 1 file of text; evidence: "));
}

// The headline of a hang names host, process and GPU, which traces of most forms lack.
TEST_F(JoinTest, OtherSourcesShowWhereARankRan) {
  for (int r = 0; r < 2; ++r)
    dir_.write(fmt::format("rank_{}.trace.jsonl", r), trace_of(r, 2, 3, "clean"));
  std::string log;
  for (int r = 0; r < 2; ++r)
    log += fmt::format(
        "node{}:41{}:500 [0] NCCL INFO ncclCommInitRank comm 0x5{} rank {} nranks 2 cudaDev 0 "
        "nvmlDev {} busId 1000 commId 0x8b - Init COMPLETE\n",
        r, r, r, r, r + 4);
  dir_.write("nccl.log", log);
  const trace::Run run = load();
  EXPECT_EQ(run.ranks[1].host, "node1");
  EXPECT_EQ(run.ranks[1].pid, 101);  // what the trace itself says stays
  EXPECT_EQ(run.ranks[1].gpu, 5);
}

TEST_F(JoinTest, OneLeftOverTraceDoesNotOutweighTheLogOfAll) {
  dir_.write("rank_0.trace.jsonl", trace_of(0, 4, 3, "cut"));
  std::string log;
  for (int r = 0; r < 4; ++r) log += timeout_of(r, 2);
  dir_.write("job.log", log);
  EXPECT_THAT(load().sources, HasSubstr("calls: 1 file of watchdog-log; evidence: 1 file of text"));
}

// Of a log alone the report says where in the program a rank raised its exception.
TEST_F(JoinTest, ALogShowsWhereARankRaisedItsException) {
  const auto message = [&](const std::vector<std::string>& files, const std::string& raised) {
    std::string log = "[rank1]: Traceback (most recent call last):\n";
    int line = 10;
    for (const std::string& file : files)
      log += fmt::format("[rank1]:   File \"{}\", line {}, in f\n[rank1]:     f()\n", file, ++line);
    dir_.write("job.log", log + "[rank1]: " + raised + "\n");
    const verify::Report report = verify::verify(load());
    return report.findings.empty() ? "" : report.findings[0].message;
  };
  const std::string torch = "/v/lib/python3.11/site-packages/torch/nn/modules/module.py";
  EXPECT_EQ(
      message({"/home/u/train.py", "/home/u/model.py", torch}, "KeyError: 'image'"),
      "rank 1 raised an exception: KeyError: 'image' (/home/u/model.py:12); no trace of it was "
      "given");
  EXPECT_THAT(message({torch}, "KeyError: 'image'"), HasSubstr("module.py:11)"));
  EXPECT_EQ(message({}, "KeyError: 'image'"),
            "rank 1 raised an exception: KeyError: 'image'; no trace of it was given");
}

TEST_F(JoinTest, TheLogShowsHowARankEnded) {
  for (int r = 0; r < 4; ++r) {
    dir_.write(fmt::format("rank_{}.trace.jsonl", r),
               r == 3 ? trace_of(r, 4, 2, "cut") : trace_of(r, 4, 3, "hung"));
  }
  dir_.write("rank_3.log", "epoch 1\n" + kOom);
  const trace::Run run = load();
  EXPECT_EQ(run.ranks[3].end, End::exception);
  const verify::Report report = verify::verify(run);
  EXPECT_EQ(judged(run), "findings\nrank-exception by 3");
  EXPECT_THAT(report.findings[0].message, HasSubstr("CUDA out of memory"));
  ASSERT_THAT(report.findings[0].evidence, Not(IsEmpty()));
  EXPECT_THAT(report.findings[0].evidence.back().text, HasSubstr("out of memory: torch.OutOf"));
  EXPECT_THAT(report.findings[0].evidence.back().text, HasSubstr("rank_3.log:4)"));
}

// That all ranks read the same is not why one of them ended.
TEST_F(JoinTest, WhatRanksReadExplainsNoEnd) {
  for (int r = 0; r < 2; ++r) {
    std::string text = header_line(r, 2, {{"backend", "gloo"}});
    for (int id = 0; id < 4; ++id) {
      text += json_line({{"ev", "data"}, {"n", id}, {"indices", {2 * id, 2 * id + 1}}}) +
              issue_line(id, "world", "all_reduce", {{"in", {{8}}}, {"step", id}}) +
              event_line("complete", id);
    }
    dir_.write(fmt::format("rank_{}.trace.jsonl", r), text + (r == 0 ? end_line("hung") : ""));
  }
  dir_.write("rank_1.log", kOom);
  const trace::Run run = load();
  EXPECT_EQ(judged(run), "findings\nrank-exception by 1\nno-sharding by");
  const verify::Report report = verify::verify(run);
  for (const verify::Evidence& evidence : report.findings.back().evidence)
    EXPECT_THAT(evidence.text, Not(HasSubstr("out of memory")));
}

TEST_F(JoinTest, ARankWithoutATraceIsNamedByItsLog) {
  for (int r = 0; r < 2; ++r) {
    dir_.write(fmt::format("rank_{}.trace.jsonl", r), trace_of(r, 3, 3, "clean"));
  }
  dir_.write("rank_2.log", kOom);
  EXPECT_EQ(judged(load()), "findings\nrank-exception by 2");
}

TEST_F(JoinTest, ThoseWhoLostThePeerAreNotAccused) {
  dir_.write("rank_0.log", kLost);
  dir_.write("rank_1.log", kLost);
  dir_.write("rank_2.log", kOom);
  const trace::Run run = load();
  EXPECT_EQ(run.world_size, 3);
  EXPECT_EQ(judged(run), "findings\nrank-exception by 2");
  EXPECT_THAT(run.sources, HasSubstr("no recording of calls"));
}

TEST_F(JoinTest, LogsOfVictimsAloneAreInconclusive) {
  dir_.write("rank_0.log", kLost);
  dir_.write("rank_1.log", kLost);
  EXPECT_EQ(judged(load()), "inconclusive");
}

TEST_F(JoinTest, ACaughtExceptionOfAHealthyJobChangesNothing) {
  for (int r = 0; r < 2; ++r) {
    dir_.write(fmt::format("rank_{}.trace.jsonl", r), trace_of(r, 2, 3, "clean"));
    dir_.write(fmt::format("rank_{}.log", r), kOom + "smaller batch\nstep 2\ndone\n");
  }
  EXPECT_EQ(judged(load()), "clean");
}

TEST_F(JoinTest, AnEndThatTheTraceContradictsIsANote) {
  for (int r = 0; r < 2; ++r) {
    dir_.write(fmt::format("rank_{}.trace.jsonl", r), trace_of(r, 2, 3, "clean"));
  }
  dir_.write("rank_1.log", kOom);
  const trace::Run run = load();
  EXPECT_EQ(judged(run), "clean");
  const verify::Report report = verify::verify(run);
  ASSERT_EQ(report.findings.size(), 1U);
  EXPECT_EQ(report.findings[0].rule, verify::RuleId::job_evidence);
  EXPECT_THAT(report.findings[0].message, HasSubstr("its trace ends in order, but"));
}

TEST_F(JoinTest, TheKernelsLogFindsItsRankByTheProcess) {
  for (int r = 0; r < 3; ++r) {
    dir_.write(fmt::format("rank_{}.trace.jsonl", r),
               r == 1 ? trace_of(r, 3, 2, "cut") : trace_of(r, 3, 3, "hung"));
  }
  dir_.write("dmesg.txt", "[1.0] Out of memory: Killed process 101 (python) total-vm:1kB\n");
  EXPECT_EQ(judged(load()), "findings\nrank-exception by 1");
}

// A pod's name is its host's, and where each rank has a host, one that is alone there is known.
TEST_F(JoinTest, KubernetesNamesTheRankThatIsAloneInAPod) {
  const auto write = [&](const std::string& host_of_2) {
    for (int r = 0; r < 3; ++r) {
      std::string text = r == 1 ? trace_of(r, 3, 2, "cut") : trace_of(r, 3, 3, "hung");
      const std::string host = r == 2 ? host_of_2 : fmt::format("worker-{}", r);
      text.insert(text.find("\"pid\""), fmt::format("\"host\":\"{}\",", host));
      dir_.write(fmt::format("rank_{}.trace.jsonl", r), text);
    }
  };
  dir_.write("pods.txt",
             "NAME       READY   STATUS      RESTARTS   AGE\n"
             "worker-1   0/1     OOMKilled   1          4h\n");
  write("worker-2");
  EXPECT_EQ(judged(load()), "findings\nrank-exception by 1");
  write("worker-1");
  EXPECT_EQ(judged(load()), "findings\nhost-stall by 1") << "the pod has two ranks";
}

// Recordings without any end mark: that a log tells the end of one rank does not show that the
// others, which have none either, died. Ranks 0 and 1 wait for rank 2, and rank 3 for rank 0.
TEST_F(JoinTest, AnEndThatALogTellsMakesNoOthersGone) {
  const auto trace = [](int rank, const std::vector<std::string>& groups) {
    std::string out = header_line(rank, 4, {{"backend", "nccl"}, {"pid", 100 + rank}}) +
                      "{\"group\":\"a\",\"ranks\":[0,1,2]}\n{\"group\":\"b\",\"ranks\":[0,3]}\n";
    int id = 0;
    for (const std::string& group : groups) {
      out += issue_line(id, group, "all_reduce", {{"in", {{8}}}, {"t", id}, {"async", true}});
      ++id;
    }
    return out;
  };
  dir_.write("rank_0.trace.jsonl", trace(0, {"a", "b", "a"}));
  dir_.write("rank_1.trace.jsonl", trace(1, {"a", "a"}));
  dir_.write("rank_2.trace.jsonl", trace(2, {"a", "a"}));
  dir_.write("rank_3.trace.jsonl", trace(3, {"b", "b"}));
  const std::string without = judged(load());
  EXPECT_EQ(without, "inconclusive");
  dir_.write("dmesg.txt", "NVRM: Xid (PCI:0000:3b:00): 79, pid=102, GPU has fallen off the bus.\n");
  EXPECT_THAT(judged(load()), Not(HasSubstr("by 0")));
}

// Programs without times, which all ranks went through alike; but a log says that a call timed out.
TEST_F(JoinTest, WhereACallTimedOutNothingIsClean) {
  for (int r = 0; r < 2; ++r) {
    dir_.write(fmt::format("rank_{}.trace.jsonl", r),
               header_line(r, 2, {{"backend", "nccl"}}) +
                   issue_line(0, "world", "all_reduce", {{"in", {{8}}}, {"async", true}}));
  }
  EXPECT_EQ(judged(load()), "clean");
  dir_.write("job.log", timeout_of(0, 0));
  EXPECT_EQ(judged(load()), "inconclusive");
}

// An earlier attempt's summary, of other processes.
TEST_F(JoinTest, WhatAnotherProcessOfTheRankSaidIsNotMixedIn) {
  for (int r = 0; r < 3; ++r) {
    dir_.write(fmt::format("rank_{}.trace.jsonl", r),
               r == 1 ? trace_of(r, 3, 2, "cut") : trace_of(r, 3, 3, "hung"));
  }
  const std::string without = judged(load());
  EXPECT_EQ(without, "findings\nhost-stall by 1");
  dir_.write("torchrun.log",
             "Root Cause (first observed failure):\n[0]:\n  rank      : 2 (local_rank: 2)\n"
             "  exitcode  : -11 (pid: 902)\n");
  const trace::Run run = load();
  EXPECT_EQ(judged(run), without);
  ASSERT_EQ(run.notes.size(), 1U);
  EXPECT_THAT(run.notes[0].text, HasSubstr("of process 902, and its trace is of process 102, so "
                                           "that it is of another attempt: crashed: the first"));
}

TEST_F(JoinTest, TorchrunsFoldersSayWhoseTheirLogsAre) {
  for (int r = 0; r < 2; ++r) {
    const std::string folder = fmt::format("attempt_0/{}", r);
    std::filesystem::create_directories(dir_.file(folder));
    dir_.write(folder + "/stderr.log", r == 1 ? kOom : kLost);
  }
  EXPECT_EQ(judged(load()), "findings\nrank-exception by 1");
}

TEST_F(JoinTest, ExpectedRanksThatLeftNothingAreMissing) {
  for (int r = 0; r < 2; ++r) {
    dir_.write(fmt::format("rank_{}.trace.jsonl", r), trace_of(r, 2, 3, "clean"));
  }
  LoadOptions options;
  options.expect_ranks = 4;
  const Result<trace::Run> run = load_run({dir_.path()}, options);
  ASSERT_TRUE(run);
  EXPECT_EQ(verify::verify(*run).ranks_missing, (std::vector<Rank>{Rank(2), Rank(3)}));
  EXPECT_EQ(judged(*run), "inconclusive");
}

TEST_F(JoinTest, WithoutEvidenceSeveralFormatsAreAnError) {
  dir_.write("rank_0.trace.jsonl", trace_of(0, 1, 3, "clean"));
  dir_.write("job.log", timeout_of(0, 2));
  const Result<trace::Run> run = load_run({dir_.path()});
  ASSERT_FALSE(run);
  EXPECT_THAT(run.error().message, HasSubstr("of 2 formats"));
}

TEST_F(JoinTest, WhatAMismatchBringsAboutIsNoCauseOfItsOwn) {
  for (int r = 0; r < 3; ++r) {
    std::string trace = trace_of(r, 3, 2, "killed");
    if (r == 1) {
      const std::size_t last = trace.rfind("[[8]]");
      trace.replace(last, 5, "[[9]]");
    }
    dir_.write(fmt::format("rank_{}.trace.jsonl", r), trace);
    dir_.write(fmt::format("rank_{}.log", r),
               "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n"
               "  what():  op.preamble.length <= op.nbytes\n");
  }
  EXPECT_EQ(judged(load()), "findings\nsize-mismatch by 1");
}

// Of two ranks whose sizes differ, Gloo ends the one that gets more than it expects.
TEST_F(JoinTest, WhomGlooEndsForAnotherSizeIsNotToBlame) {
  dir_.write("rank_0.log",
             "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n"
             "  what():  [enforce fail at gloo/transport/tcp/pair.cc:464] op.preamble.length <= "
             "op.nbytes. 16 vs 12. Received data size doesn't match expected size. Is there a "
             "distributed collective mismatch in your code?\n");
  const trace::Run run = load();
  const verify::Report report = verify::verify(run);
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].rule, verify::RuleId::rank_exception);
  EXPECT_TRUE(report.findings[0].culprits.empty());
  EXPECT_THAT(report.findings[0].fix, HasSubstr("exchange the sizes first"));
}

TEST_F(JoinTest, DetailMessagesOutweighWhatWasIssuedBefore) {
  const auto fingerprint = [](const std::string& op) {
    return "CollectiveFingerPrint(SequenceNumber=4, OpType=" + op +
           ", TensorShape=[8], TensorDtypes=Float)";
  };
  for (int r = 0; r < 3; ++r) {
    const int other = r == 2 ? 0 : 2;
    const std::string own = fingerprint(r == 2 ? "BROADCAST" : "ALLREDUCE");
    const std::string theirs = fingerprint(r == 2 ? "ALLREDUCE" : "BROADCAST");
    dir_.write(fmt::format("rank_{}.log", r),
               fmt::format("{}RuntimeError: Detected mismatch between collectives on ranks. Rank "
                           "{} is running collective: {}, but Rank {} is running collective: {}\n",
                           kJoinedTraceback, r, own, other, theirs));
  }
  dir_.write("job.out", timeout_of(0, 2) + timeout_of(1, 2) + timeout_of(2, 2));
  const trace::Run run = load();
  EXPECT_THAT(run.sources, HasSubstr("calls: 3 files of detail-log"));
  EXPECT_EQ(judged(run), "findings\nop-mismatch by 2");
}

// Any source of a job that is recorded in several ways may be missing: the answer gets weaker, but
// never becomes another one.
TEST_F(JoinTest, TakingSourcesAwayNeverMakesTheAnswerWrong) {
  std::vector<std::pair<std::string, std::string>> files;
  for (int r = 0; r < 4; ++r) {
    const std::string rank = std::to_string(r);
    files.emplace_back("rank_" + rank + ".trace.jsonl",
                       r == 2 ? trace_of(r, 4, 2, "cut") : trace_of(r, 4, 3, "hung"));
    files.emplace_back("rank_" + rank + ".log", r == 2 ? kOom : timeout_of(r, 2) + kLost);
  }
  files.emplace_back("dmesg.txt", "[1.0] Out of memory: Killed process 102 (python)\n");
  for (std::size_t mask = 1; mask < (std::size_t{1} << files.size()); ++mask) {
    std::string names;
    for (std::size_t f = 0; f < files.size(); ++f) {
      const std::string path = dir_.file(files[f].first);
      std::filesystem::remove(path);
      if ((mask >> f & 1U) == 0) continue;
      dir_.write(files[f].first, files[f].second);
      names += " " + files[f].first;
    }
    LoadOptions options;
    options.evidence = true;
    options.expect_ranks = 4;
    const Result<trace::Run> run = load_run({dir_.path()}, options);
    ASSERT_TRUE(run) << names << ": " << (run ? "" : run.error().str());
    const verify::Report report = verify::verify(*run);
    EXPECT_NE(report.verdict, verify::Verdict::clean) << names;
    for (const verify::Finding& f : report.findings) {
      if (f.severity != verify::Severity::error) continue;
      for (const Rank rank : f.culprits) {
        EXPECT_EQ(rank, Rank(2)) << names << ": " << verify::rule(f.rule).name << ": " << f.message;
      }
    }
  }
}

// What RAS says of eight ranks: rank 7 launched `own` calls, the others `most`.
std::string ras_says(int own, int most) {
  return fmt::format(
      "Job summary\n===========\n\nCommunicators... (0.00s)\n=============\n\n"
      "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n"
      "    #  in group  per comm  per node  per comm  in group\n"
      "    0         1         2         4         8         8   RUNNING  MISMATCH\n\n"
      "#0-0 (78db921d1c117b4a) MISMATCH\n"
      "  Communicator ranks have different AllReduce operation counts\n"
      "  7 ranks have launched up to operation {}\n"
      "  Rank 7 has launched up to operation {} -- GPU 3 managed by process 165 on node n1\n",
      most, own);
}

TEST_F(JoinTest, RasAndTheWatchdogTellTogetherWhoDidNotCome) {
  std::string log;
  for (int r = 0; r < 7; ++r) log += timeout_of(r, 60);  // in call 61, the last queued
  dir_.write("job.log", log);
  EXPECT_EQ(judged(load()), "inconclusive") << "there may be no rank 7";
  dir_.write("ras.txt", ras_says(60, 61));
  EXPECT_EQ(judged(load()), "findings\nhost-stall by 7");
  // Both in one file.
  std::filesystem::remove(dir_.path() + "/ras.txt");
  dir_.write("job.log", log + ras_says(60, 61));
  EXPECT_EQ(judged(load()), "findings\nhost-stall by 7");
}

// It asked before the ranks waited, or counts another operation: nothing shows when.
TEST_F(JoinTest, RasThatAskedAtAnotherTimeAccusesNobody) {
  std::string log;
  for (int r = 0; r < 7; ++r) log += timeout_of(r, 60);
  dir_.write("job.log", log);
  dir_.write("ras.txt", ras_says(50, 54));
  EXPECT_EQ(judged(load()), "inconclusive");
  dir_.write("ras.txt", ras_says(61, 62));
  EXPECT_EQ(judged(load()), "inconclusive") << "it launched the call as well";
}

TEST_F(JoinTest, AFileMayHoldSeveralKindsOfEvidence) {
  dir_.write("pasted.txt", timeout_of(1, 3) +
                               "\nProcess 104: python train.py\n"
                               "Thread 104 (idle): \"MainThread\"\n"
                               "    save (train.py:88)\n" +
                               ras_says(60, 61));
  std::string kinds;
  for (const RankNote& note : load().notes) kinds += std::string(to_string(note.kind)) + "; ";
  EXPECT_THAT(kinds, HasSubstr("watchdog; "));
  EXPECT_THAT(kinds, HasSubstr("stack; "));
  EXPECT_THAT(kinds, HasSubstr("RAS; "));
}

}  // namespace
}  // namespace lockstep::trace
