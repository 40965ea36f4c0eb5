// Reports of Nsight Systems for tests: one description, as lines of JSON and as SQLite database.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/trace/formats/format_testing.h"
#include "trace/formats/format.h"

namespace lockstep::trace {

// Indices of nsys_strings().
enum : int {
  kNameLaunch = 1,
  kNameSync = 2,
  kNameGemm = 3,
  kNameAllReduce = 4,
  kNameStep = 5,
  kNameGraphLaunch = 7
};

inline const std::vector<std::string>& nsys_strings() {
  static const std::vector<std::string> all = {"[Unknown]",
                                               "cudaLaunchKernel_v7000",
                                               "cudaStreamSynchronize_v3020",
                                               "void gemm<float>(float*)",
                                               "ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)",
                                               "iteration 3",
                                               "cudaStreamWaitEvent_v3020",
                                               "cudaGraphLaunch_v10000"};
  return all;
}

// The strings as the first line of a report.
inline std::string nsys_string_line() {
  std::string out;
  for (const std::string& text : nsys_strings())
    out += fmt::format("{}\"{}\"", out.empty() ? "" : ",", text);
  return "{\"data\":[" + out + "]}\n";
}

// The tables of `nsys export --type sqlite`, with the columns that matter and some others.
inline const char* const kNsysTables = R"(
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE ENUM_CUDA_MEMCPY_OPER (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL,
  deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, greenContextId INTEGER,
  streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
  demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, gridX INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL,
  deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId INTEGER NOT NULL,
  correlationId INTEGER, globalPid INTEGER, bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER NOT NULL, end INTEGER NOT NULL,
  deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId INTEGER NOT NULL,
  correlationId INTEGER, globalPid INTEGER, value INTEGER NOT NULL, bytes INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER NOT NULL, end INTEGER NOT NULL,
  deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId INTEGER NOT NULL,
  correlationId INTEGER, globalPid INTEGER, graphId INTEGER NOT NULL, graphExecId INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL,
  eventClass INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER,
  nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL,
  text TEXT, globalTid INTEGER, textId INTEGER, domainId INTEGER);
)";

// The bytes of a database that these statements make.
inline std::string sqlite_database(const std::string& statements) {
  sqlite3* database = nullptr;
  EXPECT_EQ(sqlite3_open(":memory:", &database), SQLITE_OK);
  char* error = nullptr;
  EXPECT_EQ(sqlite3_exec(database, ("PRAGMA page_size=512;" + statements).c_str(), nullptr, nullptr,
                         &error),
            SQLITE_OK)
      << (error == nullptr ? "" : error);
  sqlite3_free(error);
  sqlite3_int64 size = 0;
  unsigned char* const bytes = sqlite3_serialize(database, "main", &size, 0);
  std::string out(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size));
  sqlite3_free(bytes);
  sqlite3_close(database);
  return out;
}

// A process with this number: its events, in nanoseconds.
class NsysReport {
 public:
  explicit NsysReport(std::int64_t process = 7, int device = 0)
      : process_(process), device_(device) {}

