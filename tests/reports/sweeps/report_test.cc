#include "reports/sweeps/report.h"

#include <sstream>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "base/tables.h"
#include "tests/sim/sweep/small_sweep.h"

namespace lockstep::sim {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::Not;

std::vector<std::size_t> widths(const std::string& text) {
  std::vector<std::size_t> out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) out.push_back(columns_of(line));
  return out;
}

TEST(Ranking, SortsByTheObjectiveAndMarksTheFront) {
  const reports::Summary s = small_sweep();
  const Ranking by_samples = rank(s.rows, s.goal);
  EXPECT_THAT(by_samples.fitting, ElementsAre(1, 2, 3, 0));
  EXPECT_THAT(by_samples.too_large, ElementsAre(4));
  EXPECT_THAT(by_samples.hanging, ElementsAre(5));
  EXPECT_THAT(by_samples.refused, ElementsAre(6, 7));
  EXPECT_THAT(by_samples.failed, ElementsAre(8));
  EXPECT_THAT(by_samples.wrong, ElementsAre(9));
  EXPECT_THAT(by_samples.on_front,
              ElementsAre(true, true, true, false, false, false, false, false, false, false));
  EXPECT_THAT(rank(s.rows, {Objective::step_time, std::nullopt}).fitting, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(rank(s.rows, {Objective::samples_per_second_per_rank, std::nullopt}).fitting,
              ElementsAre(0, 1, 2, 3));
}

TEST(Ranking, TheLimitHoldsAsWellAsTheMachines) {
  const reports::Summary s = small_sweep();
  EXPECT_THAT(rank(s.rows, {Objective::samples_per_second, 30e9}).fitting, ElementsAre(2, 3));
  EXPECT_THAT(rank(s.rows, {Objective::samples_per_second, 30e9}).too_large, ElementsAre(0, 1, 4));
  EXPECT_THAT(rank(s.rows, {Objective::samples_per_second, 1e12}).too_large, ElementsAre(4));
}

TEST(Ranking, WhatFitsScoresBetterThanWhatDoesNotAndThatThanTheRest) {
  const reports::Summary s = small_sweep();
  EXPECT_LT(score(s.rows[1], s.goal), score(s.rows[2], s.goal));
  EXPECT_LT(score(s.rows[3], s.goal), score(s.rows[4], s.goal));
  EXPECT_LT(score(s.rows[4], s.goal), score(s.rows[5], s.goal));
}

TEST(SweepText, HasTheTableAndTheReasons) {
  const std::string text = reports::sweep_text(small_sweep());
  EXPECT_THAT(widths(text), Each(Le(80U))) << text;
  EXPECT_THAT(text, AllOf(HasSubstr("10 of 10 points"), HasSubstr("2 × ranks should be even"),
                          HasSubstr("1 hangs"), HasSubstr("1 reaches its end, with wrong results"),
                          HasSubstr("modality-divergence"), HasSubstr("does not fit: 1 plan"),
                          HasSubstr("* Pareto front"), Not(HasSubstr("\x1b")),
                          Not(HasSubstr("exhaustive"))));
  EXPECT_LT(text.find("fsdp"), text.find("manual"));
}

// The text of a point without values is too long to lie within a std::string itself.
TEST(SweepText, APointThatVariesNothingHasAName) {
  reports::Summary s = small_sweep();
  s.keys.clear();
  EXPECT_THAT(reports::sweep_text(s), HasSubstr("first: the job as it stands\n"));
}

TEST(SweepText, SaysWhatMemoryCounts) {
  reports::Summary s = small_sweep();
  EXPECT_THAT(reports::sweep_text(s), HasSubstr("at its peak"));
  s.rows[0].memory_counted = false;
  EXPECT_THAT(reports::sweep_text(s),
              AllOf(HasSubstr("not counted everywhere"), Not(HasSubstr("at its peak"))));
}

TEST(SweepText, SaysThatASearchIsNotExhaustive) {
  reports::Summary s = small_sweep();
  s.exhaustive = false;
  s.seed = 7;
  s.grid_points = 12'000;
  EXPECT_THAT(reports::sweep_text(s), AllOf(HasSubstr("10 of 12,000 points"), HasSubstr("seed 7"),
                                            HasSubstr("not exhaustive")));
}

TEST(SweepText, StaysWithin80ColumnsWhateverIsVaried) {
  for (const std::size_t keys : {0U, 1U, 5U, 6U, 7U, 20U}) {
    reports::Summary s = small_sweep();
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

TEST(SweepText, CutsNoValueWhereTheTerminalIsWide) {
  reports::Summary s = small_sweep();
  s.keys = {"encoder.layout", "decoder.layout"};
  for (Row& row : s.rows)
    for (const std::string& key : s.keys) row.values[key] = key + std::string(40, 'x');
  const std::string whole = "encoder.layout" + std::string(40, 'x');
  const std::string narrow = reports::sweep_text(s, 60), wide = reports::sweep_text(s, 200);
  EXPECT_THAT(widths(narrow), Each(Le(60U))) << narrow;
  EXPECT_THAT(widths(wide), Each(Le(200U))) << wide;
  EXPECT_THAT(wide, AllOf(HasSubstr(whole), Not(HasSubstr("the best:")))) << wide;
  // What a narrow table cuts is said in full above it.
  EXPECT_THAT(narrow, HasSubstr("the best:")) << narrow;
}

// Names of keys are longer than most of their values. Cut down to a few characters they would not
// be known again.
TEST(SweepText, LettersStandForLongNames) {
  reports::Summary s = small_sweep();
  s.keys = {"llm.pipeline.stages", "encoders.0.tensor", "encoders.1.tensor", "llm.recompute"};
  for (Row& row : s.rows)
    row.values = {{s.keys[0], 4}, {s.keys[1], 2}, {s.keys[2], 1}, {s.keys[3], "selective"}};
  const std::string narrow = reports::sweep_text(s, 60), wide = reports::sweep_text(s, 100);
  EXPECT_THAT(narrow, AllOf(HasSubstr("a=llm.pipeline.stages, b=encoders.0.tensor"),
                            HasSubstr("d=llm.recompute"), HasSubstr("  a  b  c  d "),
                            HasSubstr("\n  4  2  1  selective "), Not(HasSubstr("the best:"))))
      << narrow;
  EXPECT_THAT(wide, AllOf(HasSubstr("  stages  "), Not(HasSubstr("a=")))) << wide;
}

// A value cut in its middle is another one, as far as a reader can tell.
TEST(SweepText, ValuesThatNeedMoreRoomGoOnInFurtherLines) {
  reports::Summary s = small_sweep();
  s.keys = {"llm.recompute", "encoders.0.recompute", "llm.pipeline.schedule", "zero"};
  for (Row& row : s.rows)
    row.values = {
        {s.keys[0], "selective"}, {s.keys[1], "full"}, {s.keys[2], "interleaved"}, {s.keys[3], 3}};
  const std::string narrow = reports::sweep_text(s, 60), wide = reports::sweep_text(s, 70);
  EXPECT_THAT(widths(narrow), Each(Le(60U))) << narrow;
  EXPECT_THAT(narrow,
              AllOf(HasSubstr("c=llm.pipeline.schedule"), HasSubstr("\n  a=selective b=full "),
                    HasSubstr("\n    c=interleaved d=3\n"), Not(HasSubstr(".."))))
      << narrow;
  // Columns where they fit.
  EXPECT_THAT(wide, HasSubstr("\n  selective  full  interleaved  3 ")) << wide;
}

TEST(SweepText, OfManyPlansShowsTheBestAndTheFront) {
  reports::Summary s = small_sweep();
  s.rows.clear();
  for (int i = 0; i < 500; ++i)
    s.rows.push_back(plan_row(4, "s" + std::to_string(i), 10, 900 - i, 40));
  s.rows.push_back(plan_row(4, "frugal", 10, 1, 1));
  const std::string text = reports::sweep_text(s);
  EXPECT_THAT(text, AllOf(HasSubstr("frugal"), HasSubstr("s39"), Not(HasSubstr("s41 ")),
                          HasSubstr("460 more")));
}

TEST(SweepCsv, HasALineForEachRow) {
  const std::string csv = reports::sweep_csv(small_sweep());
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 11);
  EXPECT_THAT(csv, AllOf(HasSubstr("machine,ranks,strategy,verdict,pareto,"),
                         HasSubstr("machines/h100.yaml,4,ddp,ok,yes,4,0.011,380,95,"),
                         HasSubstr("does-not-fit,no,8"), HasSubstr("refused,no,,,,,,,ranks")));
}

TEST(SweepJson, HasEverything) {
  const auto json = nlohmann::json::parse(reports::sweep_json(small_sweep()));
  EXPECT_EQ(json["counts"]["ok"], 4);
  EXPECT_EQ(json["counts"]["does-not-fit"], 1);
  EXPECT_EQ(json["counts"]["wrong"], 1);
  EXPECT_EQ(json["rows"].size(), 10U);
  EXPECT_EQ(json["rows"][0]["values"]["strategy"], "ddp");
  EXPECT_EQ(json["rows"][0]["pareto"], true);
  EXPECT_EQ(json["rows"][4]["verdict"], "does-not-fit");
  EXPECT_EQ(json["exhaustive"], true);
}

TEST(SweepHtml, HasTheChartAndNoScriptButItsOwn) {
  reports::Summary s = small_sweep();
  s.scenario = "<script>alert(1)</script>";
  s.rows[0].values["strategy"] = "<img src=x onerror=y>";
  const std::string page = reports::sweep_html(s);
  EXPECT_THAT(page, AllOf(HasSubstr("<svg"), HasSubstr("dot front"), HasSubstr("dot off"),
                          HasSubstr("Content-Security-Policy"), Not(HasSubstr("<script>alert")),
                          Not(HasSubstr("<img"))));
  const auto count = [&](const std::string& what) {
    std::size_t out = 0;
    for (auto at = page.find(what); at != std::string::npos; at = page.find(what, at + 1)) ++out;
    return out;
  };
  EXPECT_EQ(count("<script"), 1U);
  // Twice: for the width of a card, and for a phone's.
  EXPECT_EQ(count("<circle"), 10U);
  EXPECT_EQ(count("<circle class=\"dot front\""), 6U);
}

TEST(SweepHtml, WhatByFarDoesNotFitLeavesRoomForWhatDoes) {
  reports::Summary s = small_sweep();
  s.rows.push_back(plan_row(8, "huge", 12, 700, 900));
  const std::string page = reports::sweep_html(s);
  EXPECT_THAT(page, HasSubstr("1 plan that does not fit: right of this picture"));
  EXPECT_THAT(page.substr(0, page.find("<figcaption>")), Not(HasSubstr("huge")));
}

TEST(SweepHtml, TheFrontAndTheTenBestComeBeforeTheFullList) {
  reports::Summary s = small_sweep();
  for (int i = 0; i < 50; ++i)
    s.rows.push_back(plan_row(4, "s" + std::to_string(i), 20'300 + i, 100 - i, 60));
  s.rows.push_back(plan_row(4, "frugal", 30'000, 1, 1.25));
  const std::string page = reports::sweep_html(s);
  const std::size_t best = page.find("<h2>The Pareto front and the ten best</h2>");
  const std::size_t hang = page.find("<h2>Hang</h2>"), all = page.find("<h2>Every plan</h2>");
  ASSERT_LT(best, hang);
  ASSERT_LT(hang, all);
  ASSERT_NE(all, std::string::npos);
  const std::string first = page.substr(best, hang - best);
  // Four of small_sweep() and six more are the ten best; the frugal one is on the front.
  EXPECT_THAT(first, AllOf(HasSubstr("<code>s5</code>"), Not(HasSubstr("<code>s6</code>")),
                           HasSubstr("<code>frugal</code>")));
  // Units that people read, and the number behind them to sort by.
  EXPECT_THAT(first,
              HasSubstr("<td class=\"n\" data-name=\"step\" data-value=\"20.3\">20.3 s</td>"));
  EXPECT_THAT(
      first,
      HasSubstr("<td class=\"n\" data-name=\"memory\" data-value=\"1250000000\">1.16 GiB</td>"));
  EXPECT_THAT(page.substr(all),
              AllOf(HasSubstr("<table class=\"explore list\">"), HasSubstr("<code>s49</code>")));
}

TEST(SweepHtml, WhatHangsSaysSo) {
  const std::string page = reports::sweep_html(small_sweep());
  EXPECT_THAT(page, HasSubstr("1 of these plans ends no step"));
  EXPECT_THAT(page, HasSubstr("modality-divergence: rank 1 never came"));
  // In the list, too, without figures that it does not have.
  EXPECT_THAT(page, HasSubstr("<tr class=\"error\"><td class=\"n\"></td>"
                              "<td data-value=\"3\"><code>3</code></td>"
                              "<td><code>pipeline</code></td><td class=\"n\"></td>"
                              "<td class=\"n\"></td><td class=\"n\"></td><td class=\"n\"></td>"
                              "<td class=\"n\"></td><td class=\"place\">hangs</td></tr>"));
}

TEST(SweepHtml, OfManyPlansIsBounded) {
  reports::Summary s = small_sweep();
  for (int i = 0; i < 5000; ++i)
    s.rows.push_back(plan_row(4, "s" + std::to_string(i), 20, 100 - i / 100.0, 60));
  const std::string page = reports::sweep_html(s);
  EXPECT_LT(page.size(), 1'100'000U);
  EXPECT_THAT(page, HasSubstr("4,010 more: --output csv=FILE has them all"));
}

TEST(SweepHtml, OfNothingThatTrainsHasNoChart) {
  reports::Summary s = small_sweep();
  s.rows = {s.rows[5]};
  EXPECT_THAT(reports::sweep_html(s),
              AllOf(Not(HasSubstr("<circle")), HasSubstr("modality-divergence")));
}

}  // namespace
}  // namespace lockstep::sim
