// Flight Recorder dumps: from bytes to a verdict.
#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"
#include "tests/trace/formats/pickle_writer.h"
#include "trace/formats/format.h"
#include "trace/load.h"
#include "verify/verify.h"

namespace lockstep::trace {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

struct Entry {
  std::string name = "nccl:all_reduce";
  int seq = 1;
  int elements = 8;
  std::string state = "completed";
  int line = 10;
  bool p2p = false;
  int output = -1;  // elements; -1: as many
  int record = -1;  // record_id; -1: the one after the last entry's
};

std::string dump_of(const std::vector<Entry>& entries, int world, int completed = -1) {
  std::string ranks = "[";
  for (int r = 0; r < world; ++r) ranks += (r == 0 ? "" : ", ") + std::to_string(r);
  PickleWriter w;
  w.begin_dict().text("version").text("2.10").text("pg_config").begin_dict();
  w.text("0").begin_dict().text("name").text("0").text("desc").text("default_pg");
  w.text("ranks").text(ranks + "]").end_dict().end_dict();
  w.text("pg_status").begin_dict().text("0").begin_dict();
  w.text("last_completed_collective").integer(completed).end_dict().end_dict();
  w.text("entries").begin_list();
  int id = 0;
  for (const Entry& e : entries) {
    w.begin_dict().text("frames").begin_list();
    for (const auto& [file, line] : {std::pair(std::string("/x/torch/distributed.py"), 7),
                                     std::pair(std::string("train.py"), e.line)}) {
      w.begin_dict().text("name").text("f").text("filename").text(file).text("line").integer(line);
      w.end_dict();
    }
    if (e.record >= 0) id = e.record;
    w.end_list().text("record_id").integer(id++).text("pg_id").integer(0);
    w.text("process_group").pair("0", "default_pg");
    w.text("collective_seq_id").integer(e.p2p ? 0 : e.seq);
    w.text("p2p_seq_id").integer(e.p2p ? e.seq : 0);
    w.text("profiling_name").text(e.name).text("time_created_ns").integer(1000 + id);
    for (const char* const side : {"input_sizes", "output_sizes"}) {
      const bool other = e.output >= 0 && std::string_view(side) == "output_sizes";
      w.text(side).begin_list().begin_list().integer(other ? e.output : e.elements);
      w.end_list().end_list();
    }
    for (const char* const side : {"input_dtypes", "output_dtypes"}) {
      w.text(side).begin_list().text("Float").end_list();
    }
    w.text("state").text(e.state).text("retired").boolean(e.state == "completed");
    w.text("is_p2p").boolean(e.p2p).end_dict();
  }
  w.end_list().end_dict();
  return w.finish();
}

class FlightRecorder : public testing::Test {
 protected:
  void write(int rank, const std::string& bytes) {
    dir_.write(fmt::format("nccl_trace_rank_{}", rank), bytes);
  }
  trace::Run load() {
    Result<trace::Run> run = load_run({dir_.path()});
    EXPECT_TRUE(run) << (run ? "" : run.error().str());
    return run ? std::move(*run) : trace::Run{};
  }
  TempDir dir_;
};

TEST_F(FlightRecorder, ReadsCallsLocationsAndTheWorld) {
  for (int r = 0; r < 3; ++r)
    write(r, dump_of({{}, {.name = "nccl:all_reduce_barrier", .seq = 2}}, 3));
  const trace::Run run = load();
  EXPECT_EQ(run.world_size, 3);
  ASSERT_THAT(run.ranks, SizeIs(3));
  const RankTrace& trace = run.ranks[1];
  ASSERT_THAT(trace.calls, SizeIs(2));
  EXPECT_EQ(run.tables.str(trace.calls[0].at), "train.py:10");
  EXPECT_THAT(run.tables.str(trace.calls[0].stack), HasSubstr("/x/torch/distributed.py:7 f\n"));
  EXPECT_TRUE(trace.calls[0].has(kCompleted));
  EXPECT_EQ(trace.calls[1].seq, 1U);
  EXPECT_EQ(run.tables.signatures[trace.calls[1].signature].op, Op::barrier);
  EXPECT_EQ(run.tables.signatures[trace.calls[0].signature].in_elements, 8);
}

// Some backends name an exchange with splits as c10d's function; no dump holds the splits.
TEST_F(FlightRecorder, AnExchangeMayHaveSplitsWhateverItsName) {
  write(0, dump_of({{.name = "nccl:all_to_all"}, {.name = "xccl:alltoall_base", .seq = 2}}, 2));
  const trace::Run run = load();
  ASSERT_THAT(run.ranks, SizeIs(1));
  for (const trace::Call& call : run.ranks[0].calls)
    EXPECT_EQ(run.tables.signatures[call.signature].op, Op::all_to_all);
}

// A dump without entries: the groups `names`, all of ranks 0 and 1, and the counters of `pg_ids`.
std::string idle_dump(const std::vector<std::string>& names, const std::vector<int>& pg_ids) {
  PickleWriter w;
  w.begin_dict().text("pg_config").begin_dict();
  for (const std::string& name : names) {
    w.text(name).begin_dict().text("name").text(name).text("ranks").text("[0, 1]").end_dict();
  }
  w.end_dict().text("pg_status").begin_dict();
  for (const int id : pg_ids) {
    w.text(std::to_string(id)).begin_dict();
    w.text("last_completed_collective").integer(100 + id).end_dict();
  }
  w.end_dict().text("entries").begin_list().end_list().end_dict();
  return w.finish();
}

std::map<std::string, std::uint64_t> completed_by_group(const trace::Run& run) {
  std::map<std::string, std::uint64_t> out;
  for (const auto& p : run.ranks[0].progress) out[run.tables.str(p.group)] = p.completed.value();
  return out;
}

TEST_F(FlightRecorder, ADumpWithCallsOfTwoBackendsIsOneOfNccl) {
  write(0, dump_of({{.name = "gloo:all_reduce"}}, 3));
  write(1, dump_of({{.name = "gloo:all_reduce"}, {.name = "nccl:all_reduce", .seq = 2}}, 3));
  write(2, dump_of({}, 3));
  const trace::Run run = load();
  ASSERT_THAT(run.ranks, SizeIs(3));
  EXPECT_EQ(run.ranks[0].backend, "gloo");
  EXPECT_EQ(run.ranks[1].backend, "nccl");
  EXPECT_EQ(run.ranks[2].backend, "nccl");
}

TEST_F(FlightRecorder, CountersOfGroupsWithoutEntriesFollowTheOrderOfCreation) {
  write(0, idle_dump({"57", "0", "9"}, {3, 0, 12}));
  write(1, idle_dump({"0"}, {0}));
  using Map = std::map<std::string, std::uint64_t>;
  EXPECT_EQ(completed_by_group(load()), (Map{{"0", 100}, {"9", 103}, {"57", 112}}));
}

TEST_F(FlightRecorder, CountersWithoutAKnownGroupAreNotUsed) {
  write(0, idle_dump({"0", "9"}, {0, 3, 12}));
  write(1, idle_dump({"0"}, {0}));
  EXPECT_THAT(completed_by_group(load()), testing::IsEmpty());
  write(0, idle_dump({"0", "local"}, {0, 3}));
  EXPECT_THAT(completed_by_group(load()), testing::IsEmpty());
}

TEST_F(FlightRecorder, PartsThatAreReferredToWithoutEndAreDamage) {
  constexpr int kEntries = 3000;
  for (const char* const part : {"frames", "input_dtypes", "output_dtypes"}) {
    SCOPED_TRACE(part);
    PickleWriter w;
    w.begin_dict().text("entries").begin_list();
    std::uint32_t shared = 0;
    for (int i = 0; i < kEntries; ++i) {
      w.begin_dict().text("process_group").pair("0", "").text("collective_seq_id").integer(i + 1);
      // Not the same call twice in a row, which would be known by its parts.
      w.text("profiling_name").text(i % 2 == 0 ? "nccl:all_reduce" : "nccl:broadcast");
      w.text("state").text("scheduled").text(part);
      if (i == 0) {
        w.begin_list();
        for (int f = 0; f < kEntries; ++f) w.begin_dict().text("line").integer(f).end_dict();
        w.end_list();
        shared = w.memoize();
      } else {
        w.get(shared);
      }
      w.end_dict();
    }
    w.end_list().end_dict();
    write(0, w.finish());
    const trace::Run run = load();
    ASSERT_THAT(run.ranks, SizeIs(1));
    EXPECT_LT(run.ranks[0].calls.size(), std::size_t{kEntries});
    ASSERT_FALSE(run.ranks[0].damaged.empty());
    EXPECT_THAT(run.ranks[0].damaged[0].message, HasSubstr("refers to the same parts too often"));
  }
}

TEST_F(FlightRecorder, APeerThatCanBeNoRankIsDamage) {
  write(0, dump_of({{.name = "nccl:send 0->2147483647", .p2p = true}}, 0));
  const trace::Run run = load();
  ASSERT_THAT(run.ranks, SizeIs(1));
  EXPECT_EQ(run.ranks[0].damaged_count, 1U);
}

TEST_F(FlightRecorder, ADumpThatWasCutOffCountsAsFarAsItGoes) {
  const std::string whole = dump_of({{}, {.seq = 2}, {.seq = 3}}, 2);
  write(0, whole);
  std::size_t calls_before = 0;
  for (std::size_t cut = 0; cut < whole.size(); ++cut) {
    write(1, whole.substr(0, cut));
    const trace::Run run = load();
    if (run.ranks.size() < 2) continue;
    EXPECT_TRUE(run.ranks[1].open_ended);
    EXPECT_GT(run.ranks[1].damaged_count, 0U) << cut;
    EXPECT_GE(run.ranks[1].calls.size(), calls_before);
    calls_before = run.ranks[1].calls.size();
  }
  EXPECT_EQ(calls_before, 3U);
}

TEST_F(FlightRecorder, SurvivesEveryFlippedBit) {
  const std::string good = dump_of({{}, {.name = "nccl:send 0->1", .seq = 1, .p2p = true}}, 2);
  Tables tables;
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string bytes = good;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    (void)flight_recorder_format().read({bytes, "f", Rank(0)}, tables);
  }
}

