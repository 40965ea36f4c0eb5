// What users point the program at by mistake, and what somebody makes on purpose: everything ends
// in an error that names the file, or in a verdict; the report is UTF-8 whatever the input was.
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files/gzip.h"
#include "base/text.h"
#include "reports/findings/reports.h"
#include "tests/support/temp_dir.h"
#include "tests/support/trace_lines.h"
#include "trace/load.h"
#include "trace/trace_builder.h"
#include "verify/rules/rules.h"
#include "verify/verify.h"

namespace lockstep::trace {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

namespace fs = std::filesystem;

// A text trace. The header's numbers are text, so that they can be any.
std::string trace_of(const std::string& rank, const std::string& world_size,
                     const std::string& more = "") {
  return fmt::format("{{\"header\":1,\"rank\":{},\"world_size\":{}}}\n", rank, world_size) +
         issue_line(0, "world", "barrier") + more;
}

// A tar archive with one entry; every field as text, as in the format (POSIX ustar).
std::string tar_entry(const std::string& name, const std::string& content, char type = '0',
                      const std::string& size = "") {
  std::string header(512, '\0');
  const auto put = [&](std::size_t at, const std::string& field) {
    header.replace(at, field.size(), field);
  };
  constexpr char kOctal[] = "01234567";
  const auto octal = [&](std::size_t value, std::size_t digits) {
    std::string out(digits, '0');
    for (std::size_t i = digits; i-- > 0; value /= 8) out[i] = kOctal[value % 8];
    return out;
  };
  put(0, name);
  put(100, "0000644");
  put(124, size.empty() ? octal(content.size(), 11) : size);
  put(136, "00000000000");
  header[156] = type;
  if (type == '1' || type == '2') put(157, "/etc/passwd");
  put(257, std::string("ustar\00000", 8));
  put(148, "        ");
  std::size_t sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  put(148, octal(sum, 6) + std::string("\0 ", 2));
  return header + content + std::string((512 - content.size() % 512) % 512, '\0');
}
const std::string kTarEnd(1024, '\0');

class Hostile : public testing::Test {
 protected:
  // It says what to do, and does no harm to a terminal.
  static void expect_helpful(const Error& error) {
    const std::string text = error.str();
    EXPECT_FALSE(error.fix.empty()) << text;
    EXPECT_EQ(text, to_utf8(text));
    EXPECT_TRUE(std::none_of(text.begin(), text.end(), [](unsigned char c) {
      return c < 0x20 && c != '\n';
    })) << text;
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  }

  // What the program says of these: the error, or the verdict and the rules that it found. Checks
  // what holds for all.
  static std::string said(const std::vector<std::string>& paths) {
    const Result<trace::Run> run = load_run(paths);
    if (!run) {
      EXPECT_FALSE(run.error().message.empty());
      EXPECT_FALSE(run.error().location.file.empty()) << "an error names the file";
      expect_helpful(run.error());
      return "error: " + run.error().message;
    }
    for (const auto& file : run->unreadable) expect_helpful(file.error);
    const verify::Report report = verify::verify(*run);
    for (const std::string& line : report.unknown) {
      EXPECT_EQ(line.find("\\x0a"), std::string::npos) << line;
    }
    for (const std::string& text :
         {reports::json_report(report), reports::text_report(report, *run)}) {
      EXPECT_EQ(text, to_utf8(text)) << "reports are UTF-8";
    }
    std::string out(verify::to_string(report.verdict));
    for (const verify::Finding& f : report.findings)
      out += " " + std::string(verify::rule(f.rule).name);
    return out;
  }
  std::string said_of(const std::string& bytes, const std::string& name = "rank_0.trace.jsonl") {
    return said({dir_.write(name, bytes)});
  }

