#include <gmock/gmock.h>

#include "reports/html/charts.h"
#include "tests/reports/html/page_reader.h"

namespace lockstep::reports::html {
namespace {

using testing::HasSubstr;
using testing::Not;

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

TEST(Gantt, OfMoreBoxesThanColumnsEachColumnShowsWhatTakesMostOfIt) {
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