// A dump of active calls only leaves out what completed, but not the calls of batches that did.
Entry message(const std::string& name, int seq, int record, int elements = 8) {
  return {.name = name,
          .seq = seq,
          .elements = elements,
          .state = "scheduled",
          .p2p = true,
          .record = record};
}

TEST_F(FlightRecorder, ADumpOfActiveCallsDoesNotBeginWithABatchThatCompleted) {
  // Rank 1 was dumped a moment later than rank 0.
  for (int r = 0; r < 2; ++r) {
    const std::string send = fmt::format("nccl:send {}->{}", r, 1 - r);
    const std::string receive = fmt::format("nccl:recv {}<-{}", r, 1 - r);
    const Entry newest =
        r == 0 ? Entry{.seq = 5, .elements = 64, .state = "scheduled"}
               : Entry{.name = "nccl:_all_gather_base", .seq = 7, .state = "scheduled"};
    std::vector<Entry> entries = {message(send, 1, 0), message(receive, 1, 1), newest};
    entries.back().record = 7 + 2 * r;
    write(r, dump_of(entries, 2));
  }
  const trace::Run run = load();
  for (const RankTrace& trace : run.ranks) {
    ASSERT_THAT(trace.calls, SizeIs(3));
    EXPECT_TRUE(trace.calls[0].has(kCompleted));
    EXPECT_TRUE(trace.calls[1].has(kCompleted));
    EXPECT_FALSE(trace.calls[2].has(kCompleted));
    EXPECT_GT(trace.dropped, 0U);
  }
  // Their calls are not compared as if both were the process's first.
  for (const verify::Finding& f : verify::verify(run).findings)
    EXPECT_NE(verify::rule(f.rule).family, "matching") << f.message;
}