  NsysReport& api(int name, int begin, int end, int correlation) {
    text += fmt::format(
        R"({{"Type":48,"TraceProcessEvent":{{"startNs":"{}","endNs":"{}","correlationId":{},)"
        R"("eventClass":1,"name":"{}","returnValue32":0,"globalTid":"{}"}}}})"
        "\n",
        begin, end, correlation, name, thread());
    rows += fmt::format("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES({},{},1,{},{},{},0);\n",
                        begin, end, thread(), correlation, name);
    return *this;
  }
  NsysReport& kernel(int name, int begin, int end, int correlation, int stream = 7) {
    rows += fmt::format(
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES({},{},{},1,NULL,{},{},{},{},{},1);\n", begin,
        end, device_, stream, correlation, process_ << 24U, name, name);
    return work(fmt::format(R"("kernel":{{"demangledName":"{0}","shortName":"{0}"}})", name), begin,
                end, correlation, stream);
  }
  NsysReport& copy(int kind, int begin, int end, int correlation, int stream = 7) {
    rows +=
        fmt::format("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES({},{},{},1,{},{},{},9,{});\n",
                    begin, end, device_, stream, correlation, process_ << 24U, kind);
    return work(fmt::format(R"("memcpy":{{"sizebytes":"9","copyKind":"{}","srcKind":2}})", kind),
                begin, end, correlation, stream);
  }
  NsysReport& fill(int begin, int end, int correlation, int stream = 7) {
    rows += fmt::format("INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES({},{},{},1,{},{},{},0,4);\n",
                        begin, end, device_, stream, correlation, process_ << 24U);
    return work(R"("memset":{"sizebytes":"4"})", begin, end, correlation, stream);
  }
  // A graph that was recorded as a whole: a row only.
  NsysReport& graph(std::int64_t begin, std::int64_t end, int correlation,
                    std::int64_t device = 0) {
    rows += fmt::format(
        "INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES({},{},{},1,{},{},{},3,4);\n", begin,
        end, device, 7, correlation, process_ << 24U);
    return *this;
  }
  // A line of JSON only.
  NsysReport& work(const std::string& what, int begin, int end, int correlation, int stream = 7) {
    text += fmt::format(
        R"({{"Type":79,"CudaEvent":{{"startNs":"{}","endNs":"{}","correlationId":{},)"
        R"("deviceId":{},"contextId":"1","streamId":"{}","eventClass":3,"globalPid":"{}",{}}}}})"
        "\n",
        begin, end, correlation, device_, stream, process_ << 24U, what);
    return *this;
  }
  NsysReport& range(const std::string& what, int begin, int end) {
    rows += fmt::format("INSERT INTO NVTX_EVENTS VALUES({},{},59,'{}',{},NULL,0);\n", begin, end,
                        what, thread());
    return json_range(fmt::format("\"Text\":\"{}\"", what), begin, end);
  }
  // Its name is in the list of strings.
  NsysReport& range(int name, int begin, int end) {
    rows += fmt::format("INSERT INTO NVTX_EVENTS VALUES({},{},59,NULL,{},{},0);\n", begin, end,
                        thread(), name);
    return json_range(fmt::format("\"TextId\":\"{}\"", name), begin, end);
  }

  std::string str() const { return nsys_string_line() + text; }
  std::string sqlite() const {
    std::string strings;
    for (std::size_t i = 0; i < nsys_strings().size(); ++i)
      strings += fmt::format("INSERT INTO StringIds VALUES({},'{}');\n", i, nsys_strings()[i]);
    return sqlite_database(kNsysTables + strings + rows);
  }

  std::string text;  // lines of JSON
  std::string rows;  // SQL

 private:
  std::int64_t thread() const { return (process_ << 24U) + process_; }
  NsysReport& json_range(const std::string& what, int begin, int end) {
    text +=
        fmt::format(R"({{"Type":59,"NvtxEvent":{{"Type":59,"Timestamp":"{}",{},"GlobalTid":"{}",)"
                    R"("EndTimestamp":"{}","DomainId":"0","NsTime":true}}}})"
                    "\n",
                    begin, what, thread(), end);
    return *this;
  }

  std::int64_t process_;
  int device_;
};

// Two kernels, an all-reduce in another stream after them, and the host waits for it.
inline NsysReport small_nsys(std::int64_t process = 7, int device = 0) {
  NsysReport r(process, device);
  r.range(kNameStep, 0, 400'000);
  r.api(kNameLaunch, 0, 5'000, 1).kernel(kNameGemm, 6'000, 56'000, 1);
  r.api(kNameLaunch, 10'000, 15'000, 2).kernel(kNameGemm, 56'000, 156'000, 2);
  r.api(kNameLaunch, 20'000, 25'000, 3).kernel(kNameAllReduce, 157'000, 357'000, 3, 20);
  r.api(kNameSync, 30'000, 358'000, 4);
  r.work(R"("sync":{"eventId":1,"eventSyncId":"2","syncType":"X"})", 30'000, 358'000, 4);
  return r;
}

struct ReadNsys {
  Tables tables;
  std::vector<RankTrace> ranks;
  std::string error;
};
inline ReadNsys read_nsys_report(const std::string& bytes,
                                 const std::string& name = "rank_0.jsonl") {
  ReadNsys out;
  auto read = nsys_format().read({bytes, name, rank_in_name(name), /*work=*/true}, out.tables);
  if (!read) {
    out.error = read.error().str();
    return out;
  }
  out.ranks = std::move(*read);
  nsys_format().link(out.ranks, out.tables);
  return out;
}

// "void gemm<float>(float*) in 7: 50000", in order; waits without a time.
inline std::vector<std::string> nsys_spans(const ReadNsys& report, std::size_t rank = 0) {
  std::vector<std::string> out;
  for (const SpanMark& span : report.ranks.at(rank).spans) {
    const std::string& stream = report.tables.str(span.stream);
    out.push_back(report.tables.str(span.name) + (stream.empty() ? "" : " in " + stream) +
                  (span.after != kNone ? "" : fmt::format(": {}", span.duration)));
  }
  return out;
}

}  // namespace lockstep::trace