  TempDir dir_;
};

TEST_F(Hostile, WhatIsNoFile) {
  // Two levels of folders are searched, not a third.
  fs::create_directories(dir_.file("nested/and/deeper/still"));
  dir_.write("nested/and/deeper/still/rank_0.trace.jsonl", trace_of("0", "1"));
  EXPECT_EQ(said({dir_.file("nested")}), "error: no traces in this folder: it holds no files");
  ASSERT_EQ(::mkfifo(dir_.file("fifo").c_str(), 0600), 0);
  EXPECT_EQ(said({dir_.file("fifo")}), "error: not a regular file");
  EXPECT_EQ(said({"/dev/zero"}), "error: not a regular file");
  EXPECT_EQ(said({"/dev/null"}), "error: not a regular file");
  EXPECT_THAT(said({"/proc/self/status"}), StartsWith("error: not a trace")) << "without a size";
  EXPECT_EQ(said_of(""), "error: the file is empty");

  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = dir_.file("socket");
  ASSERT_LT(path.size(), sizeof address.sun_path);
  std::memcpy(address.sun_path, path.c_str(), path.size());
  ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_THAT(said({path}), StartsWith("error: cannot open the file"));
  ::close(fd);
}

TEST_F(Hostile, AFolderOfWhatIsNoFile) {
  ASSERT_EQ(::mkfifo(dir_.file("rank_0.ring").c_str(), 0600), 0);
  fs::create_symlink("nowhere", dir_.file("rank_1.ring"));
  fs::create_symlink("rank_2.ring", dir_.file("rank_2.ring"));
  fs::create_directory(dir_.file("rank_3.ring"));
  fs::create_symlink(".", dir_.file("myself"));
  EXPECT_EQ(said({dir_.path()}), "error: no traces in this folder: it holds no files");
  dir_.write("rank_4.trace.jsonl", trace_of("0", "1"));
  EXPECT_THAT(said({dir_.path()}), StartsWith("clean"));
}

TEST_F(Hostile, LinksThatLeadNowhere) {
  fs::create_symlink("nowhere", dir_.file("dangling"));
  fs::create_symlink("two", dir_.file("one"));
  fs::create_symlink("one", dir_.file("two"));
  EXPECT_EQ(said({dir_.file("dangling")}), "error: no such file or folder");
  EXPECT_THAT(said({dir_.file("one")}), StartsWith("error: cannot look at it"));
  EXPECT_THAT(said({std::string(300, 'x')}), StartsWith("error: cannot look at it"));
}

// Root may read everything: for as long as it lives, the program is somebody else.
class AsNobody {
 public:
  AsNobody() : was_root_(::geteuid() == 0) {
    if (was_root_ && ::seteuid(65534) != 0) was_root_ = false;
  }
  ~AsNobody() {
    if (was_root_ && ::seteuid(0) != 0) ADD_FAILURE() << "cannot become root again";
  }
  AsNobody(const AsNobody&) = delete;
  AsNobody& operator=(const AsNobody&) = delete;