TEST_F(FlightRecorder, ADumpOfActiveCallsHoldsCallsThatAreOpen) {
  const auto any_completed = [&](const std::vector<Entry>& entries) {
    write(0, dump_of(entries, 2));
    const trace::Run run = load();
    return std::any_of(run.ranks[0].calls.begin(), run.ranks[0].calls.end(),
                       [](const Call& c) { return c.has(kCompleted); });
  };
  const Entry open = {.seq = 5, .state = "scheduled", .record = 7};
  const Entry first = message("nccl:send 0->1", 1, 0), second = message("nccl:recv 0<-1", 1, 1);
  EXPECT_TRUE(any_completed({first, second, open}));
  // The entry that closes the batch is there.
  EXPECT_FALSE(any_completed({first, second, message("nccl:coalesced", 1, 2), open}));
  // A message without a batch has no such entry: what is left out is another call.
  EXPECT_FALSE(any_completed({first, open}));
  // Nothing is left out: the process has not closed the batch yet.
  EXPECT_FALSE(any_completed({first, second, {.seq = 1, .state = "scheduled", .record = 2}}));
}

TEST_F(FlightRecorder, ARankIsNeededAndThePatternFindsIt) {
  const std::string bytes = dump_of({{}}, 2);
  dir_.write("node-a", bytes);
  const Result<trace::Run> none = load_run({dir_.file("node-a")});
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().fix, HasSubstr("--rank-pattern"));
  dir_.write("n7x1y9", bytes);
  const Result<trace::Run> found =
      load_run({dir_.file("n7x1y9")}, {.format = "", .rank_pattern = "x(\\d)y", .threads = 1});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->ranks[0].rank, Rank(1));
}

