// The pages of sweeps and forecasts in Chromium: nothing is refused, and lists can be sorted.
#include <gmock/gmock.h>

#include "reports/forecasts/scenario.h"
#include "reports/sweeps/report.h"
#include "tests/reports/html/browser.h"
#include "tests/sim/small_forecast.h"
#include "tests/sim/sweep/small_sweep.h"

namespace lockstep::reports {
namespace {

using testing::HasSubstr;
using testing::Not;

// The cells of a column, named by its heading, of the list that can be explored.
std::string cells_of(const std::string& heading) {
  return "[...table.tBodies[0].rows].filter((row) => !row.hidden)"
         ".map((row) => row.cells[column('" +
         heading + "')].textContent).join('|')";
}
const std::string kFind =
    "const table = doc.querySelector('table.explore');"
    "const heads = [...table.tHead.rows[0].cells];"
    "const column = (name) => heads.findIndex((head) => head.textContent === name);"
    "const sort = (name) => heads[column(name)].querySelector('button').click();";

TEST_F(Browser, PlansAreSortedByTheirFiguresNotByTheirWords) {
  Summary sweep = sim::small_sweep();
  sweep.rows[0].step_seconds = 20.3;
  sweep.rows[1].step_seconds = .98;
  sweep.rows[2].step_seconds = 1.5;
  sweep.rows[3].step_seconds = 1.25;
  sweep.rows[4].step_seconds = 500e-6;
  const std::string page = sweep_html(sweep);
  // What hangs, was refused or failed has no step time and comes last, up and down.
  const Browsed up = act(page, kFind + "sort('step')", cells_of("step"));
  EXPECT_EQ(up.console, "");
  EXPECT_THAT(up.dom, HasSubstr("<pre>500 us|980 ms|1.25 s|1.5 s|20.3 s|||||</pre>"));
  const Browsed down = act(page, kFind + "sort('step');sort('step')", cells_of("step"));
  EXPECT_THAT(down.dom, HasSubstr("<pre>20.3 s|1.5 s|1.25 s|980 ms|500 us|||||</pre>"));
}

TEST_F(Browser, PlansAreFilteredByPlaceAndVerdict) {
  const std::string page = sweep_html(sim::small_sweep());
  const std::string changed = ".dispatchEvent(new Event('input', {bubbles: true}))";
  const Browsed places = act(
      page,
      kFind + "const search = doc.querySelector('input'); search.value = '1-3'; search" + changed,
      cells_of("place"));
  EXPECT_THAT(places.dom, HasSubstr("<pre>1|2|3</pre>"));
  const Browsed hanging =
      act(page,
          kFind +
              "const pick = doc.querySelector('select[aria-label=\"filter by verdict\"]');"
              "pick.value = 'hangs'; pick" +
              changed,
          cells_of("verdict"));
  EXPECT_THAT(hanging.dom, HasSubstr("<pre>hangs</pre>"));
}

// Every part of a page is inside of it: only tables and charts scroll, each by itself.
TEST_F(Browser, PagesOfTheSimulatorAreNoWiderThanTheirWindow) {
  Summary sweep = sim::small_sweep();
  sweep.rows[0].values["strategy"] = std::string(120, 'x');
  for (const std::string& page :
       {sweep_html(sweep), forecast_page(*sim::small_forecast_with_trials().forecast)}) {
    for (const char* width : {"400", "1280"}) {
      const Browsed seen = act(
          page,
          "event.target.style.cssText = 'border: 0; height: 900px; width: " + std::string(width) +
              "px'",
          "doc.documentElement.scrollWidth <= doc.documentElement.clientWidth ? 'fits' : 'wide'");
      EXPECT_EQ(seen.console, "");
      EXPECT_THAT(seen.dom, HasSubstr("<pre>fits</pre>")) << width;
    }
  }
}

// On a phone the widest tables are lists: nothing of a plan is out of view, with its column's name.
TEST_F(Browser, PlansNeedNoScrollingOnAPhone) {
  const std::string narrow =
      "event.target.style.cssText = 'border: 0; height: 900px; width: 400px';";
  const std::string all = "[...doc.querySelectorAll('table.list')]";
  const Browsed seen = act(
      sweep_html(sim::small_sweep()), narrow,
      all + ".length + ' lists, ' + " + all +
          ".filter((table) => table.scrollWidth > table.closest('.scroll').clientWidth).length + "
          "' too wide, ' + doc.defaultView.getComputedStyle(" +
          all + "[0].tBodies[0].rows[0].cells[0], '::before').content");
  EXPECT_EQ(seen.console, "");
  EXPECT_THAT(seen.dom, HasSubstr("<pre>2 lists, 0 too wide, \"place \"</pre>"));
}

TEST_F(Browser, AForecastNeedsNothingThatThePolicyRefuses) {
  const Browsed page = open(forecast_page(*sim::small_forecast_with_trials().forecast));
  EXPECT_EQ(page.console, "");
  EXPECT_THAT(page.dom, HasSubstr("<h2>One step</h2>"));
  EXPECT_THAT(page.dom, HasSubstr("<path class=\"f0\""));
  EXPECT_THAT(page.dom, Not(HasSubstr("<script")));
}

}  // namespace
}  // namespace lockstep::reports
