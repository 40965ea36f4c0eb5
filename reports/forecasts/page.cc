#include "reports/html/page.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/quantities.h"
#include "base/tables.h"
#include "base/text.h"
#include "reports/forecasts/memory.h"
#include "reports/forecasts/path.h"
#include "reports/forecasts/scenario.h"
#include "reports/html/markup.h"
#include "reports/html/stacked_charts.h"
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

// What a table of the first `shown` leaves out.
std::string more(std::size_t all, std::size_t shown, std::string_view one, std::string_view many) {
  if (all <= shown) return {};
  return html::element("p", "caption",
                       html::text(fmt::format("and {}", plural(all - shown, one, many))));
}

class Page {
 public:
  explicit Page(const sim::ScenarioForecast& f) : f_(f), ranks_(ranks_by_class(f)) {}

  std::string str() const {
    std::vector<html::NamedFigure> figures;
    for (const Headline& one : headlines(f_)) figures.push_back({one.what, one.value});
    return html::result_page(
        "forecast",
        fmt::format("{}: {} on {}", f_.scenario, plural(f_.class_of.size(), "rank"),
                    f_.machine.name),
        html::figures(figures),
        html::card("What the ranks do", use()) + html::card("Step by step", steps()) +
            html::card("Memory", memory_charts(f_.memory.classes, f_.machine)) +
            html::card("Critical path", path()) + html::card("What if", what_if()) +
            html::card("Trials", trials()) + html::card("What this rests on", basis()));
  }

 private:
  std::string use() const {
    std::vector<html::StackedBar> bars;
    double most = 0;
    Table table(columns({"ranks"}, {"computes", "exposed", "idle", "hidden communication"}));
    for (std::size_t c = 0; c < std::min(kClasses, ranks_.size()); ++c) {
      const sim::RankUse& use = f_.figures.classes[c];
      // Hidden communication is part of busy, so it is a share, too, but not part of the sum.
      const double all = use.busy + use.exposed + use.idle;
      most = std::max(most, all);
      bars.push_back({named_ranks(ranks_[c]), shares_of_time(use)});
      const auto share = [&](double part) { return percent(all > 0 ? part / all : 0); };
      table.add({shorten_end(named_ranks(ranks_[c]), 60), share(use.busy), share(use.exposed),
                 share(use.idle), share(use.hidden)});
    }
    return html::stacked_bars("time that each kind of ranks computes and waits", uses(), bars,
                              most) +
           table.html("use of time") +
           more(ranks_.size(), kClasses, "other kind of ranks", "other kinds of ranks");
  }

  // The mean over all ranks: each class weighted by its number of ranks.
  std::string steps() const {
    std::vector<double> weight(ranks_.size(), 0);
    for (const std::uint32_t c : f_.class_of)
      weight[c] += 1 / static_cast<double>(f_.class_of.size());
    std::vector<std::vector<double>> means;
    for (std::size_t s = 0; s < f_.figures.times.size(); ++s) {
      std::vector<double> mean(uses().size(), 0);
      for (std::size_t c = 0; c < ranks_.size(); ++c) {
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
      bars.push_back({words_of(path.sums[i], ranks_), share, percent(share)});
    }
    Table table(columns({"part"}, {"time", "share", "times"}));
    for (std::size_t i = 0; i < std::min(kItems, path.items.size()); ++i) {
      const sim::ForecastPath::Item& item = path.items[i];
      table.add({words_of(item, ranks_), duration_text(item.time), percent(path.share(item.time)),
                 grouped(item.count)});
    }
    return html::element(
               "p", "",
               html::text(fmt::format("The chain of work and calls in which each starts "
                                      "when the one before it ends, over {}: {}.",
                                      path.of_what(), duration_text(path.end - path.begin)))) +
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
    return f_.trials ? quantiles_table(*f_.trials).html("quantiles") : "";
  }

  std::string basis() const {
    std::string items;
    for (const Assumption& a : assumptions(f_))
      items +=
          fmt::format("<li><strong>{}</strong>: {}</li>\n", html::text(a.key), html::text(a.text));
    return html::element("ul", "plain", items);
  }

  const sim::ScenarioForecast& f_;
  std::vector<std::string> ranks_;  // by class
};

}  // namespace

std::string forecast_page(const sim::ScenarioForecast& forecast) { return Page(forecast).str(); }

}  // namespace lockstep::reports
