#include "reports/findings/timeline_report.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "tests/reports/samples.h"
#include "tests/support/trace_lines.h"
#include "verify/verify.h"

namespace lockstep::reports {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

Json timeline(const trace::Run& run, const TimelineOptions& options = {}) {
  return Json::parse(timeline_report(verify::verify(run), run, options));
}

std::vector<Json> events_of(const Json& timeline, const std::string& phase) {
  std::vector<Json> out;
  for (const Json& event : timeline["traceEvents"])
    if (event["ph"] == phase) out.push_back(event);
  return out;
}

const LineKeys kAsync = {{"async", true}};
LineKeys time_at(trace::Nanos time) { return {{"t", time}}; }
LineKeys async_at(trace::Nanos time) { return {{"async", true}, {"t", time}}; }
std::string event(const char* kind, int id, trace::Nanos time) {
  return event_line(kind, id, time_at(time));
}

// What viewers need: slices of one thread that nest, and arrows with two ends inside of slices.
void expect_well_formed(const Json& timeline) {
  std::map<std::uint64_t, std::vector<std::pair<double, double>>> threads;
  std::map<std::uint64_t, std::uint64_t> process_of;
  for (const Json& slice : events_of(timeline, "X")) {
    const double begin = slice["ts"];
    threads[slice["tid"]].emplace_back(begin, begin + slice["dur"].get<double>());
    const auto [known, fresh] = process_of.try_emplace(slice["tid"], slice["pid"]);
    EXPECT_EQ(known->second, slice["pid"]) << "a thread of two processes";
    EXPECT_GT(slice["pid"], 0) << "process 0 is the idle task";
  }
  for (auto& [thread, slices] : threads) {
    std::sort(slices.begin(), slices.end());
    for (std::size_t i = 1; i < slices.size(); ++i)
      EXPECT_GE(slices[i].first, slices[i - 1].second - 1e-6) << "thread " << thread;
  }
  std::map<std::uint64_t, std::vector<std::pair<double, std::string>>> arrows;
  for (const char* phase : {"s", "t", "f"}) {
    for (const Json& arrow : events_of(timeline, phase)) {
      arrows[arrow["id"]].emplace_back(arrow["ts"], phase);
      const auto& slices = threads[arrow["tid"]];
      EXPECT_TRUE(std::any_of(slices.begin(), slices.end(), [&](const auto& slice) {
        return slice.first <= arrow["ts"] && arrow["ts"] < slice.second;
      }));
    }
  }
  for (auto& [id, parts] : arrows) {
    std::stable_sort(parts.begin(), parts.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    ASSERT_GE(parts.size(), 2U);
    EXPECT_EQ(parts.front().second, "s");
    EXPECT_EQ(parts.back().second, "f");
  }
}

TEST(Timeline, HasAProcessPerRankATrackPerGroupAndASlicePerCall) {
  const auto rank = [](trace::Nanos late) {
    return all_reduce(0, "w", 8, time_at(1000 + late)) + event("complete", 0, 5000) +
           all_reduce(1, "b", 8, time_at(6000)) + event("complete", 1, 7000) +
           json_line({{"ev", "step"}, {"n", 0}, {"loss", 0.5}, {"t", 7500}}) + kClean;
  };
  const Json file = timeline(inline_run({rank(0), rank(500)}));
  expect_well_formed(file);
  EXPECT_EQ(file["otherData"]["time"], "recorded");
  EXPECT_EQ(file["otherData"]["verdict"], "clean");
  std::set<std::string> names;
  for (const Json& event : events_of(file, "M"))
    if (event["args"].contains("name")) names.insert(event["args"]["name"]);
  EXPECT_THAT(names, testing::ElementsAre("group world", "host", "rank 0", "rank 1"));

  const std::vector<Json> slices = events_of(file, "X");
  ASSERT_EQ(slices.size(), 4U);
  EXPECT_EQ(slices[0]["name"], "all_reduce(w)");
  EXPECT_EQ(slices[0]["ts"], 0);
  EXPECT_EQ(slices[0]["dur"], 4);
  EXPECT_EQ(slices[0]["args"]["seq"], 0);
  EXPECT_EQ(slices[2]["ts"], 0.5);
  const std::vector<Json> steps = events_of(file, "i");
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(steps[0]["name"], "step 0");
  EXPECT_EQ(steps[0]["args"]["loss"], 0.5);
}

TEST(Timeline, ArrowsGoFromTheFirstToComeToTheLast) {
  const auto rank = [](trace::Nanos time) {
    return all_reduce(0, "w", 8, time_at(time)) + event("complete", 0, 9000) + kClean;
  };
  const Json file = timeline(inline_run({rank(3000), rank(1000), rank(2000)}));
  expect_well_formed(file);
  EXPECT_EQ(events_of(file, "s").at(0)["pid"], 2);
  EXPECT_EQ(events_of(file, "t").at(0)["pid"], 3);
  EXPECT_EQ(events_of(file, "f").at(0)["pid"], 1);
  EXPECT_TRUE(events_of(timeline(inline_run({rank(1)})), "s").empty()) << "nobody to join";
}

TEST(Timeline, JoinsMessagesInTheirOrder) {
  const auto message = [](int id, const std::string& op, int peer, trace::Nanos time) {
    return issue_line(
               id, "world", op,
               {{"peer", peer}, {"ptag", 0}, {"in", {{4}}}, {"dtype", "float32"}, {"t", time}}) +
           event("complete", id, time + 100);
  };
  const Json file =
      timeline(inline_run({message(0, "send", 1, 1000) + message(1, "send", 1, 2000) + kClean,
                           message(0, "recv", 0, 1010) + message(1, "recv", 0, 2020) + kClean}));
  expect_well_formed(file);
  const std::vector<Json> begins = events_of(file, "s");
  const std::vector<Json> ends = events_of(file, "f");
  ASSERT_EQ(begins.size(), 2U);
  EXPECT_EQ(begins[0]["ts"], 0);
  EXPECT_EQ(ends[0]["ts"], 0.01);
  EXPECT_EQ(begins[1]["ts"], 1);
  EXPECT_EQ(ends[1]["ts"], 1.02);
}

// Calls of one stream run one after the other; what ends out of order needs a track of its own.
TEST(Timeline, SlicesOfOneTrackNeverOverlap) {
  const std::string in_order =
      all_reduce(0, "a", 8, async_at(0)) + all_reduce(1, "b", 8, async_at(10)) +
      event("complete", 0, 100) + event("complete", 1, 200) + event("wait", 0, 20) +
      event("waited", 0, 110) + event("wait", 1, 120) + event("waited", 1, 210) + kClean;
  const Json file = timeline(inline_run({in_order}));
  expect_well_formed(file);
  const std::vector<Json> slices = events_of(file, "X");
  ASSERT_EQ(slices.size(), 4U);
  EXPECT_EQ(slices[0]["name"], "wait for all_reduce(a)");
  EXPECT_EQ(slices[3]["ts"], 0.1) << "begins when the one before ends";
  EXPECT_EQ(slices[3]["args"]["begins_after_issue_ns"], 90);

  const std::string out_of_order = all_reduce(0, "a", 8, async_at(0)) +
                                   all_reduce(1, "b", 8, async_at(10)) + event("complete", 1, 100) +
                                   event("complete", 0, 200) + event("wait", 0, 300) +
                                   event("wait", 1, 310) + kClean;
  const Json crossed = timeline(inline_run({out_of_order}));
  expect_well_formed(crossed);
  EXPECT_THAT(crossed.dump(), HasSubstr("\"group world (2)\""));
}

TEST(Timeline, WhatNeverFinishedLastsUntilTheEndAndTheCulpritIsMarked) {
  const std::string done = all_reduce(0, "w", 8, time_at(0)) + event("complete", 0, 100);
  const trace::Run run =
      inline_run({done + all_reduce(1, "b", 8, {{"t", 200}, {"step", 1}}) + kHung,
                  done + json_line({{"ev", "step"}, {"n", 0}, {"t", 5000}}) + kClean});
  const Json file = timeline(run);
  expect_well_formed(file);
  EXPECT_EQ(file["otherData"]["verdict"], "findings");
  const std::vector<Json> slices = events_of(file, "X");
  const auto open = std::find_if(slices.begin(), slices.end(), [](const Json& slice) {
    return slice["args"].contains("state") && slice["cat"] == "call";
  });
  ASSERT_NE(open, slices.end());
  EXPECT_EQ((*open)["name"], "all_reduce(b) (unfinished)");
  EXPECT_GE((*open)["ts"].get<double>() + (*open)["dur"].get<double>(), 5.0);
  std::vector<Json> findings = events_of(file, "i");
  std::erase_if(findings, [](const Json& event) { return event["cat"] != "finding"; });
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_THAT(std::string(findings[0]["name"]), testing::StartsWith("error "));
  EXPECT_EQ(findings[0]["pid"], 2) << "rank 1, which went on without it";
  EXPECT_EQ(findings[0]["s"], "p");
}

TEST(Timeline, WithoutTimesItShowsTheOrderAndSaysSo) {
  const std::string rank =
      all_reduce(0, "w", 8) + complete(0) + all_reduce(1, "b", 8) + complete(1);
  const Json file = timeline(inline_run({rank + kClean, rank + kClean}));
  expect_well_formed(file);
  EXPECT_THAT(std::string(file["otherData"]["time"]), testing::StartsWith("ordinal: "));
  EXPECT_THAT(file.dump(), HasSubstr("\"ordinal time\"")) << "shown beside each rank's name";
  const std::vector<Json> slices = events_of(file, "X");
  ASSERT_EQ(slices.size(), 4U);
  EXPECT_EQ(slices[1]["ts"], 2);
}

// As derivations are: what no schedule reaches is not there, and who hangs stays where it does.
TEST(Timeline, WhatHangsInAProgramLastsUntilTheEndAndTheRestIsNotThere) {
  const std::string first = all_reduce(0, "a", 8);
  const Json file = timeline(
      inline_run({first + all_reduce(1, "b", 8) + all_reduce(2, "c", 8) + kClean, first + kClean}));
  expect_well_formed(file);
  const std::vector<Json> slices = events_of(file, "X");
  ASSERT_EQ(slices.size(), 3U);
  EXPECT_EQ(slices[0]["dur"], 1);
  EXPECT_EQ(slices[1]["name"], "all_reduce(b) (unfinished)");
  EXPECT_EQ(slices[1]["args"]["state"], "unfinished when the trace ends");
  EXPECT_EQ(slices[2]["name"], "all_reduce(a)");
  EXPECT_EQ(events_of(file, "s").size(), 1U);
  for (const Json& event : file["traceEvents"]) EXPECT_LE(event.value("ts", 0.0), 2) << event;
}

TEST(Timeline, AProgramStopsAtAWaitThatNeverEnds) {
  const std::string rank = all_reduce(0, "a", 8, kAsync) + all_reduce(1, "b", 8, kAsync) +
                           event_line("wait", 1) + all_reduce(2, "c", 8) + kClean;
  const Json file = timeline(inline_run({rank, all_reduce(0, "a", 8) + kClean}));
  expect_well_formed(file);
  std::vector<std::string> names;
  for (const Json& slice : events_of(file, "X"))
    if (slice["pid"] == 1) names.push_back(slice["name"]);
  EXPECT_THAT(names, testing::ElementsAre("wait for all_reduce(b)", "all_reduce(a)",
                                          "all_reduce(b) (unfinished)"));
}

TEST(Timeline, AWaitThatTookNoTimeIsLeftOut) {
  const Json file =
      timeline(inline_run({R"({"ev":"span","name":"forward","t":0,"dur":100})"
                           "\n" +
                           all_reduce(0, "a", 8, async_at(50)) + event("complete", 0, 60) +
                           event("wait", 0, 100) + event("waited", 0, 100) +
                           R"({"ev":"span","name":"update","t":100,"dur":50})"
                           "\n" +
                           kClean}));
  expect_well_formed(file);
  EXPECT_EQ(events_of(file, "X").size(), 3U);
  EXPECT_THAT(file.dump(), testing::Not(HasSubstr("host (2)")));
}

TEST(Timeline, CountersAreOnTheClockOfTheRun) {
  TimelineOptions options;
  options.counters = {{1, "memory:", {"a", "b"}, {{5000, {1, 2}}, {7500, {3, 4}}}}};
  const std::string rank =
      all_reduce(0, "w", 8, time_at(4000)) + event("complete", 0, 8000) + kClean;
  const Json file = timeline(inline_run({rank, rank}), options);
  const std::vector<Json> values = events_of(file, "C");
  ASSERT_EQ(values.size(), 2U);
  EXPECT_EQ(values[0]["pid"], 2);
  EXPECT_EQ(values[0]["ts"], 1);
  EXPECT_EQ(values[1]["ts"], 3.5);
  EXPECT_EQ(values[1]["args"], Json::parse(R"({"a":3,"b":4})"));
}

// Where the beginning of a run is left out, so is that of its counters.
TEST(Timeline, CountersBeginWithWhatIsShown) {
  std::string rank;
  for (int i = 0; i < 10; ++i)
    rank += all_reduce(i, "w", 8, time_at(i * 100)) + event("complete", i, i * 100 + 50);
  TimelineOptions options;
  options.most_entries = 2;
  options.counters = {{0, "memory:", {"a"}, {{0, {1}}, {740, {2}}, {850, {3}}}}};
  EXPECT_EQ(events_of(timeline(inline_run({rank + kClean}), options), "C").size(), 1U);
}

TEST(Timeline, SomeTimesMissingTakeTheOneBefore) {
  const std::string rank = all_reduce(0, "w", 8, time_at(100)) + complete(0) +
                           all_reduce(1, "b", 8, time_at(900)) + event("complete", 1, 950) + kClean;
  const Json file = timeline(inline_run({rank}));
  expect_well_formed(file);
  EXPECT_EQ(file["otherData"]["time"],
            "recorded; 1 event without a time took that of the one before");
}

TEST(Timeline, TheLastCallsOfALargeRunAreThere) {
  std::string rank;
  for (int i = 0; i < 50; ++i)
    rank += all_reduce(i, fmt::format("w{}", i), 8, time_at(i * 100)) +
            event("complete", i, i * 100 + 50);
  const Json file = timeline(inline_run({rank + kClean, rank + kClean}), {.most_entries = 20});
  expect_well_formed(file);
  EXPECT_EQ(events_of(file, "X").size(), 20U);
  EXPECT_EQ(events_of(file, "X")[0]["name"], "all_reduce(w40)");
  EXPECT_EQ(file["otherData"]["left_out"],
            "the first 80 calls, spans and steps; each rank's last ones are here");
}

TEST(Timeline, SpansCountAsWell) {
  std::string rank;
  for (int i = 0; i < 50; ++i)
    rank +=
        json_line({{"ev", "span"}, {"name", fmt::format("s{}", i)}, {"dur", 50}, {"t", i * 100}});
  const Json file = timeline(inline_run({rank + kClean}), {.most_entries = 5});
  expect_well_formed(file);
  EXPECT_EQ(events_of(file, "X").size(), 5U);
  EXPECT_EQ(events_of(file, "X")[0]["name"], "s45");
  EXPECT_EQ(events_of(timeline(inline_run({rank + kClean})), "X").size(), 50U);
}

TEST(Timeline, ExtremeTimesAndHostileTextStayJson) {
  const std::string dtype = std::string("\"\\\0", 3) + "<b>";
  const trace::Run run = inline_run(
      {issue_line(0, "world", "all_reduce",
                  {{"in", {{8}}}, {"dtype", dtype}, {"what", {"\"},{"}}, {"t", 0}}) +
           json_line({{"ev", "span"}, {"name", "\u202ex"}, {"t", 1}, {"dur", INT64_MAX}}) +
           event("complete", 0, INT64_MAX) + R"({"ev":"step","n":0,"loss":1e999,"t":3})" + "\n",
       "", complete(7)});
  expect_well_formed(timeline(run));
  verify::Report report = verify::verify(run);
  report.findings = {hostile_finding()};
  const std::string text = timeline_report(report, run);
  EXPECT_TRUE(Json::accept(text));
  EXPECT_EQ(text, to_utf8(text));
}

TEST(Timeline, ARunWithoutRanksIsAnEmptyTimeline) {
  const Json file = Json::parse(timeline_report(report_of({full_finding()}), {}));
  ASSERT_EQ(file["traceEvents"].size(), 1U) << "a finding without a rank to be shown at";
  EXPECT_EQ(file["traceEvents"][0]["s"], "g");
}

}  // namespace
}  // namespace lockstep::reports