TEST_F(FlightRecorder, FilesOfTwoFormatsAreAnErrorThatNamesThem) {
  write(0, dump_of({{}}, 1));
  dir_.write("rank_0.trace.jsonl", R"({"header":1,"rank":0,"world_size":1})");
  const Result<trace::Run> run = load_run({dir_.path()});
  ASSERT_FALSE(run);
  EXPECT_THAT(run.error().message, HasSubstr("nccl_trace_rank_0"));
  EXPECT_THAT(run.error().message, HasSubstr("rank_0.trace.jsonl"));
  EXPECT_TRUE(load_run({dir_.path()}, {.format = "text", .rank_pattern = "", .threads = 1}));
}

TEST_F(FlightRecorder, TheJsonTwinSaysTheSame) {
  const std::string entry =
      R"({"collective_seq_id":1,"input_dtypes":["Float"],"input_sizes":[[8]],"is_p2p":false,)"
      R"("output_dtypes":["Float"],"output_sizes":[[8]],"p2p_seq_id":0,"pg_id":0,)"
      R"("process_group":["0","default_pg"],"profiling_name":"gloo:all_reduce","record_id":0,)"
      R"("retired":true,"state":"scheduled","time_created_ns":5,)"
      R"("time_discovered_completed_ns":0,"time_discovered_started_ns":0})";
  const auto dump = [](const std::string& of) {
    return R"({"entries":[)" + of +
           R"(],"pg_config":{},"pg_status":{"0":{"last_completed_collective":"1"}},)"
           R"("version":"2.10"})";
  };
  dir_.write("rank_0.json", dump(entry));
  const trace::Run run = load();
  ASSERT_THAT(run.ranks, SizeIs(1));
  ASSERT_THAT(run.ranks[0].calls, SizeIs(1));
  EXPECT_TRUE(run.ranks[0].calls[0].has(kCompleted));  // gloo: `retired` tells
  EXPECT_EQ(run.ranks[0].backend, "gloo");
  std::string of_nccl = entry;
  of_nccl.replace(of_nccl.find("gloo:"), 5, "nccl:");
  dir_.write("rank_0.json", dump(of_nccl));
  const trace::Run counted = load();
  ASSERT_THAT(counted.ranks[0].progress, SizeIs(1));
  EXPECT_EQ(counted.ranks[0].progress[0].completed, 1U);
}

std::string json_dump(const std::string& more) {
  return "{" + more +
         R"("entries":[{"collective_seq_id":1,"input_dtypes":["Float"],"input_sizes":[[8]],)"
         R"("is_p2p":false,"output_dtypes":["Float"],"output_sizes":[[8]],"p2p_seq_id":0,"pg_id":0,)"
         R"("process_group":["0","default_pg"],"profiling_name":"nccl:all_reduce","record_id":0,)"
         R"("retired":true,"state":"completed","time_created_ns":5,)"
         R"("time_discovered_completed_ns":9,"time_discovered_started_ns":7}],)"
         R"("pg_config":{},"pg_status":{},"version":"2.10"})";
}

TEST_F(FlightRecorder, WithoutARankInTheNameTheDumpDecides) {
  dir_.write("node-a.json", json_dump(R"("rank":3,"host_name":"gpu7",)"));
  const trace::Run run = load();
  ASSERT_THAT(run.ranks, SizeIs(1));
  EXPECT_EQ(run.ranks[0].rank, Rank(3));
  EXPECT_EQ(run.ranks[0].host, "gpu7");
}

