// The work of ranks on a CPU, from the moments of their calls, through `lockstep simulate trace`.
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/run_lockstep.h"
#include "tests/support/temp_dir.h"
#include "tests/support/trace_lines.h"

namespace lockstep::sim {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMicro = 1'000'000;  // picoseconds

std::string at(const char* kind, int id, std::int64_t micros, const LineKeys& more = {}) {
  LineKeys keys = {{"t", micros * 1000}};
  keys.update(more.is_null() ? LineKeys::object() : more);
  return kind == std::string("issue") ? issue_line(id, "world", "all_reduce", keys)
                                      : event_line(kind, id, keys);
}
std::string step(int n, std::int64_t micros) {
  return json_line({{"ev", "step"}, {"n", n}, {"t", micros * 1000}});
}

struct Simulated {
  Json json;
  std::string text;
  std::int64_t micros(std::size_t rank, const char* key) const {
    return std::int64_t{json["ranks"][rank][key]} / kMicro;
  }
};

// Ranks, by their lines after the header. `json`: where the result goes.
cli::Outcome run(const std::vector<std::string>& lines, LineKeys header,
                 const std::vector<std::string>& more, const std::string& json) {
  const TempDir traces;
  // From a recorder that times waits.
  header.update({{"host", "node"}, {"converted", "ring"}});
  for (std::size_t r = 0; r < lines.size(); ++r)
    traces.write(
        fmt::format("rank_{}.trace.jsonl", r),
        header_line(static_cast<int>(r), lines.size(), header) + lines[r] + end_line("clean"));
  std::vector<std::string> arguments = {"simulate", "trace", traces.path(), "--output",
                                        "json=" + json};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return cli::run_lockstep(arguments);
}

Simulated simulate(const std::vector<std::string>& lines, const LineKeys& header,
                   const std::vector<std::string>& more = {}) {
  const TempDir folder;
  const std::string json = folder.file("out.json");
  const cli::Outcome outcome = run(lines, header, more, json);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  return {Json::parse(TempDir::read(json)), outcome.out};
}

const LineKeys kOnCpu = {{"backend", "gloo"}, {"ends_of_waits", true}};

// Rank 1 begins 5 us late. Each call takes what the rank took that came last.
const std::vector<std::string> kBlocking = {
    at("issue", 0, 100) + at("complete", 0, 110) + at("issue", 1, 210) + at("complete", 1, 250) +
        step(0, 260),
    at("issue", 0, 105) + at("complete", 0, 110) + at("issue", 1, 240) + at("complete", 1, 250) +
        step(0, 250)};

TEST(HostTimes, WhatARankDidBetweenItsCallsIsWork) {
  const Simulated s = simulate(kBlocking, kOnCpu, {"--recorded-calls"});
  EXPECT_EQ(s.micros(0, "compute_ps"), 100 + 10);
  EXPECT_EQ(s.micros(1, "compute_ps"), 5 + 130);
  EXPECT_EQ(s.micros(0, "time_ps"), 160);  // as it was: from 100 to 260
  EXPECT_EQ(s.micros(0, "recorded_ps"), 160);
  EXPECT_EQ(s.micros(1, "time_ps"), 150);
}

// Nobody recorded whether ranks on one host had a core each, so the answer says what it would mean.
TEST(HostTimes, RanksOfOneHostMayHaveSharedCores) {
  const auto notes = [](const LineKeys& header) {
    const Simulated s = simulate(kBlocking, header, {"--alpha", "1us", "--beta", "1GB/s"});
    return s.json.value("notes", Json::array()).dump();
  };
  EXPECT_NE(notes(kOnCpu).find("If the 2 on a host shared cores"), std::string::npos);
  // Nothing was inferred of gaps beside a device's work.
  EXPECT_EQ(notes({{"backend", "nccl"}, {"ends_of_waits", true}}).find("shared"),
            std::string::npos);
}

// So what-ifs move it.
TEST(HostTimes, CallsAndWorkCanBeChanged) {
  const Simulated fast = simulate(kBlocking, kOnCpu, {"--recorded-calls", "--scale-calls", "0"});
  EXPECT_EQ(fast.micros(0, "time_ps"), 5 + 130 + 10);
  const Simulated slow = simulate(kBlocking, kOnCpu, {"--recorded-calls", "--slow", "1=2"});
  EXPECT_EQ(slow.micros(1, "time_ps"), 10 + 5 + 260 + 10);
}

// An asynchronous call leaves the host free until it waits; until the thread runs again after the
// call, its time is its own. What the thread notes while it waits ends no wait.
TEST(HostTimes, WaitsAreNoWork) {
  const LineKeys async = {{"async", true}};
  const std::string lines = at("issue", 0, 0, async) + at("issue", 1, 10, async) +
                            at("wait", 0, 40) + step(0, 50) + at("complete", 0, 80) +
                            at("waited", 0, 83) + at("complete", 1, 85) + at("wait", 1, 90) +
                            at("waited", 1, 91) + step(1, 100);
  const Simulated s = simulate({lines, lines}, kOnCpu, {"--recorded-calls"});
  EXPECT_EQ(s.micros(0, "compute_ps"), 10 + 30 + (90 - 80) + (100 - 90));
  EXPECT_EQ(s.micros(0, "time_ps"), 100);
}

// Spans are work already, and the rest of their gap is, too.
TEST(HostTimes, SpansCountOnce) {
  const std::string span =
      json_line({{"ev", "span"}, {"name", "encode"}, {"t", 120'000}, {"dur", 60'000}});
  const std::string lines = at("issue", 0, 100) + at("complete", 0, 110) + span +
                            at("issue", 1, 210) + at("complete", 1, 250);
  const Simulated s = simulate({lines, lines}, kOnCpu, {"--recorded-calls"});
  EXPECT_EQ(s.micros(0, "compute_ps"), 100);
  EXPECT_EQ(s.micros(0, "time_ps"), 150);
}

// On a GPU the gaps are launches; without the ends of waits nobody knows when a rank went on.
TEST(HostTimes, NothingIsInferredWhereGapsAreNoWork) {
  const std::vector<std::string> links = {"--alpha", "1us", "--beta", "1GB/s"};
  for (const LineKeys& header : {LineKeys{{"backend", "nccl"}, {"ends_of_waits", true}},
                                 LineKeys{{"backend", "gloo"}, {"ends_of_waits", false}}}) {
    const Simulated s = simulate(kBlocking, header, links);
    EXPECT_EQ(s.json["computes"], false) << header;
    EXPECT_THAT(s.text, testing::HasSubstr("hold no computing")) << header;
  }
}

// A rank with a device's work has said what it did.
TEST(HostTimes, GapsBesideADevicesWorkAreNone) {
  const std::string kernel =
      json_line({{"ev", "span"}, {"name", "k"}, {"stream", "7"}, {"t", 120'000}, {"dur", 60'000}});
  const Simulated s = simulate({kBlocking[0] + kernel, kBlocking[1] + kernel}, kOnCpu,
                               {"--alpha", "1us", "--beta", "1GB/s"});
  EXPECT_EQ(s.micros(0, "compute_ps"), 60);
}

// Clocks that were set back, or made up.
TEST(HostTimes, RefusesTimesBeyondItsClock) {
  const std::vector<std::int64_t> moments = {0, -1, INT64_MIN, INT64_MAX, 5, INT64_MAX - 1, -7};
  std::string lines;
  for (std::size_t i = 0; i < moments.size(); ++i) {
    const int id = static_cast<int>(i);
    lines += issue_line(id, "world", "all_reduce", {{"t", moments[i]}}) +
             event_line("complete", id, {{"t", moments[moments.size() - 1 - i]}}) +
             json_line({{"ev", "span"}, {"name", "x"}, {"t", moments[i]}, {"dur", INT64_MAX}});
  }
  const TempDir folder;
  const cli::Outcome outcome =
      run({lines, lines}, kOnCpu, {"--recorded-calls"}, folder.file("out.json"));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, testing::HasSubstr("longer than 106 days"));
}

}  // namespace
}  // namespace lockstep::sim
