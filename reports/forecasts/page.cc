// The HTML page of a simulated scenario: figures, charts of time and memory, the critical path, the
// what-ifs and the trials.
#include "reports/html/page.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/quantities.h"
#include "base/tables.h"
#include "base/text.h"
#include "reports/findings/finding_section.h"
#include "reports/forecasts/memory.h"
#include "reports/forecasts/path.h"
#include "reports/forecasts/scenario.h"
#include "reports/html/charts.h"
#include "reports/html/markup.h"
#include "reports/table.h"

namespace lockstep::reports {
namespace {

// The most rows of each table: the page stays readable, the JSON has everything.
constexpr std::size_t kClasses = 32, kSums = 12, kItems = 20;

// What a rank does. Hidden communication overlaps its work and adds no time.
const std::vector<html::Series>& uses() {
  static const std::vector<html::Series> series = {
      {"computes", 0}, {"waits for a call that is carried out", 1}, {"waits for other ranks", 2}};
  return series;
}
std::vector<double> shares_of_time(const sim::RankUse& use) {
  return {use.busy, use.exposed, use.idle};
}

// The series of a Gantt chart: first uses().
std::size_t series_of(sim::Interval::Kind kind) {
  switch (kind) {
    case sim::Interval::Kind::computes:
      return 0;
    case sim::Interval::Kind::exposed:
      return 1;
    case sim::Interval::Kind::idle:
      return 2;
    case sim::Interval::Kind::call:
      return 3;
  }
  return 0;
}

// How often durations were seen, as columns.
std::string histogram_chart(const std::string& what, const sim::Histogram& histogram) {
  std::vector<std::vector<double>> columns;
  for (const std::size_t count : histogram.counts) columns.push_back({static_cast<double>(count)});
  return html::element("h3", "", html::text(what)) +
         html::stacked_columns(
             what, {{"how many took this long", 0}}, columns,
             [](double count) { return grouped(static_cast<std::uint64_t>(count)); },
             duration_text(histogram.begin), duration_text(histogram.end));
}

// What a table of the first `shown` leaves out.
std::string more(std::size_t all, std::size_t shown, std::string_view one, std::string_view many) {
  if (all <= shown) return {};
  return html::element("p", "caption",
                       html::text(fmt::format("and {}", plural(all - shown, one, many))));
}

class Page {
 public:
  Page(const sim::ScenarioForecast& f, const JudgedRun* wrong)
      : f_(f), wrong_(wrong), names_(names_of_classes(f)) {}

  std::string str() const {
    std::vector<html::NamedFigure> figures;
    for (const Headline& one : headlines(f_)) figures.push_back({one.what, one.value});
    return html::result_page(
        "forecast",
        fmt::format("{}: {} on {}", f_.scenario, plural(f_.class_of.size(), "rank"),
                    f_.machine.name),
        html::figures(figures),
        wrong() + html::card("What the ranks do", use()) + html::card("One step", one_step()) +
            html::card("Step by step", steps()) +
            html::card("Memory", memory_charts(f_.memory.classes, f_.machine)) +
            html::card("Critical path", path()) + html::card("What if", what_if()) +
            html::card("Trials", trials()) + html::card("What this rests on", basis()));
  }

 private:
  std::string wrong() const {
    if (wrong_ == nullptr) return {};
    return html::finding_sections(wrong_->report, wrong_->run);
  }

  std::string use() const {
    std::vector<html::StackedBar> bars;
    double most = 0;
    Table table(columns({"ranks"}, {"computes", "exposed", "idle", "hidden communication"}));
    for (std::size_t c = 0; c < std::min(kClasses, names_.size()); ++c) {
      const sim::RankUse& use = f_.figures.classes[c];
      // Hidden communication is part of busy, so it is a share, too, but not part of the sum.
      const double all = use.busy + use.exposed + use.idle;
      most = std::max(most, all);
      bars.push_back({names_[c], shares_of_time(use)});
      const auto share = [&](double part) { return percent(all > 0 ? part / all : 0); };
      table.add({shorten_end(names_[c], 60), share(use.busy), share(use.exposed), share(use.idle),
                 share(use.hidden)});
    }
    return html::stacked_bars("time that each kind of ranks computes and waits", uses(), bars,
                              most) +
           table.html("use of time") +
           more(names_.size(), kClasses, "other kind of ranks", "other kinds of ranks");
  }

