// What timeline_report() writes, in the reader that people open it with.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "reports/findings/timeline_report.h"
#include "tests/reports/findings/trace_reader.h"
#include "tests/reports/samples.h"
#include "tests/support/trace_lines.h"
#include "tests/verify/program.h"
#include "verify/verify.h"

namespace lockstep::reports {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

class PerfettoReads : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_perfetto(); !why.empty()) GTEST_SKIP() << why;
  }
  // The rows of one query.
  Json ask(const std::string& file, const std::string& query) {
    Perfetto perfetto;
    const auto answers = perfetto.ask(file, {query});
    EXPECT_TRUE(answers) << perfetto.complaint();
    return answers ? (*answers)[0] : Json::array();
  }
  std::string timeline(const verify::Report& report, const trace::Run& run,
                       const TimelineOptions& options = {}) {
    return folder_.write("timeline.json", timeline_report(report, run, options));
  }
  std::string timeline(const trace::Run& run, const TimelineOptions& options = {}) {
    return timeline(verify::verify(run), run, options);
  }

  TempDir folder_;
};

TEST_F(PerfettoReads, AHungRunWithMessagesSpansAndWaits) {
  const std::string file = timeline(verify::program(
      {"span load; all_reduce n=8 what=a async; all_reduce n=8 what=b async; wait 0; wait "
       "1; send n=4 peer=1 ptag=0; step 0; all_reduce n=2 what=c step=1 open; hung",
       "all_reduce n=8 what=a async; all_reduce n=8 what=b async; wait 0; wait 1; recv n=4 "
       "peer=0 ptag=0; step 0; clean"}));
  expect_perfetto_reads(file);
  const Json found = ask(file,
                         "select slice.name, process.name as at from slice join process_track on "
                         "slice.track_id = process_track.id join process using (upid)");
  ASSERT_EQ(found.size(), 1U);
  EXPECT_THAT(std::string(found[0]["name"]), testing::StartsWith("error "));
  EXPECT_EQ(found[0]["at"], "rank 1");
}

TEST_F(PerfettoReads, ASliceHasItsTimeToTheNanosecond) {
  const std::string rank = all_reduce(0, "w", 8, {{"t", 100000000001}}) +
                           event_line("complete", 0, {{"t", 100123456790}}) +
                           all_reduce(1, "w", 8, {{"t", 100123456790}}) +
                           event_line("complete", 1, {{"t", 100123456791}}) + kClean;
  const std::string file = timeline(inline_run({rank}));
  expect_perfetto_reads(file);
  EXPECT_EQ(ask(file, "select ts, dur from slice order by ts"),
            Json::parse(R"([{"ts":0,"dur":123456789},{"ts":123456789,"dur":1}])"));
}

// As derivations are: no times, and what completes is for the verifier to say.
TEST_F(PerfettoReads, AProgramThatNeverRanStaysWhereItHangs) {
  const std::string file =
      timeline(verify::program({"all_reduce n=8 what=a; all_reduce n=8 what=b; barrier; clean",
                                "all_reduce n=8 what=a; barrier; clean"},
                               /*timed=*/false));
  expect_perfetto_reads(file);
  const Json slices = ask(file,
                          "select process.name as rank, slice.name as call, dur from slice join "
                          "thread_track on slice.track_id = thread_track.id join thread using "
                          "(utid) join process using (upid) where dur > 0 order by upid, ts");
  EXPECT_EQ(slices, Json::parse(R"json([
    {"rank":"rank 0","call":"all_reduce(a)","dur":1000},
    {"rank":"rank 0","call":"all_reduce(b) (unfinished)","dur":1000},
    {"rank":"rank 1","call":"all_reduce(a)","dur":1000},
    {"rank":"rank 1","call":"barrier (unfinished)","dur":1000}])json"));
}

