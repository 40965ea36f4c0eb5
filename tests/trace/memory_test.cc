// Readers keep to the memory that their headers promise, on files made of the smallest records that
// cost anything: what a format's usual files need says nothing of a hostile one.
#include <sqlite3.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/trace/counted_memory.h"
#include "tests/trace/formats/pickle_writer.h"
#include "trace/formats/format.h"

namespace lockstep::trace {
namespace {

// Just past a power of two: a vector that doubles has the most to spare, and the most to copy.
constexpr int kRecords = (1 << 13) + 1;
// Whatever the file's size: the tables' first blocks, the parsers' buffers.
constexpr std::size_t kConstant = std::size_t{1} << 18U;

std::string repeated(const std::function<std::string(int)>& record) {
  std::string out;
  for (int i = 0; i < kRecords; ++i) out += record(i);
  return out;
}

std::string hex(int i) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  do {
    out.insert(out.begin(), kDigits[i % 16]);
    i /= 16;
  } while (i > 0);
  return out;
}

// Protobuf's wire format.
std::string varint(std::uint64_t value) {
  std::string out;
  for (; value >= 128; value >>= 7U) out += static_cast<char>(value % 128 + 128);
  return out + static_cast<char>(value);
}
std::string block(std::string_view content) {
  return varint(content.size()) + std::string(content);
}
// As a node's id: from 2 on, 1 being the first node's.
std::string id(int i) { return varint(static_cast<std::uint64_t>(i) + 2); }
std::string graph(const std::string& nodes) {
  return block(
             "\x0a\x05"
             "0.0.4") +
         block("\x08\x01\x12\x01n") + nodes;
}

using Json = nlohmann::ordered_json;

// A profile of torch.profiler; `events(i)`: what it holds of record i, a list.
std::string profile(const std::function<Json(int)>& events) {
  Json all = Json::array();
  for (int i = 0; i < kRecords; ++i)
    for (Json& event : events(i)) all.push_back(std::move(event));
  return Json{{"schemaVersion", 1},
              {"distributedInfo", {{"rank", 0}, {"world_size", 2}}},
              {"traceEvents", std::move(all)}}
      .dump();
}
Json kineto_call(int i, const Json& more = Json::object()) {
  Json args = {{"Collective name", "a"}};
  args.update(more);
  return {
      {"ph", "X"}, {"cat", "cpu_op"}, {"name", "record_param_comms"}, {"ts", i}, {"args", args}};
}
Json nccl_kernel(int i) {
  return {{"ph", "X"}, {"cat", "kernel"}, {"name", "nccl"},
          {"ts", i},   {"dur", 1},        {"args", {{"External id", i}, {"Collective name", "a"}}}};
}
// Work of the device ("kernel") or of the host ("cuda_runtime"), as short as it can be.
Json short_work(const char* category, const char* name, int at, const Json& args = Json::object()) {
  return {{"cat", category}, {"name", name}, {"ts", at}, {"dur", 1}, {"args", args}};
}

// A report as SQLite database, with the table `ns` of kRecords numbers while it is made.
std::string nsys_database(const std::string& statements) {
  const std::string all = fmt::format(
      R"(CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
         CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, "end" INT, shortName INT);
         CREATE TEMP TABLE ns AS WITH RECURSIVE s(n) AS
           (SELECT 0 UNION ALL SELECT n + 1 FROM s WHERE n < {}) SELECT n FROM s;
         {})",
      kRecords, statements);
  sqlite3* database = nullptr;
  sqlite3_open(":memory:", &database);
  EXPECT_EQ(sqlite3_exec(database, all.c_str(), nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_int64 size = 0;
  unsigned char* const bytes = sqlite3_serialize(database, "main", &size, 0);
  std::string out(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size));
  sqlite3_free(bytes);
  sqlite3_close(database);
  return out;
}

// A kernel of a report of Nsight Systems, as short as it can be.
std::string nsys_kernel(int at, const std::string& kernel) {
  return fmt::format("{{\"CudaEvent\":{{\"startNs\":{},\"endNs\":{},\"kernel\":{}}}}}\n", 2 * at,
                     2 * at + 1, kernel);
}

std::string nccl(const std::string& process, const std::string& message) {
  return "h:" + process + ":1 [0] NCCL INFO " + message + "\n";
}

