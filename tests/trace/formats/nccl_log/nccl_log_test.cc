// NCCL's logs.
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trace/formats/format_testing.h"
#include "trace/formats/format.h"

namespace lockstep::trace {
namespace {

using testing::HasSubstr;

// The log of one process, line by line as NCCL writes it.
class Log {
 public:
  Log(int process, std::string prefix = "") : process_(process), prefix_(std::move(prefix)) {
    line("NCCL version 2.21.5+cuda12.4");
  }

  Log& init(const std::string& comm, int rank, int nranks, const std::string& id) {
    const std::string what = fmt::format(
        "ncclCommInitRank comm {} rank {} nranks {} cudaDev {} nvmlDev {} busId 1000 commId {}",
        comm, rank, nranks, process_, process_ + 6, id);
    return line(what + " - Init START").line(what + " - Init COMPLETE");
  }
  Log& split(const std::string& comm, int rank, int nranks, const std::string& parent, int color) {
    return line(
        fmt::format("ncclCommSplit comm {} rank {} nranks {} cudaDev {} nvmlDev 0 busId 1000 "
                    "parent {} splitCount 1 color {} key 0 - Init COMPLETE",
                    comm, rank, nranks, process_, parent, color));
  }
  Log& call(const std::string& op, int count, const std::string& comm, int root = 0,
            int datatype = 7, int redop = 0) {
    std::ostringstream hex;
    hex << std::hex << op_count_++;
    return line(
        fmt::format("{}: opCount {} sendbuff 0x7f0000000000 recvbuff 0x7f0000001000 count {} "
                    "datatype {} op {} root {} comm {} [nranks=2] stream 0x55f1de727ae0",
                    op, hex.str(), count, datatype, redop, root, comm));
  }
  Log& from_count(int op_count) {
    op_count_ = op_count;
    return *this;
  }
  Log& close(const std::string& comm) {
    return line("comm " + comm + " rank 0 nranks 2 cudaDev 0 busId 1000 - Destroy COMPLETE");
  }
  Log& line(const std::string& message) {
    text_ += fmt::format("{}node7:{}:{} [{}] NCCL INFO {}\n", prefix_, 4000 + process_,
                         5000 + process_, process_, message);
    return *this;
  }
  Log& raw(const std::string& text) {
    text_ += text;
    return *this;
  }
  const std::string& str() const { return text_; }
  NamedFile file() const { return {fmt::format("nccl.node7.{}", 4000 + process_), text_}; }

