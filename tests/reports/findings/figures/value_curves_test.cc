#include <gmock/gmock.h>

#include "reports/findings/figures/figures.h"
#include "tests/reports/inline_run.h"

namespace lockstep::reports {
namespace {

using testing::ElementsAre;

std::string state(int n, const std::string& name, const std::string& rest) {
  return R"({"ev":"state","n":)" + std::to_string(n) + R"(,"name":")" + name + "\"," + rest + "}\n";
}
std::string step(int n, const std::string& loss) {
  return R"({"ev":"step","n":)" + std::to_string(n) + R"(,"loss":)" + loss + "}\n";
}

std::vector<std::string> names(const std::vector<ValueCurves>& all) {
  std::vector<std::string> out;
  for (const ValueCurves& one : all) out.push_back(one.name);
  return out;
}

TEST(ValueCurves, TheLossIsTheMeanOverTheRanks) {
  const trace::Run run = inline_run({step(0, "1") + step(1, "0.5"), step(0, "3"), step(0, "null")});
  const auto all = value_curves({}, run, 6);
  ASSERT_EQ(all.size(), 1U);
  ASSERT_EQ(all[0].curves.size(), 1U);
  EXPECT_EQ(all[0].curves[0].ranks, ranks_of({0, 1}));
  ASSERT_EQ(all[0].curves[0].points.size(), 2U);
  EXPECT_EQ(all[0].curves[0].points[0].value, 2.0);
  EXPECT_EQ(all[0].curves[0].points[1].value, 0.5);
  EXPECT_TRUE(all[0].agreement.empty()) << "each rank has a batch of its own";
}

TEST(ValueCurves, EqualRanksShareACurveAndDifferencesAreDated) {
  const auto rank = [](const std::string& last) {
    return state(0, "w", R"("norm":1,"hash":"a")") + state(1, "w", R"("norm":)" + last);
  };
  const trace::Run run = inline_run({rank("2"), rank("3"), rank("2")});
  const auto all = value_curves({}, run, 6);
  ASSERT_EQ(all.size(), 1U);
  ASSERT_EQ(all[0].curves.size(), 2U);
  EXPECT_EQ(all[0].curves[0].ranks, ranks_of({0, 2}));
  EXPECT_EQ(all[0].curves[1].ranks, ranks_of({1}));
  EXPECT_EQ(all[0].first_difference, 1);
  ASSERT_EQ(all[0].agreement.size(), 2U);
  EXPECT_TRUE(all[0].agreement[0].agree);
  EXPECT_FALSE(all[0].agreement[1].agree);
}

TEST(ValueCurves, WhatMayDifferIsNoDifference) {
  const auto rank = [](const std::string& norm) {
    return state(0, "local", R"("kind":"grad","when":"local","norm":)" + norm) +
           state(0, "shard", R"("sharded":true,"norm":)" + norm);
  };
  for (const ValueCurves& one : value_curves({}, inline_run({rank("1"), rank("2")}), 6)) {
    EXPECT_FALSE(one.first_difference) << one.name;
    EXPECT_TRUE(one.agreement.empty()) << one.name;
  }
}

TEST(ValueCurves, NamedTensorsComeFirstThenThoseThatDiffer) {
  const auto rank = [](const std::string& norm) {
    return state(0, "a", R"("norm":1)") + state(0, "b", R"("norm":)" + norm) +
           state(0, "c", R"("norm":1)");
  };
  const trace::Run run = inline_run({rank("1"), rank("2")});
  verify::Report report;
  EXPECT_THAT(names(value_curves(report, run, 6)), ElementsAre("b", "a", "c"));
  EXPECT_THAT(names(value_curves(report, run, 1)), ElementsAre("b"));
  report.findings.emplace_back();
  report.findings[0].rule = verify::RuleId::param_divergence;
  report.findings[0].what = {"c"};
  EXPECT_THAT(names(value_curves(report, run, 6)), ElementsAre("c", "b", "a"));
}

TEST(ValueCurves, OfManyDifferentRanksSomeAreShown) {
  std::vector<std::string> ranks;
  for (int i = 0; i < 9; ++i) ranks.push_back(state(0, "w", R"("norm":)" + std::to_string(i)));
  const auto all = value_curves({}, inline_run(ranks), 6);
  EXPECT_EQ(all.at(0).curves.size(), 4U);
  EXPECT_EQ(all.at(0).curves_left_out, 5U);
}

}  // namespace
}  // namespace lockstep::reports