// An entry as torchcomms' recorder writes it: one number for the calls of all communicators.
std::string comms_entry(int number, const std::string& comm, const std::string& op, int size) {
  const std::string n = std::to_string(number);
  return R"({"collective_seq_id":)" + n + R"(,"input_dtypes":["Float"],"input_sizes":[[)" +
         std::to_string(size) + R"(]],"is_p2p":false,"output_dtypes":["Float"],"output_sizes":[[)" +
         std::to_string(size) + R"(]],"p2p_seq_id":0,"pg_id":0,"process_group":[")" + comm +
         R"(","ncclx"],"profiling_name":"ncclx:)" + op + R"(","record_id":)" + n +
         R"(,"retired":true,"state":"completed","time_created_ns":5,)"
         R"("time_discovered_completed_ns":9,"time_discovered_started_ns":7})";
}

TEST_F(FlightRecorder, TorchcommsNumbersAllCommunicatorsTogether) {
  const auto dump_of = [](const std::string& entries) {
    return R"({"entries":[)" + entries +
           R"(],"pg_config":{"main":{"name":"main","desc":"ncclx","ranks":"[0,1]"}},)"
           R"("pg_status":{},"version":"2.10"})";
  };
  // Rank 1 sends a message between its collectives, which only shifts its numbers.
  dir_.write("rank_0.json", dump_of(comms_entry(0, "main", "all_reduce", 8) + "," +
                                    comms_entry(1, "main", "all_reduce", 4)));
  dir_.write("rank_1.json", dump_of(comms_entry(0, "main", "all_reduce", 8) + "," +
                                    comms_entry(1, "other", "send", 8) + "," +
                                    comms_entry(2, "main", "all_reduce", 4)));
  EXPECT_EQ(verify::verify(load()).verdict, verify::Verdict::clean);
  // Without the ring's beginning nothing lines them up.
  dir_.write("rank_1.json", dump_of(comms_entry(5, "other", "send", 8) + "," +
                                    comms_entry(6, "main", "gather", 4)));
  EXPECT_EQ(verify::verify(load()).verdict, verify::Verdict::inconclusive);
}

TEST_F(FlightRecorder, EqualDamageIsShownOnce) {
  for (int r = 0; r < 2; ++r) {
    PickleWriter w;
    w.begin_dict().text("entries").begin_list();
    for (int n = 0; n < 3; ++n) w.begin_dict().text("state").text("completed").end_dict();
    w.end_list().end_dict();
    write(r, w.finish());
  }
  const verify::Report report = verify::verify(load());
  ASSERT_THAT(report.findings, SizeIs(1));
  EXPECT_THAT(report.findings[0].message, HasSubstr("6 records"));
  EXPECT_THAT(report.findings[0].evidence, SizeIs(2));
}

// Messages count as collectives there, on the ranks that exchange them.
TEST_F(FlightRecorder, DumpsOfPyTorch23AreNotAligned) {
  for (int r = 0; r < 2; ++r) {
    PickleWriter w;
    w.begin_dict().text("version").text("1.4").text("entries").begin_list();
    for (int n = 1; n <= 2; ++n) {
      w.begin_dict().text("record_id").integer(n - 1).text("pg_id").integer(0);
      w.text("seq_id").integer(n + r).text("op_id").integer(n);
      w.text("profiling_name").text("nccl:all_reduce").text("state").text("completed").end_dict();
    }
    w.end_list().end_dict();
    write(r, w.finish());
  }
  const verify::Report report = verify::verify(load());
  EXPECT_EQ(report.verdict, verify::Verdict::inconclusive);
  EXPECT_THAT(report.findings, testing::IsEmpty());
  EXPECT_THAT(report.unknown, testing::Contains(HasSubstr("PyTorch 2.4 and later do")));
}

// What PyTorch's debug server shows of two ranks, the third of which it cannot reach.
std::string page() {
  std::string escaped;
  for (const char c : json_dump("")) escaped += c == '"' ? std::string("&#34;") : std::string(1, c);
  return "<!doctype html>\n<h1>FlightRecorder</h1>\n<h2>Rank 0: gpu1:25999</h2>\n<pre>" + escaped +
         "</pre>\n<h2>Rank 1: gpu2:25999</h2>\n<pre>" + escaped +
         "</pre>\n<h2>Rank 2: gpu3:25999</h2>\n<p>Failed to fetch: status=500</p>\n<pre>x</pre>\n";
}