 private:
  int process_;
  std::string prefix_, text_;
  int op_count_ = 0;
};

std::string pointer(int process, int n = 0) {
  std::ostringstream out;
  out << "0x55f1de" << std::hex << 4096 * (process + 1) + n;
  return out.str();
}

Log job(int process, int calls, int ranks = 2) {
  Log log(process);
  log.init(pointer(process), process, ranks, "0x8b5d6fa8");
  for (int i = 0; i < calls; ++i) log.call("AllReduce", 100 + i, pointer(process));
  return log;
}

TEST(NcclLog, HealthyProcessesAreClean) {
  Log a = job(0, 4), b = job(1, 4);
  a.close(pointer(0));
  b.close(pointer(1));
  const auto run = run_of(nccl_log_format(), {a.file(), b.file()});
  EXPECT_EQ(judged(run), "clean");
  ASSERT_EQ(run.ranks.size(), 2U);
  EXPECT_EQ(run.world_size, 2);
  const RankTrace& trace = run.ranks[1];
  EXPECT_EQ(trace.host, "node7");
  EXPECT_EQ(trace.pid, 4001);
  EXPECT_EQ(trace.gpu, 7) << "NVML's index, not CUDA's";
  EXPECT_EQ(trace.end, End::clean);
  ASSERT_EQ(trace.calls.size(), 4U);
  EXPECT_EQ(run.tables.str(trace.calls[0].group), "world");
  const Signature& s = run.tables.signatures[trace.calls[3].signature];
  EXPECT_EQ(s.op, Op::all_reduce);
  EXPECT_EQ(s.in_elements, 103);
  EXPECT_EQ(run.tables.names(s.dtypes), std::vector<std::string>{"float32"});
  EXPECT_EQ(run.tables.str(s.redop), "sum");
  ASSERT_EQ(trace.groups.size(), 1U);
  EXPECT_EQ(trace.groups[0].ranks, (std::vector<Rank>{Rank(0), Rank(1)}));
}

TEST(NcclLog, FindsAnotherSizeTypeAndReduction) {
  const auto odd = [](int count, int datatype, int redop) {
    Log log = job(1, 2);
    log.call("AllReduce", count, pointer(1), 0, datatype, redop).call("AllReduce", 103, pointer(1));
    return judged(run_of(nccl_log_format(), {job(0, 4).file(), log.file()}));
  };
  EXPECT_EQ(odd(102, 7, 0), "clean");
  EXPECT_THAT(odd(64, 7, 0), HasSubstr("size-mismatch world#2"));
  EXPECT_THAT(odd(102, 9, 0), HasSubstr("dtype-mismatch world#2"));
  EXPECT_THAT(odd(102, 7, 2), HasSubstr("redop-mismatch world#2"));
}

// NCCL before 2.14: nothing in the log identifies a communicator. In a job of four, ranks 0 and 1
// make one of their own, and so do 2 and 3.
TEST(NcclLog, OldVersionsWithoutAnIdOfCommunicators) {
  const auto of = [](int process, int count_of_last, int rank_in_world) {
    Log log(process);
    const auto made = [&](int n, int rank, int nranks) {
      log.line(fmt::format("comm {} rank {} nranks {} cudaDev {} busId 1000 - Init COMPLETE",
                           pointer(process, n), rank, nranks, process));
    };
    made(1, process % 2, 2);
    log.call("AllGather", 1 + process, pointer(process, 1));
    made(0, rank_in_world, 4);
    for (const int count : {100, 101, count_of_last, 103})
      log.call("AllReduce", count, pointer(process));
    return log.close(pointer(process)).file();
  };
  const auto run = run_of(nccl_log_format(), {of(0, 7, 0), of(1, 7, 1), of(2, 7, 2), of(3, 7, 3)});
  EXPECT_EQ(judged(run), "clean") << "the pairs' sizes are not compared";
  EXPECT_EQ(run.ranks[3].groups.size(), 1U);
  EXPECT_EQ(run.tables.str(run.ranks[3].groups[0].group), "world");
  EXPECT_THAT(
      judged(run_of(nccl_log_format(), {of(0, 7, 0), of(1, 7, 1), of(2, 9, 2), of(3, 7, 3)})),
      HasSubstr("size-mismatch world#3 by 2"));
  // Two communicators of all that cannot be told apart: nobody is compared.
  EXPECT_THAT(
      judged(run_of(nccl_log_format(), {of(0, 7, 0), of(1, 7, 1), of(2, 9, 0), of(3, 7, 1)})),
      testing::Not(HasSubstr("mismatch")));
}

TEST(NcclLog, FindsTheSkippedCall) {
  std::vector<NamedFile> files;
  for (int process = 0; process < 4; ++process) {
    Log log = job(process, 2, 4);
    if (process != 2) log.call("Broadcast", 77, pointer(process));
    for (int i = 0; i < 3; ++i) log.call("AllReduce", 200 + i, pointer(process));
    log.close(pointer(process));
    files.push_back(log.file());
  }
  EXPECT_EQ(judged(run_of(nccl_log_format(), files)), "findings\nmissing-collective world#2 by 2");
}

// A hung job's logs just end, as those of a job do that still runs: who is behind is told, and
// nobody is accused.
TEST(NcclLog, TheRankBehindIsNotedWhereAllLogsJustEnd) {
  const auto run =
      run_of(nccl_log_format(), {job(0, 4, 3).file(), job(1, 4, 3).file(), job(2, 3, 3).file()});
  const verify::Report report = verify::verify(run);
  EXPECT_EQ(report.verdict, verify::Verdict::inconclusive);
  ASSERT_EQ(report.findings.size(), 1U);
  const verify::Finding& note = report.findings[0];
  EXPECT_EQ(note.severity, verify::Severity::note);
  EXPECT_EQ(note.headline,
            "rank 2 (GPU 8) may have stopped before call 3 of group world (all_reduce of 103 "
            "float32 (sum)); 2 ranks wait for it");
  EXPECT_EQ(note.next, "py-spy dump --pid 4002");
  EXPECT_THAT(report.unknown,
              testing::Contains(HasSubstr("nothing shows whether rank 2 was late")));
  // Where all have come as far, nothing is said.
  EXPECT_EQ(judged(run_of(nccl_log_format(), {job(0, 4).file(), job(1, 4).file()})), "clean");
}

// Pairs of neighbours and pairs across them. Rank 3 stops before the second call of its first pair;
// rank 2 waits for it there, rank 0 for rank 2, and rank 1 in its second pair for rank 3.
std::vector<NamedFile> mesh_without_rank_3(const std::string& last_words) {
  std::vector<NamedFile> files;
  for (int process = 0; process < 3; ++process) {
    Log log(process);
    log.init(pointer(process), process, 4, "0xaaaa");
    log.init(pointer(process, 16), process % 2, 2, process < 2 ? "0xb0" : "0xb1");
    log.init(pointer(process, 32), process / 2, 2, process % 2 == 0 ? "0xc0" : "0xc1");
    log.call("AllReduce", 8, pointer(process, 16)).call("AllReduce", 8, pointer(process, 16));
    if (process < 2) log.from_count(0).call("AllReduce", 9, pointer(process, 32));
    log.raw(last_words);
    files.push_back(log.file());
  }
  return files;
}

TEST(NcclLog, ARankWhoseLogIsGoneIsNamedByThoseThatAreBehindWithIt) {
  const auto run = run_of(nccl_log_format(), mesh_without_rank_3(""));
  const verify::Report report = verify::verify(run);
  EXPECT_EQ(report.verdict, verify::Verdict::inconclusive);
  ASSERT_EQ(report.findings.size(), 1U);
  const verify::Finding& note = report.findings[0];
  EXPECT_EQ(note.headline,
            "rank 3 (no trace) may have stopped before call 1 of group comm 0xb1 (all_reduce of 8 "
            "float32 (sum)); 3 ranks wait for it");
  EXPECT_THAT(note.message, HasSubstr("if the job stands where the traces end, rank 2 waits in "));
  EXPECT_EQ(note.waiting, std::vector{Rank(2)});
}

// As above, with a third pair, in which rank 4 is ahead of rank 5: ranks 3 and 5 are hardly both
// why the job stands. It may as well run.
TEST(NcclLog, ARankWhoseLogIsGoneIsNotAccusedWhereOthersAreBehindAsWell) {
  std::vector<NamedFile> files;
  for (const int process : {0, 1, 2, 4, 5}) {
    Log log(process);
    log.init(pointer(process), process, 6, "0xaaaa");
    log.init(pointer(process, 16), process % 2, 2, "0xb" + std::to_string(process / 2));
    log.init(pointer(process, 32), process / 2, 3, process % 2 == 0 ? "0xc0" : "0xc1");
    log.call("AllReduce", 8, pointer(process, 16)).call("AllReduce", 8, pointer(process, 16));
    if (process == 4) log.call("AllReduce", 8, pointer(process, 16));
    if (process == 0) log.from_count(0).call("AllReduce", 9, pointer(process, 32));
    files.push_back(log.file());
  }
  const verify::Report report = verify::verify(run_of(nccl_log_format(), files));
  EXPECT_EQ(report.verdict, verify::Verdict::inconclusive);
  ASSERT_EQ(report.findings.size(), 2U);
  EXPECT_THAT(report.findings[0].headline, HasSubstr("rank 5 (GPU 11) may have stopped"));
  EXPECT_EQ(report.findings[1].rule, verify::RuleId::missing_rank);
  EXPECT_EQ(report.findings[1].headline, "");
}

// Each of these could take a million members.
TEST(NcclLog, ManyHugeCommunicatorsTakeNoRoom) {
  Log log(0);
  for (int i = 0; i < 200; ++i) log.init(pointer(i), 0, 1 << 20, fmt::format("0xa{}", i));
  EXPECT_EQ(run_of(nccl_log_format(), {log.file()}).ranks.size(), 1U);
}

TEST(NcclLog, AWatchdogTellsThatTheyHang) {
  const auto run = run_of(nccl_log_format(),
                          mesh_without_rank_3("Watchdog caught collective operation timeout\n"));
  const verify::Report report = verify::verify(run);
  ASSERT_FALSE(report.findings.empty());
  EXPECT_THAT(report.findings[0].headline,
              HasSubstr("rank 3 (no trace) stopped before call 1 of group comm 0xb1"));
}

// All that is known are in their newest call: the missing rank may have been there as well.
TEST(NcclLog, NothingIsKnownOfALostLogWhereNobodyIsBehind) {
  const auto run = run_of(nccl_log_format(), {job(0, 4, 3).file(), job(1, 4, 3).file()});
  const verify::Report report = verify::verify(run);
  EXPECT_EQ(report.verdict, verify::Verdict::inconclusive);
  ASSERT_EQ(report.findings.size(), 1U);
  EXPECT_EQ(report.findings[0].headline, "");
  EXPECT_EQ(report.findings[0].message,
            "no trace of rank 2 was given; what it did is unknown; if the job stands where the "
            "traces end, ranks 0, 1 wait in all_reduce of 103 float32 (sum) (call 3 of group "
            "world), and only rank 2 has not come that far in the traces");
}

// Ranks 1 and 6 left nothing. In {0, 1, 2} only rank 1 lies between the others; in {0, 3, x} it may
// be rank 6 only.
TEST(NcclLog, MembersWithoutALogFollowFromTheirPlaces) {
  std::vector<NamedFile> files;
  for (const int process : {0, 2, 3, 4, 5}) {
    Log log(process);
    log.init(pointer(process), process, 7, "0xaaaa");
    if (process == 0 || process == 2) log.init(pointer(process, 16), process, 3, "0xb0");
    if (process == 0 || process == 3) log.init(pointer(process, 32), process / 3, 3, "0xc0");
    log.call("AllReduce", 8, pointer(process));
    files.push_back(log.file());
  }
  const auto run = run_of(nccl_log_format(), files);
  const auto members = [&](const std::string& name) {
    for (const auto& group : run.ranks[0].groups)
      if (run.tables.str(group.group) == name)
        return std::vector<Rank>(group.ranks.begin(), group.ranks.end());
    return std::vector<Rank>();
  };
  EXPECT_EQ(members("world").size(), 7U);
  EXPECT_EQ(members("comm 0xb0"), (std::vector{Rank(0), Rank(1), Rank(2)}));
  EXPECT_EQ(members("comm 0xc0"), (std::vector{Rank(0), Rank(3), Rank(6)}));
}

TEST(NcclLog, OneFileMayHoldAllProcesses) {
  for (const std::string prefix : {"[rank%]:", "[default%]:", "%: ", "(Worker pid=%, ip=10.0.0.1) ",
                                   "[2025-03-01 12:00:00] "}) {
    std::string text = "Epoch 1: loss 2.5\n\n";
    for (int process = 0; process < 2; ++process) {
      std::string own = prefix;
      if (const auto at = own.find('%'); at != std::string::npos) {
        own.replace(at, 1, std::to_string(process));
      }
      Log log(process, own);
      log.init(pointer(process), process, 2, "0x8b5d6fa8");
      for (int i = 0; i < 3; ++i) log.call("AllReduce", 100 + i, pointer(process));
      text += log.str() + "Epoch 1: done\r\n";
    }
    EXPECT_TRUE(nccl_log_format().recognises(text));
    const auto run = run_of(nccl_log_format(), {{"train.log", text}});
    ASSERT_EQ(run.ranks.size(), 2U) << prefix;
    EXPECT_EQ(judged(run), "clean") << prefix;
    EXPECT_EQ(run.ranks[1].calls.size(), 3U);
  }
}

TEST(NcclLog, AByteOrderMarkIsNoPartOfAHost) {
  std::string text = job(0, 3, 1).str();
  text.erase(0, text.find('\n') + 1);  // the communicator is the first line
  const auto run = run_of(nccl_log_format(), {{"a.log", "\xEF\xBB\xBF" + text}});
  ASSERT_EQ(run.ranks.size(), 1U);
  EXPECT_EQ(run.ranks[0].host, "node7");
  EXPECT_EQ(run.ranks[0].calls.size(), 3U);
}

TEST(NcclLog, GroupsLinkByTheirId) {
  // Two pairs, {0, 2} and {1, 3}, besides the communicator of all.
  std::vector<NamedFile> files;
  for (int process = 0; process < 4; ++process) {
    Log log(process);
    log.init(pointer(process), process, 4, "0xaaaa");
    log.init(pointer(process, 16), process / 2, 2, process % 2 == 0 ? "0xbbbb" : "0xcccc");
    log.call("AllReduce", 8, pointer(process)).call("Broadcast", 5, pointer(process, 16), 1);
    files.push_back(log.file());
  }
  const auto run = run_of(nccl_log_format(), files);
  EXPECT_EQ(judged(run), "clean");
  const RankTrace& trace = run.ranks[3];
  EXPECT_EQ(run.tables.str(trace.calls[1].group), "comm 0xcccc");
  EXPECT_EQ(run.tables.signatures[trace.calls[1].signature].root, 3) << "rank 1 of {1, 3}";
  ASSERT_EQ(trace.groups.size(), 2U);
  EXPECT_EQ(trace.groups[1].ranks, (std::vector<Rank>{Rank(1), Rank(3)}));
}

TEST(NcclLog, SplitsLinkByTheirParent) {
  std::vector<NamedFile> files;
  for (int process = 0; process < 4; ++process) {
    Log log(process);
    log.init(pointer(process), process, 4, "0xaaaa");
    log.split(pointer(process, 16), process / 2, 2, pointer(process), process % 2);
    log.call("AllReduce", process % 2 == 0 ? 10 : 20, pointer(process, 16));
    files.push_back(log.file());
  }
  const auto run = run_of(nccl_log_format(), files);
  EXPECT_EQ(judged(run), "clean");
  EXPECT_EQ(run.tables.str(run.ranks[2].calls[0].group), "comm 0xaaaa/split 1.0");
  EXPECT_EQ(run.ranks[2].groups[1].ranks, (std::vector<Rank>{Rank(0), Rank(2)}));
}

TEST(NcclLog, MessagesNameTheirPeer) {
  Log a = job(0, 0), b = job(1, 0);
  a.call("Send", 64, pointer(0), 1).call("Recv", 32, pointer(0), 1);
  b.call("Recv", 64, pointer(1), 0).call("Send", 16, pointer(1), 0);
  const auto run = run_of(nccl_log_format(), {a.file(), b.file()});
  EXPECT_EQ(run.ranks[0].calls[0].peer, Rank(1));
  EXPECT_THAT(judged(run), HasSubstr("p2p-size")) << "32 elements wanted, 16 sent";
}

TEST(NcclLog, CountsAreThoseOfNccl) {
  Log log = job(0, 0);
  log.call("AllGather", 10, pointer(0)).call("ReduceScatter", 10, pointer(0));
  log.call("AlltoAll", 10, pointer(0)).call("Fancy", 10, pointer(0));
  const auto run = run_of(nccl_log_format(), {log.file()});
  const auto signature = [&](std::size_t i) -> const Signature& {
    return run.tables.signatures[run.ranks[0].calls[i].signature];
  };
  EXPECT_EQ(signature(0).op, Op::all_gather_into_tensor);
  EXPECT_EQ(signature(0).in_elements, 10);
  EXPECT_EQ(signature(0).out_elements, 20);
  EXPECT_EQ(signature(1).op, Op::reduce_scatter_tensor);
  EXPECT_EQ(signature(1).in_elements, 20);
  EXPECT_EQ(signature(1).out_elements, 10);
  EXPECT_EQ(signature(2).in_elements, 20);
  EXPECT_EQ(signature(3).op, Op::other);
  EXPECT_EQ(run.tables.str(signature(3).other_op), "Fancy");
}

// A log whose beginning was rotated away except for the communicators.
TEST(NcclLog, OpCountLinesUpLogsThatBeginLate) {
  const auto late = [](int process, int first) {
    Log log(process);
    log.init(pointer(process), process, 2, "0x8b5d6fa8").from_count(first);
    for (int i = first; i < 40; ++i) log.call("AllReduce", 1000 + i, pointer(process));
    return log;
  };
  const auto run = run_of(nccl_log_format(), {late(0, 26).file(), late(1, 31).file()});
  EXPECT_EQ(judged(run), "clean");
  EXPECT_EQ(run.ranks[1].calls[0].seq, 31U);
}

TEST(NcclLog, RanksComeFromPrefixesWhereNoCommunicatorHoldsAll) {
  std::string text;
  for (int process = 0; process < 4; ++process) {
    Log log(process, fmt::format("[rank{}]:", process));
    log.init(pointer(process), process % 2, 2, process < 2 ? "0xbbbb" : "0xcccc");
    log.call("Broadcast", 8, pointer(process), 1);
    text += log.str();
  }
  const auto run = run_of(nccl_log_format(), {{"job.log", text}});
  ASSERT_EQ(run.ranks.size(), 4U);
  EXPECT_EQ(run.world_size, 4);
  EXPECT_EQ(run.tables.signatures[run.ranks[3].calls[0].signature].root, 3);
  EXPECT_EQ(judged(run), "clean");
}

TEST(NcclLog, ProcessesAreNumberedWhereNothingTellsTheirRanks) {
  std::vector<NamedFile> files;
  for (int process = 0; process < 4; ++process) {
    Log log(process);
    log.init(pointer(process), process % 2, 2, process < 2 ? "0xbbbb" : "0xcccc");
    log.call("AllReduce", 8, pointer(process));
    files.push_back(log.file());
  }
  const auto run = run_of(nccl_log_format(), files);
  EXPECT_EQ(run.ranks.size(), 4U);
  EXPECT_EQ(judged(run), "clean");
}

TEST(NcclLog, TheWatchdogTellsThatAProcessHung) {
  const std::string watchdog =
      "[rank%]:[E321 02:07:08.4 ProcessGroupNCCL.cpp:607] [Rank %] Watchdog caught collective "
      "operation timeout: WorkNCCL(SeqNum=4, OpType=ALLREDUCE, NumelIn=103, NumelOut=103, "
      "Timeout(ms)=600000) ran for 600060 milliseconds before timing out.\n";
  const auto with = [&](int process, int calls, bool hung) {
    Log log = job(process, calls);
    std::string text = watchdog;
    for (auto at = text.find('%'); at != std::string::npos; at = text.find('%')) {
      text.replace(at, 1, std::to_string(process));
    }
    if (hung) log.raw(text);
    return log.file();
  };
  const auto run = run_of(nccl_log_format(), {with(0, 4, true), with(1, 3, false)});
  EXPECT_EQ(run.ranks[0].end, End::hung);
  EXPECT_THAT(judged(run), HasSubstr("world#3 by 1"));
  EXPECT_EQ(judged(run_of(nccl_log_format(), {job(0, 4).file(), job(1, 3).file()})), "inconclusive")
      << "rank 1 may just be behind";
}

TEST(NcclLog, CutLinesAndUnknownCommunicatorsAreDamage) {
  Log log = job(0, 2);
  log.call("AllReduce", 5, "0xdead").line("AllReduce: opCount 3 sendbuff 0x7f count 12 data");
  log.line(
      "AllReduce: opCount 3 sendbuff 0x7f recvbuff 0x7f count 99999999999999999999 datatype 7 "
      "op 0 root 0 comm " +
      pointer(0) + " [nranks=2] stream 0x0");
  const auto run = run_of(nccl_log_format(), {log.file()});
  EXPECT_EQ(run.ranks[0].calls.size(), 2U);
  EXPECT_EQ(run.ranks[0].damaged_count, 3U);
  EXPECT_EQ(run.ranks[0].damaged[0].location.line, 6);
}

TEST(NcclLog, SaysWhatIsMissing) {
  Log log(0);
  log.call("AllReduce", 5, "0xdead");
  Tables tables;
  const auto read = nccl_log_format().read(trace_file(log.file()), tables);
  ASSERT_FALSE(read);
  EXPECT_THAT(read.error().str(), HasSubstr("NCCL_DEBUG_SUBSYS=INIT,COLL"));
  EXPECT_FALSE(nccl_log_format().read({"", "empty", {}}, tables));
}

TEST(NcclLog, SurvivesDamage) {
  Log log(0);
  log.init(pointer(0), 0, 2, "0xa").split(pointer(0, 16), 0, 1, pointer(0), 0);
  log.call("AllReduce", 5, pointer(0)).call("Send", 5, pointer(0), 1).close(pointer(0));
  survives_damage(nccl_log_format(), log.str());
}

}  // namespace
}  // namespace lockstep::trace
