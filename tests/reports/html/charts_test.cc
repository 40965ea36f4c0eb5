#include "reports/html/charts.h"

#include <regex>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/reports/html/page_reader.h"

namespace lockstep::reports::html {
namespace {

using testing::HasSubstr;
using testing::Not;

const std::vector<Series> kTwo = {{"computes", 0}, {"<waits>", 1}};
std::string words(double value) { return std::to_string(static_cast<int>(value)); }

// The numbers of an attribute of all elements of a class, in order.
std::vector<double> numbers(const std::string& markup, const std::string& look,
                            const std::string& attribute) {
  // Without the legend, which looks alike.
  const std::string picture = markup.substr(0, markup.find("class=\"legend"));
  const std::regex element("<rect class=\"" + look + "\"[^>]* " + attribute + "=\"([-0-9.]+)\"");
  std::vector<double> out;
  for (auto at = std::sregex_iterator(picture.begin(), picture.end(), element);
       at != std::sregex_iterator(); ++at)
    out.push_back(std::stod((*at)[1]));
  return out;
}

TEST(StackedBars, PartsFollowEachOtherInProportion) {
  const std::string chart = stacked_bars("use", kTwo, {{"rank 0", {3, 1}}, {"rank 1", {0, 2}}}, 4);
  const std::vector<double> first = numbers(chart, "f f0", "width");
  const std::vector<double> second = numbers(chart, "f f1", "width");
  ASSERT_EQ(first.size(), 1U) << "a part of nothing is not drawn";
  ASSERT_EQ(second.size(), 2U);
  EXPECT_NEAR(first[0], 3 * second[0], .2);
  EXPECT_NEAR(numbers(chart, "f f1", "x")[0], numbers(chart, "f f0", "x")[0] + first[0], .2);
  EXPECT_THAT(chart, HasSubstr("&lt;waits&gt;"));
  EXPECT_THAT(chart, Not(HasSubstr("<waits")));
}

TEST(StackedColumns, ThousandsOfStepsAreMeansOfNeighbours) {
  const std::vector<std::vector<double>> steps(10'000, {1, 2});
  const std::string chart = stacked_columns("steps", kTwo, steps, words, "first", "last");
  const std::vector<double> heights = numbers(chart, "f f0", "height");
  EXPECT_EQ(heights.size(), 120U);
  for (const double height : heights) EXPECT_DOUBLE_EQ(height, 60);
  EXPECT_LT(chart.size(), 40'000U);
}

TEST(StackedAreas, APeakIsSeenHoweverManyPointsThereAre) {
  std::vector<AreaPoint> points;
  for (int i = 0; i < 5000; ++i) points.push_back({double(i), {1, i == 3210 ? 9.0 : 1.0}});
  const std::string chart = stacked_areas("memory", kTwo, points, 5000, 0, words, words);
  EXPECT_THAT(chart, HasSubstr(">0 to 10</p>")) << "the height of the plot";
  EXPECT_LT(chart.size(), 60'000U);
  EXPECT_THAT(stacked_areas("memory", kTwo, {{0, {1, 0}}}, 1, 20, words, words),
              HasSubstr("class=\"mark\""));
  EXPECT_EQ(stacked_areas("memory", kTwo, {}, 1, 0, words, words), "");
}

TEST(SignedBars, LossesGoToTheOtherSide) {
  const std::string chart = signed_bars(
      "what if", {{"faster", .5, "-50 %"}, {"slower", -.25, "+25 %"}, {"same", 0, "0"}});
  ASSERT_EQ(numbers(chart, "f f0", "x").size(), 1U);
  ASSERT_EQ(numbers(chart, "f f1", "x").size(), 1U);
  EXPECT_LT(numbers(chart, "f f1", "x")[0], numbers(chart, "f f0", "x")[0]);
  EXPECT_THAT(chart, HasSubstr("+25 %"));
}

// Words are beside the pictures, which shrink with the window: nothing scrolls on a phone.
TEST(StackedCharts, AreAsWideAsTheirWindow) {
  for (const std::string& chart : {stacked_columns("a", kTwo, {{1, 2}}, words, "first", "last"),
                                   stacked_areas("a", kTwo, {{0, {1, 0}}}, 1, 0, words, words),
                                   signed_bars("a", {{"faster", .5, "-50 %"}})}) {
    EXPECT_THAT(chart, HasSubstr("preserveAspectRatio=\"none\""));
    EXPECT_THAT(chart, Not(HasSubstr("<text")));
    EXPECT_THAT(chart, Not(HasSubstr("class=\"scroll\"")));
  }
}

TEST(StackedCharts, OfNothingHoldNoNanAndNoInfinity) {
  const std::string all = stacked_bars("a", kTwo, {{"b", {0, 0}}}, 0) +
                          stacked_columns("a", kTwo, {{0, 0}}, words, "", "") +
                          stacked_areas("a", kTwo, {{0, {0, 0}}}, 0, 0, words, words) +
                          signed_bars("a", {{"b", 0, "0"}});
  EXPECT_THAT(all, Not(HasSubstr("nan")));
  EXPECT_THAT(all, Not(HasSubstr("inf")));
}

const std::vector<Series> kWorks = {{"works", 0}, {"waits", 2}};

std::string drawn(const std::vector<GanttLane>& lanes, double end) {
  return gantt("<what>", kWorks, lanes, end,
               [](double at) { return std::to_string(static_cast<int>(at)) + " s"; });
}

TEST(Gantt, BoxesAreWhereTheirTimesAre) {
  const std::string chart =
      drawn({{"a <lane>", {{0, 1, 0}, {1, 2, 0}, {3, 4, 1}}, {{2, 4, 1}}}}, 4);
  // What touches is one box, and what nobody takes is empty.
  EXPECT_THAT(chart, HasSubstr("<path class=\"f0\" d=\"M0 0h500v16h-500z\"/>"));
  EXPECT_THAT(chart, HasSubstr("<path class=\"f2\" d=\"M750 0h250v16h-250z\"/>"));
  EXPECT_THAT(chart, HasSubstr("<path class=\"f2\" d=\"M500 17h500v6h-500z\"/>"));
  EXPECT_THAT(chart, HasSubstr("<span>0 s</span><span>2 s</span><span>4 s</span>"));
  EXPECT_THAT(read_page(chart).texts("p"), testing::ElementsAre("a <lane>"));
}

TEST(Gantt, WithMoreBoxesThanColumnsEachColumnShowsWhatTakesMostOfIt) {
  GanttLane lane{"lane", {}, {}};
  // Three parts of work to one of waiting, 25 times a column.
  for (int i = 0; i < 100'000; ++i) lane.boxes.push_back({i + 0., i + 1., i % 4 == 3 ? 1U : 0U});
  const std::string chart = drawn({lane}, 100'000);
  EXPECT_THAT(chart, HasSubstr("<path class=\"f0\" d=\"M0 0h1000v16h-1000z\"/>"));
  EXPECT_THAT(chart, Not(HasSubstr("<path class=\"f2\"")));
  EXPECT_LT(chart.size(), 2'000U);
}

TEST(Gantt, OfNoTimeIsEmpty) {
  const std::string chart = drawn({{"lane", {{0, 0, 0}}, {}}}, 0);
  EXPECT_THAT(chart, Not(HasSubstr("<path")));
  EXPECT_THAT(chart, Not(HasSubstr("nan")));
}

}  // namespace
}  // namespace lockstep::reports::html
