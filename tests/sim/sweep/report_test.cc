#include "reports/sweeps/report.h"

#include <sstream>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "base/tables.h"

namespace lockstep::sim {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::Not;

Row plan_row(std::int64_t ranks, const std::string& strategy, double step_ms, double samples,
             double gigabytes) {
  Row out;
  out.machine = "machines/h100.yaml";
  out.values = {{"ranks", ranks}, {"strategy", strategy}};
  out.outcome = Outcome::trains;
  out.ranks = ranks;
  out.step_seconds = step_ms / 1e3;
  out.samples_per_second = samples;
  out.memory_bytes = gigabytes * 1e9;
  out.memory_counted = true;
  out.device_bytes = 80e9;
  return out;
}

Row broken(Outcome outcome, const std::string& reason) {
  Row out;
  out.machine = "machines/h100.yaml";
  out.values = {{"ranks", 3}, {"strategy", "pipeline"}};
  out.outcome = outcome;
  out.reason = reason;
  return out;
}

reports::Summary summary() {
  reports::Summary out;
  out.scenario = "a job";
  out.keys = {"ranks", "strategy"};
  out.grid_points = 9;
  out.rows = {plan_row(2, "ddp", 10, 200, 40),
              plan_row(4, "ddp", 11, 380, 40),
              plan_row(4, "fsdp", 12, 350, 20),
              plan_row(4, "manual", 13, 340, 30),  // beaten by fsdp
              plan_row(8, "ddp", 12, 700, 90),     // more than the machine has
              broken(Outcome::hangs, "modality-divergence: rank 1 never came"),
              broken(Outcome::refused, "ranks should be even\x1b[31m"),
              broken(Outcome::refused, "ranks should be even\x1b[31m"),
              broken(Outcome::failed, "the worker was killed by SIGKILL")};
  return out;
}

std::vector<std::size_t> widths(const std::string& text) {
  std::vector<std::size_t> out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) out.push_back(columns_of(line));
  return out;
}