 private:
  bool was_root_;
};

TEST_F(Hostile, FilesThatMayNotBeRead) {
  const std::string denied = dir_.write("rank_0.trace.jsonl", trace_of("0", "2"));
  dir_.write("rank_1.trace.jsonl", trace_of("1", "2"));
  fs::create_directory(dir_.file("folder"));
  ASSERT_EQ(::chmod(denied.c_str(), 0), 0);
  ASSERT_EQ(::chmod(dir_.file("folder").c_str(), 0), 0);
  ASSERT_EQ(::chmod(dir_.path().c_str(), 0755), 0);
  {
    const AsNobody nobody;
    if (::access(denied.c_str(), R_OK) == 0 && ::geteuid() == 0) {
      GTEST_SKIP() << "root may read everything, and cannot become another user here";
    }
    EXPECT_THAT(said({denied}), HasSubstr("Permission denied"));
    EXPECT_THAT(said({dir_.path()}), StartsWith("inconclusive"));
    EXPECT_THAT(said({dir_.file("folder")}), HasSubstr("Permission denied"));
  }
  ASSERT_EQ(::chmod(dir_.file("folder").c_str(), 0755), 0);
}

TEST_F(Hostile, BytesThatAreNoText) {
  EXPECT_THAT(said({dir_.write("\xff\xfe\x1b[2Jrank_0.ring", trace_of("0", "2"))}),
              StartsWith("inconclusive"));
  EXPECT_THAT(said({dir_.write("\xff\n", "no trace")}), StartsWith("error: not a trace"));
  const std::string odd = "\xff\xfe\xed\xa0\x80";
  EXPECT_THAT(
      said_of(trace_of("0", "1", fmt::format("{{\"ev\":\"exception\",\"what\":\"{}\"}}\n", odd))),
      StartsWith("inconclusive damaged-trace"));
  EXPECT_THAT(said_of(trace_of("0", "1",
                               R"({"ev":"exception","what":"\u0000 \u001b[2J \u202e"})"
                               "\n" +
                                   end_line("exception"))),
              StartsWith("findings rank-exception"));
  EXPECT_THAT(said_of(tar_entry("\xff\x1b[1m_rank_0", trace_of("0", "2")) + kTarEnd, "a.tar"),
              StartsWith("inconclusive"));
}

TEST_F(Hostile, NumbersOutOfRangeInAHeader) {
  for (const char* const number :
       {"1000000000", "9223372036854775808", "18446744073709551616", "4294967296", "-1",
        "-9223372036854775808", "1e400", "1.5", "NaN", "Infinity", "\"0\"", "null", "[]", "{}"}) {
    SCOPED_TRACE(number);
    EXPECT_THAT(said_of(trace_of(number, "2")), AllOf(StartsWith("error: "), HasSubstr("header")));
    EXPECT_THAT(said_of(trace_of("0", number)), AllOf(StartsWith("error: "), HasSubstr("header")));
  }
}

TEST_F(Hostile, TheLargestWorldIsJudged) {
  const std::string world = std::to_string(kMaxWorldSize);
  EXPECT_THAT(said_of(trace_of(std::to_string(kMaxWorldSize - 1), world)),
              StartsWith("inconclusive missing-rank"));
}

TEST_F(Hostile, NumbersOutOfRangeInAnEvent) {
  for (const char* const key :
       {"id", "step", "root", "peer", "ptag", "coalesced", "t", "n", "stream", "splits_in"}) {
    for (const char* const number :
         {"1000000000", "9223372036854775807", "9223372036854775808", "-9223372036854775808",
          "1e308", "1e400", "NaN", "-Infinity"}) {
      SCOPED_TRACE(std::string(key) + " " + number);
      const std::string event =
          fmt::format(R"({{"ev":"issue","id":7,"g":"world","op":"send","peer":1,"{}":{}}})", key,
                      number) +
          "\n";
      EXPECT_THAT(said_of(trace_of("0", "2", event)), StartsWith("inconclusive missing-rank"));
    }
  }
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  EXPECT_EQ(said_of(trace_of("0", "1",
                             issue_line(1, "world", "all_reduce", {{"in", {{kHuge, kHuge}}}}) +
                                 end_line("clean"))),
            "clean");
  EXPECT_THAT(said_of(trace_of("0", "1",
                               R"({"ev":"step","n":0,"loss":NaN})"
                               "\n"
                               R"({"ev":"state","n":1,"name":"x","norm":-Infinity})"
                               "\n"
                               R"({"group":"a","ranks":[0,9223372036854775808]})"
                               "\n"
                               R"({"group":"b","ranks":[0,0,0]})"
                               "\n"
                               R"({"group":"c","ranks":[1000000000]})"
                               "\n")),
              StartsWith("inconclusive damaged-trace"));
}

TEST_F(Hostile, ForeignNumbersOutOfRange) {
  const std::string timeout =
      "[rank1]:[E ProcessGroupNCCL.cpp:1] [Rank 1] Watchdog caught collective operation timeout: "
      "WorkNCCL(SeqNum=9223372036854775807, OpType=ALLREDUCE, NumelIn=9223372036854775807, "
      "NumelOut=-1, Timeout(ms)=1) ran\n"
      "[rank0]:[E ProcessGroupNCCL.cpp:1] [PG ID 0 PG GUID 0(default_pg) Rank 0]  failure detected "
      "by watchdog at work sequence id: 9223372036854775808 PG status: last enqueued work: "
      "9223372036854775807, last completed work: -9223372036854775808\n";
  EXPECT_THAT(said_of(timeout, "job.log"), testing::Not(HasSubstr("abort")));
  const std::string log =
      "h:1:1 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 1000000000 nranks 2000000000 commId 0x1 "
      "- "
      "Init COMPLETE\n"
      "h:1:1 [0] NCCL INFO ncclCommInitRank comm 0x2 rank 0 nranks 2 commId 0x2 - Init COMPLETE\n"
      "h:1:1 [0] NCCL INFO AllReduce: opCount ffffffffffffffff sendbuff 0x1 recvbuff 0x1 count "
      "18446744073709551615 datatype 7 op 0 root 9223372036854775807 comm 0x2 [nranks=2] stream "
      "0\n";
  EXPECT_THAT(said_of(log, "nccl.log"), StartsWith("inconclusive missing-rank"));
  EXPECT_THAT(said_of(R"({"pg_config":{"0":{"name":"0","ranks":"[0, 1000000000]"}},)"
                      R"("pg_status":{"0":{"last_completed_collective":9223372036854775807}},)"
                      R"("entries":[{"collective_seq_id":9223372036854775807,"p2p_seq_id":1,)"
                      R"("process_group":["0","x"],"profiling_name":"nccl:send 0->2147483647",)"
                      R"("state":"completed","is_p2p":true,"record_id":9223372036854775807,)"
                      R"("input_sizes":[[9223372036854775807,9223372036854775807]],)"
                      R"("time_created_ns":-9223372036854775808}]})",
                      "dump_rank_0.json"),
              StartsWith("inconclusive"));
  EXPECT_THAT(said_of(R"({"schemaVersion":1,"distributedInfo":{"rank":0,"world_size":2},)"
                      R"("traceEvents":[{"ph":"X","cat":"cpu_op","name":"record_param_comms",)"
                      R"("ts":1e300,"dur":-1e300,"args":{"Collective name":"allreduce",)"
                      R"("In msg nelems":9223372036854775807,"Seq":-9223372036854775808,)"
                      R"("Group size":1e99,"Process Group Name":"0",)"
                      R"("Process Group Ranks":"[0, 99999999999999999999]"}}]})",
                      "rank_0.json"),
              StartsWith("inconclusive missing-rank"));
}

TEST_F(Hostile, DeepNesting) {
  const std::string deep(100000, '[');
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += R"({"a":)";
  EXPECT_THAT(said_of(trace_of("0", "1", "{\"ev\":" + deep + "\n")), HasSubstr("damaged-trace"));
  EXPECT_THAT(said_of("{\"header\":1,\"rank\":0,\"world_size\":1,\"x\":" + objects + "\n"),
              HasSubstr("no header"));
  const std::string dump = R"({"pg_config":{},"pg_status":{},"entries":)";
  EXPECT_THAT(said_of(dump + deep, "d_rank_0"), StartsWith("error: not readable as JSON"));
  const std::string profile = R"({"schemaVersion":1,"traceEvents":)";
  EXPECT_THAT(said_of(profile + deep, "p_rank_0"), HasSubstr("damaged-trace"));
  EXPECT_THAT(said_of(profile + "[" + objects + "1" + std::string(100000, '}') + "]}", "p_rank_0"),
              testing::Not(HasSubstr("findings")));
  const std::string pickle = std::string("\x80\x02}X\x07\0\0\0entries", 15);
  EXPECT_THAT(said_of(pickle + std::string(100000, '('), "d_rank_0"), HasSubstr("error"));
  EXPECT_THAT(said_of(pickle + ")" + std::string(100000, '\x85') + "s.", "d_rank_0"),
              HasSubstr("damaged-trace"));
  const std::string metadata =
      "\x07\x0a\x05"
      "0.0.4";
  const std::string node = "\x05\x08\x01\x12\x01n";
  EXPECT_THAT(said_of(metadata + node + "\xa0\x8d\x06" + std::string(100000, '\x0b'), "w.0.et"),
              HasSubstr("damaged-trace"))
      << "protobuf groups";
}

TEST_F(Hostile, LengthsThatAreNotThere) {
  const std::string pickle = std::string("\x80\x02}X\x07\0\0\0entries", 15);
  const std::string huge = std::string("\0\0\0\0\0\0\0\x40", 8);  // 2^62
  for (const std::string& opcode :
       {"\x8d" + huge, "\x8e" + huge, std::string("\x8b\xff\xff\xff\xff"),
        std::string("X\xff\xff\xff\x7f"), "\x95" + huge}) {
    EXPECT_THAT(said_of(pickle + opcode + "abc", "d_rank_0"), StartsWith("error: not a Flight"));
  }
  const std::string chakra =
      "\x07\x0a\x05"
      "0.0.4"
      "\x05\x08\x01\x12\x01n";
  for (const std::string& length :
       {std::string("\xff\xff\xff\xff\xff\xff\xff\xff\x7f"), std::string("\x80\x80\x80\x80\x40"),
        std::string("\xff\xff\x7f")}) {
    EXPECT_THAT(said_of(chakra + length + "abc", "w.0.et"), HasSubstr("damaged-trace"));
    EXPECT_THAT(said_of(chakra + static_cast<char>(length.size() + 1) + "\x2a" + length, "w.0.et"),
                HasSubstr("damaged-trace"));
  }
}

TEST_F(Hostile, GzipThatIsNot) {
  EXPECT_THAT(said_of("\x1f\x8b", "a.gz"), StartsWith("error: "));
  std::string packed = trace_of("0", "1");
  for (int layer = 0; layer < 4; ++layer) packed = gzip(packed);
  EXPECT_EQ(said_of(packed, "a.gz"), "clean") << "four layers are unpacked";
  EXPECT_THAT(said_of(gzip(packed), "a.gz"), StartsWith("error: ")) << "a fifth is not";
  std::string zeros(std::size_t{4} << 20U, '\0');
  EXPECT_THAT(said_of(gzip(zeros), "a.gz"), StartsWith("error: not a trace"));
  std::fill(zeros.begin(), zeros.end(), '\n');
  EXPECT_THAT(said_of(gzip(trace_of("0", "1") + zeros), "a.gz"), StartsWith("clean"));
}

TEST_F(Hostile, TarNamesAreNamesOnly) {
  const std::string archive = tar_entry("/etc/rank_0", trace_of("0", "2")) +
                              tar_entry("../../../rank_1", trace_of("1", "2")) +
                              tar_entry("rank_2", "", '2') + tar_entry("rank_3", "", '1') +
                              tar_entry("rank_4", "", '5') + tar_entry("rank_5", "", '3') + kTarEnd;
  const Result<trace::Run> run = load_run({dir_.write("t.tar", archive)});
  ASSERT_TRUE(run) << run.error().str();
  ASSERT_EQ(run->ranks.size(), 2U);
  EXPECT_THAT(run->ranks[0].source, testing::EndsWith("t.tar:/etc/rank_0"));
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_.path()), fs::directory_iterator{}), 1)
      << "nothing is unpacked onto the disk";
}

