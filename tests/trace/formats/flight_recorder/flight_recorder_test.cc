// Flight Recorder dumps: from bytes to a verdict.
#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trace/formats/flight_recorder/inline_dump.h"
#include "tests/trace/formats/pickle_writer.h"
#include "trace/formats/format.h"
#include "trace/groups.h"
#include "trace/load.h"
#include "verify/verify.h"

namespace lockstep::trace {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

TEST_F(FlightRecorder, ReadsCallsLocationsAndTheWorld) {
  for (int r = 0; r < 3; ++r)
    write(r, dump_of_calls({{}, {.name = "nccl:all_reduce_barrier", .seq = 2}}, 3));
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

// A dump of one call over Gloo, of the group "3", from these files.
std::string dump_from(const std::vector<std::string>& files, const std::string& description) {
  PickleWriter w;
  w.begin_dict().text("version").text("2.10").text("pg_config").begin_dict();
  w.text("").begin_dict().text("name").text("").text("desc").text("");
  w.text("ranks").text("[0, 1]").end_dict().end_dict();
  w.text("entries").begin_list().begin_dict().text("frames").begin_list();
  for (const std::string& file : files) {
    w.begin_dict().text("name").text("f").text("filename").text(file).text("line").integer(5);
    w.end_dict();
  }
  w.end_list().text("record_id").integer(0).text("pg_id").integer(1);
  w.text("process_group").pair("3", description).text("collective_seq_id").integer(1);
  w.text("p2p_seq_id").integer(0).text("profiling_name").text("gloo:all_reduce");
  w.text("time_created_ns").integer(1000).text("state").text("scheduled");
  w.text("retired").boolean(true).text("is_p2p").boolean(false).end_dict();
  return w.end_list().end_dict().finish();
}

TEST_F(FlightRecorder, ACallsLineIsThatOfTheProgramBeforeThatOfAPackage) {
  const std::string torch = "/v/lib/python3.11/site-packages/torch/distributed/c10d_logger.py";
  const std::string wrapper = "/v/lib/python3.11/site-packages/trainer/comm.py";
  const auto line_of = [&](const std::vector<std::string>& files) {
    write(0, dump_from(files, "undefined"));
    const trace::Run run = load();
    return run.ranks.empty() ? "" : run.tables.str(run.ranks[0].calls.begin()->at);
  };
  EXPECT_EQ(line_of({torch, wrapper, "/home/a/model.py", "/home/a/train.py"}),
            "/home/a/model.py:5");
  EXPECT_EQ(line_of({torch, wrapper, "/v/lib/python3.11/threading.py"}), wrapper + ":5");
  EXPECT_EQ(line_of({torch, wrapper, "/v/bin/trainer"}), wrapper + ":5") << "pip wrote it";
  EXPECT_EQ(line_of({torch}), torch + ":5");
}

TEST_F(FlightRecorder, OverGlooAGroupIsCalledByWhatItsEntriesSay) {
  const auto label_of = [&](const std::string& description) {
    write(0, dump_from({"train.py"}, description));
    const trace::Run run = load();
    return run.ranks.empty()
               ? ""
               : group_label(run.ranks[0], run.tables, run.ranks[0].calls.begin()->group);
  };
  EXPECT_EQ(label_of("TENSOR_PARALLEL"), "TENSOR_PARALLEL");
  EXPECT_EQ(label_of("undefined"), "group 3");
}

// Some backends name an exchange with splits as c10d's function; no dump holds the splits.
TEST_F(FlightRecorder, AnExchangeMayHaveSplitsWhateverItsName) {
  write(0,
        dump_of_calls({{.name = "nccl:all_to_all"}, {.name = "xccl:alltoall_base", .seq = 2}}, 2));
  const trace::Run run = load();
  ASSERT_THAT(run.ranks, SizeIs(1));
  for (const trace::Call& call : run.ranks[0].calls)
    EXPECT_EQ(run.tables.signatures[call.signature].op, Op::all_to_all);
}

// torch_npu leaves profiling_name empty, but for coalesced calls.
TEST_F(FlightRecorder, WithoutNamesTheFramesTellWhatWasCalled) {
  const auto unnamed = [](const std::string& function, int seq, const std::string& state) {
    return DumpedCall{
        .name = "", .seq = seq, .state = state, .line = 10 * seq, .function = function};
  };
  // As of DistributedDataParallel, whose calls come from C++.
  const DumpedCall unknown = unnamed("", 2, "completed");
  const DumpedCall first = unnamed("all_gather", 1, "completed");
  write(0, dump_of_calls({first, unknown, unnamed("all_reduce", 3, "scheduled")}, 2));
  write(1, dump_of_calls({first, unknown, unnamed("broadcast", 3, "scheduled")}, 2));
  const trace::Run run = load();
  ASSERT_THAT(run.ranks, SizeIs(2));
  ASSERT_THAT(run.ranks[0].calls, SizeIs(3));
  EXPECT_EQ(run.tables.op(run.ranks[0].calls[0]), Op::all_gather);
  EXPECT_EQ(run.ranks[0].calls[1].signature, SignatureId{});
  EXPECT_EQ(run.tables.op(run.ranks[0].calls[2]), Op::all_reduce);
  EXPECT_EQ(run.tables.op(run.ranks[1].calls[2]), Op::broadcast);
  const verify::Report report = verify::verify(run);
  ASSERT_FALSE(report.findings.empty());
  EXPECT_THAT(report.findings[0].message, HasSubstr("all_reduce"));
  EXPECT_THAT(report.findings[0].message, HasSubstr("broadcast"));
}

TEST_F(FlightRecorder, AMessageWithoutANameIsLeftOut) {
  const DumpedCall gather = {.name = "", .function = "all_gather_into_tensor"};
  const DumpedCall message = {.name = "", .state = "scheduled", .p2p = true, .function = "isend"};
  write(0, dump_of_calls({gather, message}, 2));
  write(1, dump_of_calls({gather}, 2));
  const trace::Run run = load();
  ASSERT_THAT(run.ranks, SizeIs(2));
  EXPECT_THAT(run.ranks[0].calls, SizeIs(1)) << "its peer is not known";
  EXPECT_EQ(run.ranks[0].damaged_count, 0U);
  EXPECT_EQ(judged_dumps(run), "inconclusive") << "it may be what the job waits for";
  const DumpedCall completed = {.name = "", .p2p = true, .function = "isend"};
  write(0, dump_of_calls({gather, completed}, 2));
  EXPECT_EQ(judged_dumps(load()), "clean");
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
  write(0, dump_of_calls({{.name = "gloo:all_reduce"}}, 3));
  write(1, dump_of_calls({{.name = "gloo:all_reduce"}, {.name = "nccl:all_reduce", .seq = 2}}, 3));
  write(2, dump_of_calls({}, 3));
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

// A dump of active calls only leaves out what completed, but not the calls of batches that did.
DumpedCall message(const std::string& name, int seq, int record, int elements = 8) {
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
    const DumpedCall newest =
        r == 0 ? DumpedCall{.seq = 5, .elements = 64, .state = "scheduled"}
               : DumpedCall{.name = "nccl:_all_gather_base", .seq = 7, .state = "scheduled"};
    std::vector<DumpedCall> entries = {message(send, 1, 0), message(receive, 1, 1), newest};
    entries.back().record = 7 + 2 * r;
    write(r, dump_of_calls(entries, 2));
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
  const auto any_completed = [&](const std::vector<DumpedCall>& entries) {
    write(0, dump_of_calls(entries, 2));
    const trace::Run run = load();
    return std::any_of(run.ranks[0].calls.begin(), run.ranks[0].calls.end(),
                       [](const Call& c) { return c.has(kCompleted); });
  };
  const DumpedCall open = {.seq = 5, .state = "scheduled", .record = 7};
  const DumpedCall first = message("nccl:send 0->1", 1, 0),
                   second = message("nccl:recv 0<-1", 1, 1);
  EXPECT_TRUE(any_completed({first, second, open}));
  // The entry that closes the batch is there.
  EXPECT_FALSE(any_completed({first, second, message("nccl:coalesced", 1, 2), open}));
  // A message without a batch has no such entry: what is left out is another call.
  EXPECT_FALSE(any_completed({first, open}));
  // Nothing is left out: the process has not closed the batch yet.
  EXPECT_FALSE(any_completed({first, second, {.seq = 1, .state = "scheduled", .record = 2}}));
}

TEST_F(FlightRecorder, ARankIsNeededAndThePatternFindsIt) {
  const std::string bytes = dump_of_calls({{}}, 2);
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
  write(0, dump_of_calls({{}}, 1));
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

// Calls by letter, each of its own size, numbered from `seq` on; the ring lost those before.
std::vector<DumpedCall> ring_of(const std::string& letters, int seq, std::size_t completed = 0) {
  std::vector<DumpedCall> out;
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
    for (int r = 0; r < 2; ++r) write(r, dump_of_calls(ring_of("bc", 20), 3));
    write(2, dump_of_calls(ring_of("cbcdc", 15 - behind), 3));
    const bool passed_by = first_finding(load()).starts_with("missing-collective");
    EXPECT_EQ(passed_by, behind == 0);
  }
}

// Rank 1 was dumped some messages later than rank 0, and both rings have lost most of them. The two
// that are left are one message if nothing else than their being the last ones says so.
TEST_F(FlightRecorder, MessagesThatNothingPairsDoNotDiffer) {
  const auto sizes_differ = [&](const std::vector<int>& sent, const std::vector<int>& received,
                                bool completed) {
    std::vector<DumpedCall> sends, receives;
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
    write(0, dump_of_calls(sends, 2));
    write(1, dump_of_calls(receives, 2));
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
      write(r, dump_of_calls(r == 2 ? ring_of("babcabc", 2, 6)
                                    : ring_of(others, from, static_cast<std::size_t>(8 - from)),
                             5));
    return first_finding(load());
  };
  EXPECT_THAT(judged("cababcabab", 5), testing::EndsWith(" 2"));
  EXPECT_THAT(judged("abcababcabab", 3), testing::EndsWith(" 2"));
}

// Ranks 0 and 1 may just be ahead, also without the dump of one of the ranks that are behind.
TEST_F(FlightRecorder, AMissingDumpMakesNoMajority) {
  const auto dump = [](bool ahead) {
    std::vector<DumpedCall> entries = {{}, {.seq = 2}};
    if (ahead) entries.push_back({.seq = 3, .elements = 99, .state = "scheduled", .line = 30});
    return dump_of_calls(entries, 4, 2);
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
    std::vector<DumpedCall> entries = {{.line = 10}};
    if (all) entries.push_back({.seq = 2, .line = 20});
    const int last = all ? 3 : 2;
    entries.push_back({.seq = last, .line = 10});
    if (all) entries.back().state = "scheduled";
    return dump_of_calls(entries, 4, 2);
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