TEST_F(FlightRecorder, ThePageOfTheDebugServerHoldsAllRanks) {
  dir_.write("fr_trace_json.html", page());
  const trace::Run run = load();
  ASSERT_THAT(run.ranks, SizeIs(2));
  EXPECT_EQ(run.ranks[1].rank, Rank(1));
  EXPECT_EQ(run.ranks[1].host, "gpu2:25999");
  EXPECT_THAT(run.ranks[1].calls, SizeIs(1));
}

TEST_F(FlightRecorder, ADamagedPageIsSurvived) {
  const std::string good = page();
  for (std::size_t length = 0; length < good.size(); ++length) {
    Tables tables;
    const std::string cut = good.substr(0, length);
    (void)flight_recorder_format().recognises(cut);
    (void)flight_recorder_format().read({cut, "f", std::nullopt}, tables);
  }
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    Tables tables;
    std::string bytes = good;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    (void)flight_recorder_format().read({bytes, "f", std::nullopt}, tables);
  }
}

// The verdict, and the culprits of its errors: "findings 2 3".
std::string judged_dumps(const trace::Run& run) {
  const verify::Report report = verify::verify(run);
  std::string out(verify::to_string(report.verdict));
  for (const verify::Finding& f : report.findings) {
    if (f.severity == verify::Severity::note) continue;
    for (const Rank rank : f.culprits) out += " " + std::to_string(rank.value);
  }
  return out;
}

// Each rank receives from the next one, which has posted no send. Cut off, one dump lacks that.
TEST_F(FlightRecorder, ARankWhoseDumpIsCutOffIsNotAccusedOfItsMessages) {
  for (int r = 0; r < 3; ++r) {
    const std::string name = fmt::format("nccl:recv {}<-{}", r, (r + 1) % 3);
    const std::string whole = dump_of(
        {{}, {.name = name, .seq = 1, .state = "scheduled", .line = 20, .p2p = true}}, 3, 1);
    write(r, r == 2 ? whole.substr(0, whole.size() - 200) : whole);
  }
  EXPECT_EQ(judged_dumps(load()), "inconclusive");
}

// A flipped bit changes one value of rank 1's dump. Where that contradicts what else the dump says,
// it is damage and no fault of the rank.
class DamagedDump : public FlightRecorder {
 protected:
  static std::vector<Entry> entries() {
    std::vector<Entry> out;
    for (int seq = 1; seq <= 6; ++seq) out.push_back({.seq = seq});
    return out;
  }
  // What is said where rank 1's dump has `from` replaced by `to` at its `nth` occurrence.
  std::string judged(const std::string& from, const std::string& to, int nth = 0) {
    const std::string whole = dump_of(entries(), 3, 6);
    for (int r = 0; r < 3; ++r) write(r, whole);
    EXPECT_EQ(judged_dumps(load()), "clean");
    std::string damaged = whole;
    std::size_t at = damaged.find(from);
    for (; nth > 0; --nth) at = damaged.find(from, at + 1);
    EXPECT_NE(at, std::string::npos);
    damaged.replace(at, from.size(), to);
    write(1, damaged);
    const trace::Run run = load();
    EXPECT_GT(run.ranks[1].damaged_count, 0U);
    return judged_dumps(run);
  }
};

TEST_F(DamagedDump, ANameThatIsKnownButForOneByte) {
  EXPECT_EQ(judged("nccl:all_reduce", "nccl:all_reeuce"), "inconclusive");
  EXPECT_EQ(judged("nccl:all_reduce", "nccl{all_reduce"), "inconclusive");
  EXPECT_EQ(judged("collective_seq_id", "collective_seq_ie"), "inconclusive");
  EXPECT_EQ(judged("Float", "Flo!t"), "inconclusive");
  EXPECT_EQ(judged("entries", "entriec"), "inconclusive");
}

// Rank 1 may have completed the last call, as all others have; the word that says so is damaged.
TEST_F(DamagedDump, AStateThatIsKnownButForOneByte) {
  for (const char* const state : {"scheduled", "sbheduled", "cmmpleted"}) {
    for (int r = 0; r < 3; ++r) {
      std::vector<Entry> calls = entries();
      calls.push_back({.seq = 7, .state = "scheduled"});
      if (r == 1) calls[5].state = state;
      write(r, dump_of(calls, 3, -1));
    }
    const bool stalled = std::string_view(state) != "cmmpleted";
    EXPECT_EQ(judged_dumps(load()), stalled ? "findings 1" : "inconclusive") << state;
  }
}