TEST_F(Hostile, TarSizesThatAreNotThere) {
  const std::string binary = std::string("\x80\0\0\0\x40\0\0\0\0\0\0\0", 12);  // 2^62
  for (const std::string& size : {std::string("77777777777"), binary, std::string(12, '\xff')}) {
    const std::string answer =
        said_of(tar_entry("rank_0", trace_of("0", "2"), '0', size) + kTarEnd, "t.tar");
    EXPECT_THAT(answer, testing::AnyOf(StartsWith("error: "), StartsWith("inconclusive")));
  }
  const std::string two =
      tar_entry("rank_0", trace_of("0", "2")) + tar_entry("rank_1", trace_of("1", "2"));
  for (std::size_t cut = 0; cut < two.size(); cut += 61) {
    EXPECT_THAT(
        said_of(two.substr(0, cut), "t.tar"),
        testing::AnyOf(StartsWith("error: "), StartsWith("inconclusive"), StartsWith("clean")));
  }
}

TEST_F(Hostile, FilesThatContradictEachOther) {
  dir_.write("a.trace.jsonl", trace_of("0", "2"));
  dir_.write("b.trace.jsonl", trace_of("0", "2", end_line("clean")));
  dir_.write("c.trace.jsonl", trace_of("1", "2"));
  EXPECT_THAT(said({dir_.path()}), HasSubstr("inconsistent-header")) << "one rank in two files";
  dir_.write("b.trace.jsonl", trace_of("3", "4"));
  EXPECT_THAT(said({dir_.path()}), HasSubstr("inconsistent-header")) << "two sizes of the world";
}

TEST_F(Hostile, AFileThatGrewIsReadAsFarAsItWent) {
  const std::string path = dir_.write("rank_0.trace.jsonl", trace_of("0", "1"));
  EXPECT_THAT(said({path}), StartsWith("clean"));
  dir_.write("rank_0.trace.jsonl", trace_of("0", "1", R"({"ev":"step","n)"));
  EXPECT_THAT(said({path}), HasSubstr("damaged-trace")) << "a line was being written";
}

}  // namespace
}  // namespace lockstep::trace