  // A lane for each class: what its ranks do, and thin below it when their calls are carried out.
  std::string one_step() const {
    const sim::StepTimeline& timeline = f_.figures.timeline;
    if (timeline.classes.empty()) return {};
    const std::size_t shown = std::min(kClasses, names_.size());
    const std::vector<std::vector<sim::StepUse>>& steps = f_.figures.steps;
    // Ranks enter a step at different times (pipeline stages, stragglers): the drawing begins with
    // the first and ends with the last.
    Picos begin = Picos::forever(), end;
    for (std::size_t c = 0; c < names_.size(); ++c) {
      begin = std::min(begin, steps[c][timeline.step].begin);
      end = std::max(end, steps[c][timeline.step].end);
    }
    const auto boxes = [&](const std::vector<sim::Interval>& intervals) {
      std::vector<html::GanttBox> out;
      for (const sim::Interval& s : intervals)
        out.push_back({(s.begin - begin).seconds(), (s.end - begin).seconds(), series_of(s.kind)});
      return out;
    };
    std::vector<html::GanttLane> lanes;
    Table table(columns({"ranks"},
                        {"begins", "ends", "computes", "exposed", "idle", "hidden communication"}));
    for (std::size_t c = 0; c < shown; ++c) {
      const sim::StepUse& step = steps[c][timeline.step];
      lanes.push_back(
          {names_[c], boxes(timeline.classes[c].host), boxes(timeline.classes[c].calls)});
      table.add({shorten_end(names_[c], 60), duration_text(step.begin - begin),
                 duration_text(step.end - begin), duration_text(step.use.busy),
                 duration_text(step.use.exposed), duration_text(step.use.idle),
                 duration_text(step.use.hidden)});
    }
    std::vector<html::Series> series = uses();
    // After uses(), whose indices series_of() gives.
    series.push_back({"thin, below: a call is carried out", 3});
    return html::element("p", "",
                         html::text(fmt::format(
                             "Step {}, {}: of the measured steps the one nearest to their median. "
                             "A call below work is hidden, a call below waiting is exposed.",
                             timeline.step, duration_text(f_.figures.times.of(timeline.step))))) +
           html::gantt("what each kind of ranks does during one step", series, lanes,
                       (end - begin).seconds(),
                       [](double seconds) { return duration_text(seconds); }) +
           table.html("one step") +
           more(names_.size(), kClasses, "other kind of ranks", "other kinds of ranks");
  }

  // The mean over all ranks: each class weighted by its number of ranks.
  std::string steps() const {
    std::vector<double> weight(names_.size(), 0);
    // Of 1,024 ranks in classes of 1,023 and 1, the weights are 1023/1024 and 1/1024.
    for (const std::uint32_t c : f_.class_of)
      weight[c] += 1 / static_cast<double>(f_.class_of.size());
    std::vector<std::vector<double>> means;
    for (std::size_t s = 0; s < f_.figures.times.size(); ++s) {
      std::vector<double> mean(uses().size(), 0);
      for (std::size_t c = 0; c < names_.size(); ++c) {
        const std::vector<double> own = shares_of_time(f_.figures.steps[c][s].use);
        for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += weight[c] * own[i];
      }
      means.push_back(std::move(mean));
    }
    if (means.empty()) return {};
    return html::stacked_columns(
               "what a rank does in each step, on average", uses(), means,
               [](double seconds) { return duration_text(seconds); }, "step 0",
               std::to_string(means.size() - 1)) +
           html::element("p", "caption",
                         "A rank's mean; the first step arranges buffers and prepares the job.");
  }

  std::string path() const {
    const sim::ForecastPath& path = f_.path;
    std::vector<html::SignedBar> bars;
    for (std::size_t i = 0; i < std::min(kSums, path.sums.size()); ++i) {
      const double share = path.share(path.sums[i].time);
      bars.push_back({words_of(path.sums[i], names_), share, percent(share)});
    }
    Table table(columns({"part"}, {"time", "share", "times"}));
    for (std::size_t i = 0; i < std::min(kItems, path.items.size()); ++i) {
      const sim::ForecastPath::Item& item = path.items[i];
      table.add({words_of(item, names_), duration_text(item.time), percent(path.share(item.time)),
                 grouped(item.count)});
    }
    return html::element(
               "p", "",
               html::text(fmt::format("The chain of work and calls in which each starts "
                                      "when the one before it ends, over {}: {}.",
                                      path.covers(), duration_text(path.end - path.begin)))) +
           html::signed_bars("shares of the critical path", bars) +
           table.html("parts of the critical path") +
           more(path.items.size(), kItems, "other part", "other parts");
  }

  std::string what_if() const {
    std::vector<html::SignedBar> bars;
    for (const sim::WhatIf& one : f_.what_ifs) {
      // What reads as no change has no bar.
      const std::string change = change_in_words(one);
      bars.push_back({one.change, change == "0 %" ? 0 : one.gain, change});
    }
    if (bars.empty()) return {};
    return html::element("p", "", "How much less a step would take, each changed alone.") +
           html::signed_bars("change of the step time", bars);
  }

  std::string trials() const {
    if (!f_.trials) return {};
    const sim::TrialsForecast& all = *f_.trials;
    return html::element("p", "",
                         html::text(fmt::format("{}, seed {}", plural(all.options.trials, "trial"),
                                                all.options.seed))) +
           html::element("div", "", histogram_chart("single steps", all.step_histogram)) +
           html::element("div", "", histogram_chart("mean step of a trial", all.trial_histogram)) +
           quantiles_table(all).html("quantiles");
  }

  std::string basis() const {
    std::string items;
    for (const Assumption& a : assumptions(f_))
      items +=
          fmt::format("<li><strong>{}</strong>: {}</li>\n", html::text(a.key), html::text(a.text));
    return html::element("ul", "plain", items);
  }

  const sim::ScenarioForecast& f_;
  const JudgedRun* wrong_;
  std::vector<std::string> names_;  // by class
};

}  // namespace

std::string forecast_page(const sim::ScenarioForecast& forecast, const JudgedRun* wrong) {
  return Page(forecast, wrong).str();
}

}  // namespace lockstep::reports
