// What `lockstep simulate SCENARIO` says of a job that is derived and counted by hand: as text,
// JSON, CSV, HTML and timeline.
#include "reports/forecasts/scenario.h"

#include <algorithm>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "cli/cmd_simulate.h"
#include "reports/forecasts/memory.h"
#include "reports/forecasts/simulated_job.h"
#include "sim/engine/to_run.h"
#include "tests/cli/run_lockstep.h"
#include "tests/sim/small_forecast.h"
#include "verify/verify.h"

namespace lockstep::sim {
namespace {

using OrderedJson = nlohmann::ordered_json;
using testing::HasSubstr;
using testing::Not;

TEST(ForecastText, NamesTheStagesOfAPipeline) {
  TimedScenario job = small_forecast_with_trials();
  job.forecast->stages = 3;
  EXPECT_THAT(reports::names_of_classes(*job.forecast),
              testing::ElementsAre("ranks 0,1", "stage 2 (rank 2)"));
  EXPECT_THAT(reports::forecast_text(*job.forecast), HasSubstr("work of stage 2 (rank 2)"));
  // JSON and CSV are for programs, which know ranks by number.
  EXPECT_THAT(reports::forecast_json(*job.forecast).dump(), Not(HasSubstr("stage 2")));
}

TEST(ForecastText, AChangeThatRoundsToNothingHasNoSign) {
  const std::string text = reports::forecast_text(*small_forecast_with_trials().forecast);
  EXPECT_THAT(text, HasSubstr("links twice as fast"));
  EXPECT_THAT(text, Not(HasSubstr("-0 %")));
}

TEST(ForecastText, FitsEachWidthOfATerminal) {
  const TimedScenario job = small_forecast_with_trials();
  for (const std::size_t width : {60U, 80U, 120U, 200U}) {
    std::istringstream lines(reports::forecast_text(*job.forecast, width));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(columns_of(line), width) << line;
  }
}

TEST(ForecastText, FitsATerminalAndEveryFigureNamesWhatItRestsOn) {
  const TimedScenario job = small_forecast_with_trials();
  const std::string text = reports::forecast_text(*job.forecast);
  cli::expect_fits_a_terminal(text);
  EXPECT_THAT(text, HasSubstr("critical path of 2 steps, 17 ms"));
  EXPECT_THAT(text, HasSubstr("52.9 %  work of rank 2"));
  EXPECT_THAT(text, HasSubstr("47.1 %  all_reduce(w), inside a node"));
  EXPECT_THAT(text, HasSubstr("calls that take no time"));
  EXPECT_THAT(text, HasSubstr("20 trials, seed 1"));
  std::set<std::string> known = {"as step time", "step time"};
  for (const reports::Assumption& a : reports::assumptions(*job.forecast)) known.insert(a.key);
  const std::regex bracket(R"(\[([a-z ,]+)\])");
  const std::regex comma(", ");
  std::size_t found = 0;
  for (auto at = std::sregex_iterator(text.begin(), text.end(), bracket);
       at != std::sregex_iterator(); ++at) {
    const std::string keys = (*at)[1];
    for (auto key = std::sregex_token_iterator(keys.begin(), keys.end(), comma, -1);
         key != std::sregex_token_iterator(); ++key, ++found)
      EXPECT_EQ(known.count(*key), 1U) << *key;
  }
  EXPECT_GT(found, 12U);
}

TEST(ForecastJson, SharesOfTheCriticalPathAddUp) {
  const TimedScenario job = small_forecast_with_trials();
  const OrderedJson json = reports::forecast_json(*job.forecast);
  const OrderedJson& path = json["critical_path"];
  for (const char* list : {"sums", "items"}) {
    double sum = 0;
    for (const OrderedJson& one : path[list]) sum += one["share"].get<double>();
    EXPECT_NEAR(sum, 1, 1e-9) << list;
  }
  EXPECT_EQ(path["steps"], 2);
  EXPECT_EQ(path["items"][0]["before"], "all_reduce(w)");
  double last = 1;
  for (const OrderedJson& one : json["what_if"]) {
    EXPECT_LE(one["gain"].get<double>(), last);
    last = one["gain"];
  }
  // Three ranks' 3 GFLOP in one of two steps that take 8.5 ms, at 1 TFLOP/s.
  EXPECT_NEAR(json["flops_per_step"].get<double>(), 4.5e9, 1);
  EXPECT_NEAR(json["flop_utilisation"].get<double>(), 1.5e-3 / 8.5e-3, 1e-9);
  EXPECT_EQ(json["trials"]["trials"], 20);
  EXPECT_LE(json["trials"]["steps"]["p5_ps"], json["trials"]["steps"]["p95_ps"]);
  EXPECT_FALSE(json.contains("bubble")) << "no pipeline";
}

TEST(ForecastCsv, HasARowForEachClassAndStep) {
  const std::string csv = reports::forecast_csv(*small_forecast().forecast);
  std::vector<std::string> rows;
  for (std::size_t begin = 0; begin < csv.size();) {
    const std::size_t end = csv.find("\r\n", begin);
    ASSERT_NE(end, std::string::npos);
    rows.push_back(csv.substr(begin, end - begin));
    begin = end + 2;
  }
  ASSERT_EQ(rows.size(), 1U + 2 * 3);
  EXPECT_EQ(rows[0], "step,ranks,count,begin_s,end_s,busy_s,exposed_s,idle_s,hidden_s");
  EXPECT_EQ(rows[1],
            "0,\"0,1\",2,0.000000000000,0.013000000000,0.002000000000,0.004000000000,"
            "0.007000000000,0.000000000000");
  EXPECT_EQ(rows[2].substr(0, 6), "0,2,1,");
}

TEST(ForecastPage, ShowsTheFiguresAndTheirBasis) {
  const TimedScenario job = small_forecast_with_trials();
  const std::string page = reports::forecast_page(*job.forecast);
  for (const char* part :
       {"What the ranks do", "Step by step", "Critical path", "What if", "Trials",
        "What this rests on", "Content-Security-Policy", "all_reduce(w)", "8.5 ms"})
    EXPECT_THAT(page, HasSubstr(part));
  EXPECT_THAT(reports::forecast_page(*small_forecast().forecast), Not(HasSubstr("<h2>Trials")));
}

// What the picture and the table say of step 1: rank 2 comes to the call after 4 ms, which then
// takes 4 ms. The ranks have 4 and 3 ms of work beside it.
TEST(ForecastPage, DrawsOneStep) {
  const std::string page = reports::forecast_page(*small_forecast().forecast);
  const std::size_t at = page.find("<h2>One step</h2>");
  ASSERT_NE(at, std::string::npos);
  const std::string card = page.substr(at, page.find("<h2>", at + 4) - at);
  // The steps of 8 and 9 ms are equally near to the median: the first is shown.
  EXPECT_THAT(card, HasSubstr("Step 1, 8 ms"));
  // The width of 1,000 is 8 ms. Rank 2 computes 7 ms and waits 1 ms for the call, which is below.
  EXPECT_THAT(card, HasSubstr("<path class=\"f0\" d=\"M0 0h875v16h-875z\"/>"));
  EXPECT_THAT(card, HasSubstr("<path class=\"f1\" d=\"M875 0h125v16h-125z\"/>"));
  EXPECT_THAT(card, HasSubstr("<path class=\"f3\" d=\"M500 17h500v6h-500z\"/>"));
  EXPECT_THAT(card, Not(HasSubstr("<path class=\"f2\""))) << "nobody waits for other ranks";
  EXPECT_THAT(card, HasSubstr("<td data-name=\"ranks\">ranks 0,1</td>"
                              "<td class=\"n\" data-name=\"begins\">0 s</td>"
                              "<td class=\"n\" data-name=\"ends\">8 ms</td>"
                              "<td class=\"n\" data-name=\"computes\">6 ms</td>"
                              "<td class=\"n\" data-name=\"exposed\">2 ms</td>"
                              "<td class=\"n\" data-name=\"idle\">0 s</td>"
                              "<td class=\"n\" data-name=\"hidden communication\">2 ms</td>"));
}

TEST(ForecastPage, DrawsHowTrialsAreSpread) {
  const TimedScenario job = small_forecast_with_trials();
  const std::string page = reports::forecast_page(*job.forecast);
  EXPECT_THAT(page, HasSubstr("20 trials, seed 1"));
  EXPECT_THAT(page, HasSubstr("<h3>single steps</h3>"));
  EXPECT_THAT(page, HasSubstr("<h3>mean step of a trial</h3>"));
  // What is drawn adds up to all trials, and is in the JSON.
  const OrderedJson json = reports::forecast_json(*job.forecast);
  const auto sum = [](const OrderedJson& spread) {
    std::size_t out = 0;
    for (const OrderedJson& count : spread["histogram"]["counts"]) out += count.get<std::size_t>();
    return out;
  };
  EXPECT_EQ(sum(json["trials"]["trial_means"]), 20U);
  EXPECT_EQ(sum(json["trials"]["steps"]), 2 * 20U);
}

TEST(ForecastPage, DrawsTheMemoryOfEachKindOfRanks) {
  const std::string page = reports::forecast_page(*small_forecast().forecast);
  EXPECT_THAT(page, HasSubstr("<h2>Memory</h2>"));
  EXPECT_THAT(page, HasSubstr("optimizer state"));
  EXPECT_THAT(page, HasSubstr("6.68 MiB"));  // the peak
  EXPECT_THAT(page, HasSubstr("<polygon class=\"f f1\""));
  EXPECT_THAT(page, Not(HasSubstr("<polygon class=\"f f7\""))) << "none of that was held";
}

TEST(ForecastPage, EscapesNames) {
  const TimedScenario job = small_forecast("</title><script>x</script>", "<img/src=x>");
  const std::string page = reports::forecast_page(*job.forecast);
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, Not(HasSubstr("<img")));
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;"));
  EXPECT_THAT(page, HasSubstr("&lt;img/src=x&gt;"));
}

TEST(ForecastTimeline, ShowsWorkAndCallsAtSimulatedTimes) {
  TimedScenario job = small_forecast();
  trace::Run simulated = as_simulated(std::move(job.run), job.simulated.program,
                                      job.simulated.folding, job.simulated.result);
  const OrderedJson timeline =
      OrderedJson::parse(reports::simulated_timeline(verify::verify(simulated), simulated));
  EXPECT_THAT(timeline["otherData"]["time"].get<std::string>(), HasSubstr("simulated"));
  std::size_t work = 0, calls = 0, arrows = 0;
  for (const OrderedJson& event : timeline["traceEvents"]) {
    const std::string phase = event["ph"];
    if (phase == "s") ++arrows;
    if (phase != "X") continue;
    if (event["cat"] == "span" && event["dur"].get<double>() >= 1000) ++work;
    if (event["cat"] != "call") continue;
    ++calls;
    EXPECT_GE(event["dur"].get<double>(), 4000) << "four hops of a millisecond";
  }
  EXPECT_EQ(calls, 9U);
  EXPECT_EQ(arrows, 3U);
  EXPECT_EQ(work, 5U + 5 + 4);
}

TEST(ForecastTimeline, CountsWhatEachKindOfRanksHolds) {
  TimedScenario job = small_forecast();
  const std::vector<reports::TimelineCounter> counters =
      reports::memory_counters(job.forecast->memory);
  ASSERT_EQ(counters.size(), 4U) << "ranks 0 and 1, and rank 2: in all, and by category";
  EXPECT_EQ(counters[0].name, "memory (bytes), ranks 0,1, in all:");
  EXPECT_EQ(counters[1].name, "memory (bytes), ranks 0,1:");
  EXPECT_EQ(counters[1].series, (std::vector<std::string>{"parameters", "activations"}));
  EXPECT_EQ(counters[2].rank, 2U);
  EXPECT_EQ(counters[2].name, "memory (bytes), rank 2, in all:");
  std::int64_t most = 0;
  trace::Nanos before = 0;
  for (const reports::TimelineCounter::Point& point : counters[0].points) {
    EXPECT_GE(point.time, before);
    before = point.time;
    most = std::max(most, point.values.at(0));
  }
  EXPECT_EQ(most, 7'000'000);
  EXPECT_EQ(counters[0].points.back().values[0], 3'000'000);

  trace::Run simulated = as_simulated(std::move(job.run), job.simulated.program,
                                      job.simulated.folding, job.simulated.result);
  const OrderedJson timeline = OrderedJson::parse(
      reports::simulated_timeline(verify::verify(simulated), simulated, counters));
  std::size_t values = 0;
  for (const OrderedJson& event : timeline["traceEvents"]) {
    if (event["ph"] != "C") continue;
    ++values;
    EXPECT_EQ(event["pid"],
              event["name"].get<std::string>().starts_with("memory (bytes), rank 2") ? 3 : 1);
  }
  EXPECT_EQ(values, 2 * (counters[0].points.size() + counters[2].points.size()));
}

TEST(Jitter, IsReadOrRefusedWithTheReason) {
  const Result<Jitter> all = cli::parse_jitter("compute=5%,communication=12.5%,image=20%,text=3%");
  ASSERT_TRUE(all) << all.error().str();
  EXPECT_DOUBLE_EQ(all->work, .05);
  EXPECT_DOUBLE_EQ(all->calls, .125);
  EXPECT_DOUBLE_EQ(all->images, .2);
  EXPECT_DOUBLE_EQ(all->texts, .03);
  EXPECT_TRUE(cli::parse_jitter(""));
  for (const char* wrong :
       {"compute", "compute=5", "compute=%", "compute=-5%", "compute=0%", "compute=nan%",
        "compute=inf%", "compute=2000%", "compute=5%x", "video=5%", "compute=5%,", ",compute=5%",
        "compute=5%,compute=6%", "=5%", "\x1b[31m=5%"}) {
    const Result<Jitter> read = cli::parse_jitter(wrong);
    ASSERT_FALSE(read) << wrong;
    EXPECT_THAT(read.error().str(), HasSubstr("--jitter"));
    EXPECT_THAT(read.error().str(), Not(HasSubstr("\x1b")));
  }
}

TEST(Jitter, TrialsInWhichNothingVariesAreRefused) {
  cli::TrialsCommand command;
  EXPECT_TRUE(cli::trial_options(command));
  command.trials = 10;
  EXPECT_FALSE(cli::trial_options(command));
  command.redraw_batches = true;
  EXPECT_TRUE(cli::trial_options(command));
  command.trials = 0;
  EXPECT_FALSE(cli::trial_options(command));
}

}  // namespace
}  // namespace lockstep::sim