// A rank that really makes another call is named.
TEST_F(DamagedDump, AnotherOperationIsNoDamage) {
  for (int r = 0; r < 3; ++r) {
    std::vector<Entry> calls = entries();
    if (r == 1) calls[3].name = "nccl:new_operation";
    write(r, dump_of(calls, 3, 6));
  }
  EXPECT_EQ(judged_dumps(load()), "findings 1");
}

// Sizes that do not fit each other may be what is wrong with the rank's program.
TEST_F(DamagedDump, SizesThatDoNotFitAreNoDamage) {
  for (const auto& [input, output] : {std::pair(72, 8), std::pair(75, 8), std::pair(75, 75)}) {
    for (int r = 0; r < 3; ++r) {
      std::vector<Entry> calls = entries();
      if (r == 1) calls[3].elements = input, calls[3].output = output;
      write(r, dump_of(calls, 3, 6));
    }
    EXPECT_EQ(judged_dumps(load()), "findings 1") << input << output;
  }
}

// A rank that made another number of calls before has other numbers from there on.
TEST_F(DamagedDump, ANumberThatSkipsAndComesBack) {
  for (const bool back : {false, true}) {
    for (int r = 0; r < 3; ++r) {
      std::vector<Entry> calls = entries();
      if (r == 1) calls[3].seq = 4 + 64;
      if (r == 1 && !back) calls.resize(4);
      calls.back().state = "scheduled";
      write(r, dump_of(calls, 3, -1));
    }
    EXPECT_EQ(judged_dumps(load()), back ? "inconclusive" : "findings 1");
  }
}

// The process counted the call whose entry is lost: it made it.
TEST_F(DamagedDump, ALostEntryIsNoCallThatTheRankLeftOut) {
  for (const bool lost : {true, false}) {
    for (int r = 0; r < 3; ++r) {
      std::vector<Entry> calls = entries();
      calls.back().state = "scheduled";
      if (r == 1 && lost) calls[3].name = "nccl:send 1->9", calls[3].p2p = true;
      if (r == 1 && !lost) calls.resize(3);
      write(r, dump_of(calls, 3, -1));
    }
    EXPECT_EQ(judged_dumps(load()), lost ? "inconclusive" : "findings 1");
  }
}

TEST_F(DamagedDump, AMessageOfAnotherRank) {
  for (int r = 0; r < 2; ++r) {
    std::vector<Entry> calls = {{}};
    const std::string name = r == 0 ? "nccl:send 0->1" : "nccl:recv 1<-0";
    calls.push_back({.name = name, .seq = 1, .p2p = true});
    calls.push_back({.name = r == 0 ? name : "nccl:recv 0<-0", .seq = 2, .p2p = true});
    write(r, dump_of(calls, 2, -1));
  }
  EXPECT_EQ(judged_dumps(load()), "inconclusive");
}

// Ranks 0 and 1 may just be ahead. So they may be where the dump of a rank that is behind is gone.
// Calls by letter, each of its own size, numbered from `seq` on; the ring lost those before.
std::vector<Entry> ring_of(const std::string& letters, int seq, std::size_t completed = 0) {
  std::vector<Entry> out;
  for (const char c : letters) {
    const bool open = out.size() >= completed;
    out.push_back({.seq = seq, .elements = c - 'a' + 1, .state = open ? "scheduled" : "completed"});
    if (out.size() == 1) out.back().record = seq - 1;
    ++seq;
  }
  return out;
}

// The rule and the culprits of the first finding.
std::string first_finding(const trace::Run& run) {
  const verify::Report report = verify::verify(run);
  if (report.findings.empty()) return "";
  std::string out(verify::rule(report.findings[0].rule).name);
  for (const Rank rank : report.findings[0].culprits) out += " " + std::to_string(rank.value);
  return out;
}

// Rank 2's round has no b where its last one had it. Others wait in a b: in the call that comes
// next, or in one to which rank 2 has not come.
TEST_F(FlightRecorder, ARankThatIsCallsBehindDidNotGoPastTheCall) {
  for (const int behind : {0, 6}) {
    for (int r = 0; r < 2; ++r) write(r, dump_of(ring_of("bc", 20), 3));
    write(2, dump_of(ring_of("cbcdc", 15 - behind), 3));
    const bool passed_by = first_finding(load()).starts_with("missing-collective");
    EXPECT_EQ(passed_by, behind == 0);
  }
}