TEST(Ranking, SortsByTheObjectiveAndMarksTheFront) {
  const reports::Summary s = summary();
  const Ranking by_samples = rank(s.rows, s.goal);
  EXPECT_THAT(by_samples.fitting, ElementsAre(1, 2, 3, 0));
  EXPECT_THAT(by_samples.too_large, ElementsAre(4));
  EXPECT_THAT(by_samples.hanging, ElementsAre(5));
  EXPECT_THAT(by_samples.refused, ElementsAre(6, 7));
  EXPECT_THAT(by_samples.failed, ElementsAre(8));
  EXPECT_THAT(by_samples.on_front,
              ElementsAre(true, true, true, false, false, false, false, false, false));
  EXPECT_THAT(rank(s.rows, {Objective::step_time, std::nullopt}).fitting, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(rank(s.rows, {Objective::samples_per_second_per_rank, std::nullopt}).fitting,
              ElementsAre(0, 1, 2, 3));
}

TEST(Ranking, TheLimitHoldsBesideTheMachines) {
  const reports::Summary s = summary();
  EXPECT_THAT(rank(s.rows, {Objective::samples_per_second, 30e9}).fitting, ElementsAre(2, 3));
  EXPECT_THAT(rank(s.rows, {Objective::samples_per_second, 30e9}).too_large, ElementsAre(0, 1, 4));
  EXPECT_THAT(rank(s.rows, {Objective::samples_per_second, 1e12}).too_large, ElementsAre(4));
}

TEST(Ranking, WhatFitsScoresBetterThanWhatDoesNotAndThatThanTheRest) {
  const reports::Summary s = summary();
  EXPECT_LT(score(s.rows[1], s.goal), score(s.rows[2], s.goal));
  EXPECT_LT(score(s.rows[3], s.goal), score(s.rows[4], s.goal));
  EXPECT_LT(score(s.rows[4], s.goal), score(s.rows[5], s.goal));
}

TEST(SweepText, HasTheTableAndTheReasons) {
  const std::string text = reports::sweep_text(summary());
  EXPECT_THAT(widths(text), Each(Le(80U))) << text;
  EXPECT_THAT(text, AllOf(HasSubstr("9 of 9 points"), HasSubstr("2 × ranks should be even"),
                          HasSubstr("1 hangs"), HasSubstr("modality-divergence"),
                          HasSubstr("does not fit: 1 plan"), HasSubstr("* Pareto front"),
                          Not(HasSubstr("\x1b")), Not(HasSubstr("exhaustive"))));
  EXPECT_LT(text.find("fsdp"), text.find("manual"));
}

TEST(SweepText, SaysWhatMemoryCounts) {
  reports::Summary s = summary();
  EXPECT_THAT(reports::sweep_text(s), HasSubstr("at its peak"));
  s.rows[0].memory_counted = false;
  EXPECT_THAT(reports::sweep_text(s),
              AllOf(HasSubstr("not counted everywhere"), Not(HasSubstr("at its peak"))));
}

TEST(SweepText, SaysThatASearchIsNotExhaustive) {
  reports::Summary s = summary();
  s.exhaustive = false;
  s.seed = 7;
  s.grid_points = 12'000;
  EXPECT_THAT(reports::sweep_text(s), AllOf(HasSubstr("9 of 12,000 points"), HasSubstr("seed 7"),
                                            HasSubstr("not exhaustive")));
}

TEST(SweepText, StaysWithin80ColumnsWhateverIsVaried) {
  for (const std::size_t keys : {0U, 1U, 5U, 6U, 7U, 20U}) {
    reports::Summary s = summary();
    s.several_machines = true;
    s.keys.clear();
    for (std::size_t i = 0; i < keys; ++i) {
      s.keys.push_back("a.long.name.of.a.key." + std::to_string(i) + ".value");
      for (Row& row : s.rows) row.values[s.keys.back()] = std::string(100, 'x');
    }
    EXPECT_THAT(widths(reports::sweep_text(s)), Each(Le(80U))) << keys << "\n"
                                                               << reports::sweep_text(s);
  }
}

TEST(SweepText, OfManyPlansShowsTheBestAndTheFront) {
  reports::Summary s = summary();
  s.rows.clear();
  for (int i = 0; i < 500; ++i)
    s.rows.push_back(plan_row(4, "s" + std::to_string(i), 10, 900 - i, 40));
  s.rows.push_back(plan_row(4, "frugal", 10, 1, 1));
  const std::string text = reports::sweep_text(s);
  EXPECT_THAT(text, AllOf(HasSubstr("frugal"), HasSubstr("s39"), Not(HasSubstr("s41 ")),
                          HasSubstr("460 more")));
}

TEST(SweepCsv, HasALineForEachRow) {
  const std::string csv = reports::sweep_csv(summary());
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 10);
  EXPECT_THAT(csv, AllOf(HasSubstr("machine,ranks,strategy,verdict,pareto,"),
                         HasSubstr("machines/h100.yaml,4,ddp,ok,yes,4,0.011,380,95,"),
                         HasSubstr("does-not-fit,no,8"), HasSubstr("refused,no,,,,,,,ranks")));
}

TEST(SweepJson, HasEverything) {
  const auto json = nlohmann::json::parse(reports::sweep_json(summary()));
  EXPECT_EQ(json["counts"]["ok"], 4);
  EXPECT_EQ(json["counts"]["does-not-fit"], 1);
  EXPECT_EQ(json["rows"].size(), 9U);
  EXPECT_EQ(json["rows"][0]["values"]["strategy"], "ddp");
  EXPECT_EQ(json["rows"][0]["pareto"], true);
  EXPECT_EQ(json["rows"][4]["verdict"], "does-not-fit");
  EXPECT_EQ(json["exhaustive"], true);
}

TEST(SweepHtml, HasTheChartAndNoScript) {
  reports::Summary s = summary();
  s.scenario = "<script>alert(1)</script>";
  s.rows[0].values["strategy"] = "<img src=x onerror=y>";
  const std::string page = reports::sweep_html(s);
  EXPECT_THAT(page, AllOf(HasSubstr("<svg"), HasSubstr("dot front"), HasSubstr("dot off"),
                          HasSubstr("Content-Security-Policy"), Not(HasSubstr("<script")),
                          Not(HasSubstr("<img"))));
  const auto count = [&](const std::string& what) {
    std::size_t out = 0;
    for (auto at = page.find(what); at != std::string::npos; at = page.find(what, at + 1)) ++out;
    return out;
  };
  EXPECT_EQ(count("<circle"), 5U);
  EXPECT_EQ(count("<circle class=\"dot front\""), 3U);
}

TEST(SweepHtml, OfNothingThatTrainsHasNoChart) {
  reports::Summary s = summary();
  s.rows = {s.rows[5]};
  EXPECT_THAT(reports::sweep_html(s),
              AllOf(Not(HasSubstr("<circle")), HasSubstr("modality-divergence")));
}

}  // namespace
}  // namespace lockstep::sim
