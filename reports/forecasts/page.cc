#include "reports/html/page.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "base/tables.h"
#include "base/text.h"
#include "base/tool_version.h"
#include "reports/forecasts/memory.h"
#include "reports/forecasts/path.h"
#include "reports/forecasts/scenario.h"
#include "reports/html/markup.h"
#include "reports/html/stacked_charts.h"

namespace lockstep::reports {
namespace {

using html::element;
using html::text;

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

std::string forecast_card(std::string_view title, const std::string& content) {
  return content.empty() ? ""
                         : "<section class=\"card\"><h2>" + std::string(title) + "</h2>" + content +
                               "</section>\n";
}

std::string number(std::string_view key, const std::string& value) {
  return "<div><dt>" + std::string(key) + "</dt><dd>" + html::text(value) + "</dd></div>";
}

// `n`: which columns are numbers. Cells are markup.
struct Table {
  std::string name;
  std::vector<std::string> head;
  std::vector<bool> is_number;
  std::string rows;

  void add(const std::vector<std::string>& cells) {
    rows += "<tr>";
    for (std::size_t i = 0; i < cells.size(); ++i)
      rows += (is_number[i] ? "<td class=\"n\">" : "<td>") + cells[i] + "</td>";
    rows += "</tr>\n";
  }
  std::string str() const {
    std::string top;
    for (std::size_t i = 0; i < head.size(); ++i)
      top += (is_number[i] ? "<th class=\"n\">" : "<th>") + head[i] + "</th>";
    return html::scroller(
        name, "<table><thead><tr>" + top + "</tr></thead><tbody>" + rows + "</tbody></table>");
  }
};

std::string of_kind(const std::string& ranks) {
  return (ranks.find_first_of(",-") == std::string::npos ? "rank " : "ranks ") + ranks;
}

std::string more(std::size_t left_out, std::string_view one, std::string_view many) {
  if (left_out == 0) return {};
  return html::element("p", "caption", html::text("and " + plural(left_out, one, many)));
}

class Page {
 public:
  explicit Page(const sim::ScenarioForecast& f) : f_(f), ranks_(ranks_by_class(f)) {}

  std::string str() const {
    const std::string body =
        "<p class=\"brand\">Lockstep forecast</p>\n<main>\n" + head() +
        forecast_card("What the ranks do", use()) + forecast_card("Step by step", steps()) +
        forecast_card("Memory", memory_charts(f_.memory.classes, f_.machine)) +
        forecast_card("Critical path", path()) + forecast_card("What if", what_if()) +
        forecast_card("Trials", trials()) + forecast_card("What this rests on", basis()) +
        "</main>\n<footer><p>Simulated by " + html::text(tool_version()) + ".</p></footer>\n";
    return html::page("Lockstep forecast: " + f_.scenario, body);
  }

 private:
  std::string head() const {
    std::string out;
    for (const Headline& one : headlines(f_)) out += number(one.what, one.value);
    return "<header class=\"verdict\"><h1>" +
           html::text(f_.scenario + ": " + plural(f_.class_of.size(), "rank") + " on " +
                      f_.machine.name) +
           "</h1>" + html::element("dl", "numbers", out) + "</header>\n";
  }

  std::string use() const {
    std::vector<html::StackedBar> bars;
    double most = 0;
    Table table{"use of time",
                {"ranks", "computes", "exposed", "idle", "hidden communication"},
                {false, true, true, true, true},
                {}};
    for (std::size_t c = 0; c < std::min(kClasses, ranks_.size()); ++c) {
      const sim::RankUse& use = f_.figures.classes[c];
      // Hidden communication is part of busy, so it is a share, too, but not part of the sum.
      const double all = use.busy + use.exposed + use.idle;
      most = std::max(most, all);
      bars.push_back({of_kind(ranks_[c]), shares_of_time(use)});
      const auto share = [&](double part) { return percent(all > 0 ? part / all : 0); };
      table.add({html::text(shorten_end(of_kind(ranks_[c]), 60)), share(use.busy),
                 share(use.exposed), share(use.idle), share(use.hidden)});
    }
    return html::stacked_bars("time that each kind of ranks computes and waits", uses(), bars,
                              most) +
           table.str() +
           more(ranks_.size() - std::min(kClasses, ranks_.size()), "other kind of ranks",
                "other kinds of ranks");
  }

  // The mean over all ranks: each class weighted by its number of ranks.
  std::string steps() const {
    std::vector<double> weight(ranks_.size(), 0);
    for (const std::uint32_t c : f_.class_of)
      weight[c] += 1 / static_cast<double>(f_.class_of.size());
    std::vector<std::vector<double>> columns;
    for (std::size_t s = 0; s < f_.figures.times.size(); ++s) {
      std::vector<double> mean(uses().size(), 0);
      for (std::size_t c = 0; c < ranks_.size(); ++c) {
        const std::vector<double> own = shares_of_time(f_.figures.steps[c][s].use);
        for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += weight[c] * own[i];
      }
      columns.push_back(std::move(mean));
    }
    if (columns.empty()) return {};
    return html::stacked_columns("what a rank does in each step, on average", uses(), columns,
                                 milliseconds, "step 0", std::to_string(columns.size() - 1)) +
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
    Table table{"parts of the critical path",
                {"part", "time", "share", "times"},
                {false, true, true, true},
                {}};
    for (std::size_t i = 0; i < std::min(kItems, path.items.size()); ++i) {
      const sim::ForecastPath::Item& item = path.items[i];
      table.add({html::code(words_of(item, ranks_)), milliseconds(item.time.seconds()),
                 percent(path.share(item.time)), grouped(item.count)});
    }
    return html::element("p", "",
                         html::text("The chain of work and calls in which each starts when the one "
                                    "before it ends, over " +
                                    path.of_what() + ": " +
                                    milliseconds((path.end - path.begin).seconds()) + ".")) +
           html::signed_bars("shares of the critical path", bars) + table.str() +
           more(path.items.size() - std::min(kItems, path.items.size()), "other part",
                "other parts");
  }

  std::string what_if() const {
    std::vector<html::SignedBar> bars;
    for (const sim::WhatIf& one : f_.what_ifs)
      // Less than 0.05 % would be printed as 0.0 %: no bar for it.
      bars.push_back({one.change, std::abs(one.gain) < 5e-4 ? 0 : one.gain, change_in_words(one)});
    if (bars.empty()) return {};
    return html::element("p", "", "How much less a step would take, each changed alone.") +
           html::signed_bars("change of the step time", bars);
  }

  std::string trials() const {
    if (!f_.trials) return {};
    Table table{
        "quantiles", {"", "5 %", "50 %", "95 %", "mean"}, {false, true, true, true, true}, {}};
    const auto add = [&](const std::string& name, const sim::TrialsForecast::Quantiles& q) {
      table.add({name, milliseconds(q.p5.seconds()), milliseconds(q.p50.seconds()),
                 milliseconds(q.p95.seconds()), milliseconds(q.mean.seconds())});
    };
    add("single steps", f_.trials->steps);
    add("mean step of a trial", f_.trials->trials);
    return table.str();
  }

  std::string basis() const {
    std::string items;
    for (const Assumption& a : assumptions(f_))
      items += "<li><strong>" + html::text(a.key) + "</strong>: " + html::text(a.text) + "</li>\n";
    return html::element("ul", "plain", items);
  }

  const sim::ScenarioForecast& f_;
  std::vector<std::string> ranks_;  // by class
};

}  // namespace

std::string forecast_page(const sim::ScenarioForecast& forecast) { return Page(forecast).str(); }

}  // namespace lockstep::reports