std::string timeout(int rank, int seq) {
  const std::string r = std::to_string(rank);
  const std::string prefix = "[rank" + r + "]:[E ProcessGroupNCCL.cpp:1] ";
  return fmt::format(
      "{}[Rank {}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={}, OpType=A, "
      "NumelIn=1, NumelOut=1, Timeout(ms)=1) ran\n{}[PG ID 0 PG GUID 0(default_pg) Rank {}] "
      "failure detected by watchdog at work sequence id: {} PG status: last enqueued work: "
      "1000000, last completed work: 1\n",
      prefix, r, seq, prefix, r, seq);
}

// A dump of a rank; its entries have these sizes.
std::string dump(const std::function<void(PickleWriter&, int)>& sizes) {
  PickleWriter w;
  w.begin_dict().text("entries").begin_list();
  for (int i = 0; i < kRecords; ++i) {
    w.begin_dict().text("process_group").pair("0", "").text("collective_seq_id").integer(i + 1);
    w.text("profiling_name").text("nccl:all_reduce").text("state").text("scheduled");
    w.text("input_sizes").begin_list();
    sizes(w, i);
    w.end_list().end_dict();
  }
  w.end_list().end_dict();
  return w.finish();
}

struct Case {
  std::string name;
  Format format;
  std::size_t factor;
  std::function<std::string()> file;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

using Files = std::vector<std::pair<const char*, std::function<std::string()>>>;

std::vector<Case> cases_of(const Format& format, std::size_t factor, const Files& files) {
  std::vector<Case> out;
  for (const auto& [name, file] : files) out.push_back({name, format, factor, file});
  return out;
}

std::vector<Case> chakra_cases() {
  return cases_of(
      chakra_format(), kChakraMemoryFactor,
      {
          {"chakra_dependencies",
           [] {
             const std::string deps(std::size_t{kRecords} * 32, '\x01');
             return graph(block("\x08\x02\x2a" + block(deps)));
           }},
          {"chakra_empty_nodes", [] { return graph(std::string(kRecords, '\0')); }},
          {"chakra_nodes",
           [] { return graph(repeated([](int i) { return block("\x08" + id(i)); })); }},
          {"chakra_messages",
           [] { return graph(repeated([](int) { return std::string("\x02\x18\x05"); })); }},
          {"chakra_messages_with_ids",
           [] {
             return graph(repeated([](int i) { return block("\x08" + id(i) + "\x18\x05"); }));
           }},
          {"chakra_work",
           [] { return graph(repeated([](int) { return std::string("\x02\x18\x04"); })); }},
          {"chakra_work_with_ids",
           [] {
             return graph(repeated([](int i) { return block("\x08" + id(i) + "\x18\x04"); }));
           }},
          {"chakra_groups",
           [] {
             return graph(repeated([](int i) {
               return block("\x18\x07\x52" + block("\x0a\x07pg_name\xea\x01" + block(hex(i))));
             }));
           }},
      });
}

std::vector<Case> flight_recorder_cases() {
  return cases_of(
      flight_recorder_format(), kFlightRecorderMemoryFactor,
      {
          {"pickled_lists",
           [] {
             PickleWriter w;
             w.begin_dict().text("entries").begin_list();
             w.raw(std::string(std::size_t{kRecords} * 32, ']')).end_list().end_dict();
             return w.finish();
           }},
          {"flight_recorder_entries",
           [] {
             return dump([](PickleWriter& w, int i) { w.begin_list().integer(i).end_list(); });
           }},
          {"flight_recorder_shared_sizes",
           [] {
             std::uint32_t shared = 0;
             return dump([&](PickleWriter& w, int i) {
               if (i == 0) {
                 w.begin_list();
                 for (int d = 0; d < kRecords; ++d) w.integer(1);
                 w.end_list();
                 shared = w.memoize();
               } else {
                 w.get(shared);
               }
               w.begin_list().integer(i).end_list();
             });
           }},
      });
}

std::vector<Case> kineto_cases() {
  return cases_of(
      kineto_format(), kKinetoMemoryFactor,
      {
          {"kineto_calls",
           [] { return profile([](int i) { return Json::array({kineto_call(i)}); }); }},
          {"kineto_groups",
           [] {
             return profile([](int i) {
               return Json::array({kineto_call(i, {{"Process Group Name", hex(i)}})});
             });
           }},
          {"kineto_kernels",
           [] { return profile([](int i) { return Json::array({nccl_kernel(i)}); }); }},
          {"kineto_calls_and_kernels",
           [] {
             return profile([](int i) {
               return Json::array({kineto_call(i, {{"External id", i}}), nccl_kernel(i)});
             });
           }},
          {"kineto_work",
           [] {
             return profile([](int i) { return Json::array({short_work("kernel", "k", 2 * i)}); });
           }},
          {"kineto_work_and_launches",
           [] {
             return profile([](int i) {
               const Json args = {{"correlation", i}};
               return Json::array({short_work("kernel", "k", 2 * i, args),
                                   short_work("cuda_runtime", "Launch", 2 * i, args)});
             });
           }},
          {"kineto_syncs",
           [] {
             return profile([](int i) {
               return Json::array({short_work("kernel", "k", 2 * i),
                                   short_work("cuda_runtime", "Synchronize", 2 * i)});
             });
           }},
          {"kineto_steps",
           [] {
             return profile([](int i) {
               const std::string name = fmt::format("ProfilerStep#{}", i);
               return Json::array({{{"ph", "X"}, {"name", name}, {"ts", i}, {"dur", 1}}});
             });
           }},
      });
}

std::vector<Case> nsys_cases() {
  return cases_of(
      nsys_format(), kNsysMemoryFactor,
      {
          {"nsys_strings",
           [] {
             return "{\"data\":[\"\"" + repeated([](int) { return std::string(",\"\""); }) +
                    "]}\n" + nsys_kernel(0, "{}");
           }},
          {"nsys_separate_strings",
           [] {
             return repeated([](int i) {
                      return fmt::format("{{\"type\":\"String\",\"id\":{},\"value\":\"\"}}\n", i);
                    }) +
                    nsys_kernel(0, "{}");
           }},
          {"nsys_work", [] { return repeated([](int i) { return nsys_kernel(i, "{}"); }); }},
          {"nsys_calls",
           [] {
             return "{\"data\":[\"ncclDevKernel_AllReduce_Sum\"]}\n" +
                    repeated([](int i) { return nsys_kernel(i, "{\"shortName\":0}"); });
           }},
          {"nsys_steps",
           [] {
             return repeated([](int i) {
                      return fmt::format(
                          "{{\"NvtxEvent\":{{\"Timestamp\":{},\"EndTimestamp\":{},"
                          "\"Text\":\"iter{}\"}}}}\n",
                          i, i + 1, i);
                    }) +
                    nsys_kernel(0, "{}");
           }},
          {"nsys_processes",
           [] {
             return repeated([](int i) {
               return fmt::format(
                   "{{\"CudaEvent\":{{\"startNs\":0,\"endNs\":0,\"globalPid\":{},"
                   "\"deviceId\":{},\"kernel\":{{}}}}}}\n",
                   std::int64_t{i} << 24U, i);
             });
           }},
      });
}

std::vector<Case> nsys_database_cases() {
  return cases_of(
      nsys_format(), kNsysDatabaseMemoryFactor,
      {
          {"nsys_database_work",
           [] {
             return nsys_database("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL SELECT n, n, 0 FROM ns;");
           }},
          {"nsys_database_calls",
           [] {
             return nsys_database(
                 "INSERT INTO StringIds VALUES(0, 'ncclDevKernel_AllReduce_Sum');"
                 "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL SELECT n, n, 0 FROM ns;");
           }},
          {"nsys_database_strings",
           [] {
             return nsys_database(
                 "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES(0, 0, 0);"
                 "INSERT INTO StringIds SELECT n, '' FROM ns;");
           }},
      });
}

std::vector<Case> nccl_log_cases() {
  return cases_of(
      nccl_log_format(), kNcclLogMemoryFactor,
      {
          {"nccl_calls",
           [] {
             return nccl("1", "comm 0x1 rank 0 nranks 2 commId 0x1 - Init COMPLETE") +
                    repeated([](int i) {
                      return nccl("1", "AllReduce: opCount " + hex(i) +
                                           " sendbuff 0 recvbuff 0 count 1 datatype 7 op 0 root 0 "
                                           "comm 0x1 [nranks=2] stream 0");
                    });
           }},
          {"nccl_processes",
           [] {
             return repeated([](int i) {
               return nccl(std::to_string(i), "comm 0x" + hex(i) + " rank 0 nranks 2 commId 0x" +
                                                  hex(i) + " - Init COMPLETE");
             });
           }},
          {"nccl_old_processes",  // no commId; two sizes each, in turn
           [] {
             return repeated([](int i) {
               return nccl(std::to_string(i / 2), "comm 0x" + hex(i) + " rank 0 nranks " +
                                                      (i % 2 == 0 ? "2" : "3") +
                                                      " - Init COMPLETE");
             });
           }},
          {"nccl_communicators",
           [] {
             return repeated([](int i) {
               return nccl("1", "comm 0x" + hex(i + 1) + " rank 0 nranks 2 commId 0x" + hex(i + 1) +
                                    " - Init COMPLETE");
             });
           }},
      });
}

std::vector<Case> execution_trace_cases() {
  return cases_of(
      execution_trace_format(), kExecutionTraceMemoryFactor,
      {
          {"execution_trace_calls",
           [] {
             Json nodes = Json::array();
             for (int i = 0; i < kRecords; ++i)
               nodes.push_back(
                   {{"name", "record_param_comms"}, {"id", i}, {"inputs", {i + 1, 9, 0, "a"}}});
             return Json{{"schema", "1"}, {"nodes", std::move(nodes)}}.dump();
           }},
      });
}

std::vector<Case> clog_cases() {
  return cases_of(clog_format(), kClogMemoryFactor,
                  {
                      {"clog_signatures",
                       [] {
                         return "V|1|base_timestamp=1\n" +
                                repeated([](int i) { return fmt::format("C{}|sig|a\n", i); });
                       }},
                      {"clog_calls",
                       [] {
                         return "V|1|base_timestamp=1\nC1|sig|a\n" +
                                repeated([](int) { return std::string("C1|Q|+1\n"); });
                       }},
                      {"clog_communicators",
                       [] {
                         return "V|1|base_timestamp=1\n" + repeated([](int i) {
                                  return "split|child=" + hex(i) + "|ranks=0\n";
                                });
                       }},
                  });
}

std::vector<Case> detail_log_cases() {
  return cases_of(detail_log_format(), kDetailLogMemoryFactor,
                  {
                      {"detail_ranks",
                       [] {
                         return repeated([](int i) {
                           const std::string call =
                               " is running collective: CollectiveFingerPrint(OpType=A";
                           const std::string rank = fmt::format("Rank {}", i);
                           return "Detected mismatch between collectives on ranks. " + rank + call +
                                  rank + call + "\n";
                         });
                       }},
                  });
}

std::vector<Case> watchdog_log_cases() {
  return cases_of(
      watchdog_log_format(), kWatchdogLogMemoryFactor,
      {
          {"watchdog_timeouts", [] { return repeated([](int i) { return timeout(0, i + 1); }); }},
          {"watchdog_ranks", [] { return repeated([](int i) { return timeout(i, 1); }); }},
          {"watchdog_ranks_that_issued_what_others_hang_in",
           [] { return repeated([](int i) { return timeout(i, i % 64 + 2); }); }},
          {"watchdog_exceptions",
           [] {
             return timeout(0, 1) + repeated([](int i) {
                      const std::string rank = fmt::format("[rank{}]: ", i);
                      return rank + "Traceback (most recent call last):\n" + rank + "E: x\n";
                    });
           }},
          {"watchdog_desync_report",
           [] {
             return timeout(0, 1) + "[0] Timeout at collective: A, #1\n#1 started ranks:\n[0" +
                    repeated([](int i) {
                      constexpr int kRanksPerLine = 4096;  // longer lines are cut
                      return i % kRanksPerLine == 0 ? fmt::format("] started A\n[{}", i)
                                                    : fmt::format(", {}", i);
                    }) +
                    "] started A\n";
           }},
      });
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const auto& of_format :
       {chakra_cases, flight_recorder_cases, kineto_cases, nsys_cases, nsys_database_cases,
        nccl_log_cases, execution_trace_cases, clog_cases, detail_log_cases, watchdog_log_cases})
    for (Case& c : of_format()) all.push_back(std::move(c));
  return all;
}

class Memory : public testing::TestWithParam<Case> {};

TEST_P(Memory, StaysBelowWhatTheHeaderSays) {
  const std::string file = GetParam().file();
  std::size_t records = 0;
  std::size_t most = 0;
  {
    Tables tables;
    const PeakMemory peak;
    auto traces = GetParam().format.read({file, "x_rank_0", Rank(0), /*work=*/true}, tables);
    ASSERT_TRUE(traces) << traces.error().str();
    if (GetParam().format.link != nullptr) GetParam().format.link(*traces, tables);
    most = peak.bytes();
    for (const RankTrace& trace : *traces) {
      records += 1 + trace.events.size() + trace.groups.size() + trace.damaged_count;
    }
  }
  EXPECT_GT(records, 0U);
  RecordProperty("factor", std::to_string(most / file.size()));
  EXPECT_LE(most, GetParam().factor * file.size() + kConstant)
      << "factor " << static_cast<double>(most) / static_cast<double>(file.size());
}

INSTANTIATE_TEST_SUITE_P(Readers, Memory, testing::ValuesIn(cases()),
                         [](const auto& of) { return of.param.name; });

}  // namespace
}  // namespace lockstep::trace