TEST_F(PerfettoReads, HostileNamesAsTheyAre) {
  const std::string name = std::string("\"},{\0", 5) + "\u202e\\u001b[31m</script>%s";
  const trace::Run run = inline_run(
      {issue_line(0, "world", "all_reduce",
                  {{"in", {{8}}}, {"dtype", name}, {"what", {name, "\U0001f600"}}, {"t", 0}}) +
           complete(0) + json_line({{"ev", "span"}, {"name", name}, {"t", 1}, {"dur", 5}}),
       kClean});
  verify::Report report = verify::verify(run);
  report.findings.push_back(hostile_finding());
  const std::string file = timeline(report, run);
  expect_perfetto_reads(file);
  EXPECT_THAT(ask(file, "select name from slice").dump(), HasSubstr("</script>"));
}

TEST_F(PerfettoReads, AThousandRanks) {
  constexpr int kRanks = 1000;
  std::vector<std::string> ranks;
  for (int r = 0; r < kRanks; ++r) {
    std::string text;
    for (int call = 0; call < 20; ++call) {
      const int t = call * 100'000 + r * 7;
      text += all_reduce(call, fmt::format("w{}", call), 8, {{"t", t}}) +
              event_line("complete", call, {{"t", (call + 1) * 100'000 - 1}});
    }
    ranks.push_back(text + (r == 500 ? "" : all_reduce(20, "last", 8, {{"t", 2100000}})) + kHung);
  }
  const std::string file = timeline(inline_run(ranks));
  expect_perfetto_reads(file);
  EXPECT_EQ(ask(file, "select count(*) as n from process where name glob 'rank *'")[0]["n"], 1000);
  EXPECT_EQ(ask(file, "select count(*) as n from flow")[0]["n"], 20 * 999 + 998);
}

TEST_F(PerfettoReads, CountersOfWhatARankHolds) {
  TimelineOptions options;
  options.counters = {{1, "memory (bytes), rank 1:", {"parameters", "activations"}, {}}};
  options.counters[0].points = {{1000, {10, 0}}, {2000, {10, 5'000'000'000}}, {3000, {10, 0}}};
  const std::string rank =
      all_reduce(0, "w", 8, {{"t", 1000}}) + event_line("complete", 0, {{"t", 3000}}) + kClean;
  const std::string file = timeline(inline_run({rank, rank}), options);
  expect_perfetto_reads(file);
  EXPECT_EQ(ask(file,
                "select t.name, process.name as at, max(value) as most, max(ts) as last from "
                "counter join process_counter_track t on track_id = t.id join process using (upid) "
                "group by 1 order by 1"),
            Json::parse(R"json([
    {"name":"memory (bytes), rank 1: activations","at":"rank 1","most":5e9,"last":2000},
    {"name":"memory (bytes), rank 1: parameters","at":"rank 1","most":10.0,"last":2000}])json"));
}

// The checks above would see what is wrong.
TEST_F(PerfettoReads, ItComplainsOfWhatIsBroken) {
  const std::string loose = folder_.write("loose.json", R"({"traceEvents":[
    {"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":5,"args":{}},
    {"ph":"X","name":"b","pid":1,"tid":1,"ts":3,"dur":5,"args":{}},
    {"ph":"f","name":"m","cat":"m","pid":1,"tid":1,"id":7,"ts":2,"bp":"e"}]})");
  const std::string complaints = ask(loose, "select name from stats where value > 0").dump();
  EXPECT_THAT(complaints, HasSubstr("flow_end_without_start"));
  EXPECT_THAT(complaints, HasSubstr("slice_drop_overlapping_complete_event"));
  Perfetto perfetto;
  EXPECT_FALSE(perfetto.ask(folder_.write("no.json", "{\"traceEvents\":[{\"ph\":"), {"select 1"}));
  EXPECT_THAT(perfetto.complaint(), HasSubstr("trace_query: "));
  EXPECT_FALSE(perfetto.ask(loose, {"select nothing"}));
}

}  // namespace
}  // namespace lockstep::reports
