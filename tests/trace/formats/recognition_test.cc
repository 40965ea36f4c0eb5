// Every format knows its own files, and leaves those of the others, and anybody's, alone.
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "trace/formats/format.h"

namespace lockstep::trace {
namespace {

using namespace std::string_literals;

// The beginning of a file of each format, by the format's name.
std::vector<std::pair<std::string, std::string>> samples() {
  return {
      {"text", "{\"header\":1,\"rank\":0,\"world_size\":2}\n"},
      {"kineto", R"(
{
  "schemaVersion": 1,
  "deviceProperties": [
    {
      "id": 0, "name": "NVIDIA A100-PG509-200", "totalGlobalMem": 42297524224
    }
  ],
  "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2},
  "traceEvents": [
  {
    "ph": "X", "cat": "cpu_op", "name": "aten::zeros", "pid": 7, "tid": 7, "ts": 1, "dur": 25)"},
      {"kineto", R"({"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": 0, )"
                 R"("world_size": 128}, "traceEvents": [{"ph": "X")"},
      {"kineto", R"({"baseTimeNanoseconds": 1711964646000000000, "displayTimeUnit": "ms", )"
                 R"("schemaVersion": 1, "traceEvents": [)"},
      {"chakra",
       "\x07\n\x05"
       "0.0.4"
       "\x0e\x08\x01\x12\x05node1\x18\x04\x38\x0c"s},
      {"nsys", R"({"data":["[Unknown]","[Unknown kernel module]","[Max depth]")"},
      {"nsys", "{\"data\":[\"first\"]}\n{\"Type\":48,\"TraceProcessEvent\":{\"startNs\":\"1\""},
      {"nsys", R"({"Type":79,"CudaEvent":{"startNs":"140564259","endNs")"},
      {"nsys", R"({"type":"String","id":"3720","value":"cudaLaunchKernel_v7000"})"},
      {"nsys", "SQLite format 3\0\x10\0\1\1"s},
      {"chakra", R"({"workload_graph": [{"Id": 2, "Name": "a", "NodeType": 4)"},
      {"execution-trace",
       R"({"schema": "1.0.2-chakra.0.0.4", "pid": 7, "start_ts": 1, "nodes": [{"id": 1)"},
      {"clog", "V|1|base_timestamp=1714234567.890\nnew_comm|comm=main|rank=0|world_size=8\n"},
      {"detail-log",
       "[rank0]: RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running "
       "collective: CollectiveFingerPrint(SequenceNumber=1, OpType=ALLREDUCE"},
      {"nccl-log",
       "gpu1:13135:13922 [0] NCCL INFO Bootstrap : Using [0]eth0:10.0.0.1<0>\n"
       "gpu1:13135:13922 [0] NCCL INFO comm 0x7f0c741162f0 rank 0 nranks 2 cudaDev 0 - Init "
       "COMPLETE\n"},
      {"nccl-log",
       "Loading data ...\n[default3]:gpu1:13135:13922 [3] NCCL INFO AllReduce: opCount 1a "
       "sendbuff"},
      {"watchdog-log",
       "Epoch 3\n[rank0]:[E709 17:05:38.1 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught "
       "collective operation timeout: WorkNCCL(SeqNum=20585, OpType=ALLREDUCE"},
      {"watchdog-log",
       "[E ProcessGroupNCCL.cpp:1664] [PG 1 Rank 0] Exception (either an error or timeout) "
       "detected "
       "by watchdog at work: 1580, last enqueued NCCL work: 1582"},
  };
}

// Files that are none of ours, and look a little like them.
const std::vector<std::string>& strangers() {
  static const std::vector<std::string> all = {
      "",
      "\n",
      "{}",
      "[]",
      "null",
      "{\"a\": 1, \"traceEvents\": 3}",
      "{\"traceEvents\": [{\"ph\": \"X\", \"name\": \"a\", \"ts\": 1}]}",  // another program's
      "{\"schemaVersion\": 1, \"name\": \"a table\"}",
      "{\"schema\": \"1.0.2-chakra.0.0.4\", \"pid\": 7, \"edges\": []}",
      "{\"key\": \"schemaVersion\", \"text\": \"traceEvents distributedInfo deviceProperties\"}",
      "[{\"ph\": \"X\", \"name\": \"record_param_comms\"}]",
      "2025-03-01 12:00:00 INFO starting NCCL INFO desk\n",
      "see the docs of NCCL INFO lines: host:pid:tid [0] NCCL INFO ...\n",
      "a watchdog caught a thief; detected by watchdog at work\n",
      "Traceback (most recent call last):\n  File \"train.py\", line 1\nValueError: x\n",
      "import torch\nprint('hello')\n",
      "rank,step,loss\n0,1,2.5\n",
      "\x80\x02}q\x00(U\x07versionq\x01U\x03"
      "2.5q\x02u."s,
      "\x7f"
      "ELF\x02\x01\x01\0\0\0\0\0\0\0\0\0"s,
      "\x89PNG\r\n\x1a\n\0\0\0\rIHDR"s,
      "PK\x03\x04\x14\0\0\0\x08\0"s,
      "\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n",
      std::string(1000, '\0'),
      std::string(1000, '\x01'),
      std::string(1000, '\xff'),
      std::string(100'000, '{'),
      std::string(100'000, '['),
      std::string(100'000, '"'),
  };
  return all;
}

TEST(Recognition, EveryFormatKnowsItsOwnAndNoOthers) {
  for (const auto& [name, bytes] : samples()) {
    for (const Format& format : all_formats()) {
      EXPECT_EQ(format.recognises(bytes), format.name == name)
          << format.name << " on a file of " << name << ":\n"
          << bytes.substr(0, 120);
    }
    ASSERT_NE(recognise(bytes), nullptr);
    EXPECT_EQ(recognise(bytes)->name, name);
  }
}

TEST(Recognition, NobodyTakesAStranger) {
  for (const std::string& bytes : strangers()) {
    for (const Format& format : all_formats()) {
      if (format.name == "flight-recorder" || format.name == "text") continue;  // tested with them
      EXPECT_FALSE(format.recognises(bytes)) << format.name << ":\n" << bytes.substr(0, 120);
    }
  }
}

TEST(Recognition, TheRankInAFilesName) {
  for (const auto& [name, rank] :
       std::vector<std::pair<std::string, int>>{{"nccl_trace_rank_12", 12},
                                                {"host7_rank3_20240501.log", 3},
                                                {"_dump_7", 7},
                                                {"dump7", 7},
                                                {"r3.log.gz", 3},
                                                {"chakra.0.et", 0},
                                                {"job-1.3.et", 3},
                                                {"12", 12}}) {
    EXPECT_EQ(rank_in_name(name), Rank(rank)) << name;
  }
  for (const char* name :
       {"", "trace.json", "hf_GPT2_et.json", "resnet_2gpu_et.json", "pt2_et.json",
        "worker_1694128201557.json", "1.0.2-chakra.0.0.4.json", "node-10.0.0.5.log"}) {
    EXPECT_EQ(rank_in_name(name), std::nullopt) << name;
  }
}

// A job's output with lines of NCCL in it, but no calls: the watchdog's messages are what counts.
TEST(Recognition, OutputWithLinesOfNcclButNoCallsIsReadForItsWatchdog) {
  const std::string text =
      "gpu1:13135:13922 [0] NCCL INFO Bootstrap : Using [0]eth0:10.0.0.1<0>\n"
      "[rank0]:[E709 17:05:38.1 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective "
      "operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
      "Timeout(ms)=600000) ran for 600001 milliseconds before timing out.\n";
  const Format* const format = recognise(text);
  ASSERT_NE(format, nullptr);
  EXPECT_EQ(format->name, "nccl-log");
  Tables tables;
  auto read = format->read({text, "out.log", {}}, tables);
  ASSERT_TRUE(read);
  ASSERT_EQ(read->size(), 1U);
  EXPECT_EQ((*read)[0].end, End::hung);
  format->link(*read, tables);
  EXPECT_EQ((*read)[0].world_size, kNone);
}

// NCCL's own lines then tell the size of the job, and where its ranks ran.
TEST(Recognition, OutputWithCommunicatorsButNoCallsIsReadForItsWatchdog) {
  std::string text;
  for (const int rank : {1, 2, 3}) {
    const std::string r = std::to_string(rank);
    text += "n1:410" + r + ":9 [" + r + "] NCCL INFO ncclCommInitRank comm 0x55" + r + " rank " +
            r + " nranks 4 cudaDev " + r + " nvmlDev " + r +
            " busId 1000 commId 0x8b - Init COMPLETE\n[rank" + r +
            "]:[E709 17:05:38.1 ProcessGroupNCCL.cpp:632] [Rank " + r +
            "] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, "
            "OpType=BROADCAST, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600001 ms\n";
  }
  Tables tables;
  const auto read = nccl_log_format().read({text, "out.log", {}}, tables);
  ASSERT_TRUE(read);
  ASSERT_EQ(read->size(), 3U);
  EXPECT_EQ((*read)[2].rank, Rank(3));
  EXPECT_EQ((*read)[2].host, "n1");
  EXPECT_EQ((*read)[2].pid, 4103);
  EXPECT_EQ((*read)[2].calls.size(), 1U);
  ASSERT_EQ((*read)[2].groups.size(), 1U);
  EXPECT_EQ((*read)[2].groups[0].ranks.size(), 4U);
}

}  // namespace
}  // namespace lockstep::trace