// Rank 1 was dumped some messages later than rank 0, and both rings have lost most of them. The two
// that are left are one message if nothing else than their being the last ones says so.
TEST_F(FlightRecorder, MessagesThatNothingPairsDoNotDiffer) {
  const auto sizes_differ = [&](const std::vector<int>& sent, const std::vector<int>& received,
                                bool completed) {
    std::vector<Entry> sends, receives;
    for (const int elements : sent)
      sends.push_back(message("nccl:send 0->1", 9 + static_cast<int>(sends.size()), 20, elements));
    for (const int elements : received)
      receives.push_back(
          message("nccl:recv 1<-0", 15 + static_cast<int>(receives.size()), 40, elements));
    for (std::size_t i = 0; i < sends.size(); ++i) {
      if (i + 1 < sends.size()) sends[i].state = "completed";
      sends[i].record += static_cast<int>(i);
    }
    for (std::size_t i = 0; i < receives.size(); ++i) {
      if (completed || i + 1 < receives.size()) receives[i].state = "completed";
      receives[i].record += static_cast<int>(i);
    }
    write(0, dump_of(sends, 2));
    write(1, dump_of(receives, 2));
    return first_finding(load()).starts_with("p2p-size");
  };
  EXPECT_FALSE(sizes_differ({64}, {8}, /*completed=*/true));
  EXPECT_TRUE(sizes_differ({64}, {8}, /*completed=*/false));
  EXPECT_TRUE(sizes_differ({4, 5, 64}, {4, 5, 8}, /*completed=*/false));
}

// Steps of two rounds ab, and c. Rank 2 makes c after one round; the others' rings have lost the
// place where they went on with the second one.
TEST_F(FlightRecorder, AManyRanksShorterRingIsNoEvidenceAgainstThem) {
  const auto judged = [&](const std::string& others, int from) {
    for (int r = 0; r < 5; ++r)
      write(r, dump_of(r == 2 ? ring_of("babcabc", 2, 6)
                              : ring_of(others, from, static_cast<std::size_t>(8 - from)),
                       5));
    return first_finding(load());
  };
  EXPECT_THAT(judged("cababcabab", 5), testing::EndsWith(" 2"));
  EXPECT_THAT(judged("abcababcabab", 3), testing::EndsWith(" 2"));
}

TEST_F(FlightRecorder, AMissingDumpMakesNoMajority) {
  const auto dump = [](bool ahead) {
    std::vector<Entry> entries = {{}, {.seq = 2}};
    if (ahead) entries.push_back({.seq = 3, .elements = 99, .state = "scheduled", .line = 30});
    return dump_of(entries, 4, 2);
  };
  for (int r = 0; r < 4; ++r) write(r, dump(r < 2));
  EXPECT_EQ(judged_dumps(load()), "inconclusive");
  ASSERT_TRUE(std::filesystem::remove(dir_.file("nccl_trace_rank_3")));
  EXPECT_EQ(judged_dumps(load()), "inconclusive");
}

// Ranks 2 and 3 left out the call of line 20. Without rank 0's dump the only one that made it must
// not look like one that made a call too many.
TEST_F(FlightRecorder, AMissingDumpMakesNoMinority) {
  const auto dump = [](bool all) {
    std::vector<Entry> entries = {{.line = 10}};
    if (all) entries.push_back({.seq = 2, .line = 20});
    const int last = all ? 3 : 2;
    entries.push_back({.seq = last, .line = 10});
    if (all) entries.back().state = "scheduled";
    return dump_of(entries, 4, 2);
  };
  for (int r = 0; r < 4; ++r) write(r, dump(r < 2));
  EXPECT_EQ(judged_dumps(load()), "findings 2 3");
  const std::string whole = dump(true);
  for (std::size_t cut = 10; cut < whole.size(); cut += 7) {
    write(0, whole.substr(0, cut));
    EXPECT_THAT(judged_dumps(load()), Not(HasSubstr("1"))) << cut;
  }
  ASSERT_TRUE(std::filesystem::remove(dir_.file("nccl_trace_rank_0")));
  EXPECT_EQ(judged_dumps(load()), "findings") << "nobody";
}

}  // namespace
}  // namespace lockstep::trace
