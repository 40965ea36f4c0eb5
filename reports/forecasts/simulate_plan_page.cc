// The page of `lockstep simulate plan`.
#include <map>
#include <string_view>

#include "base/amount.h"
#include "base/text.h"
#include "base/tool_version.h"
#include "reports/forecasts/simulate_plan_result.h"
#include "reports/html/markup.h"
#include "reports/html/page.h"
#include "reports/html/stacked_charts.h"

namespace lockstep {
namespace {

using html::element;
using html::text;
using sim::ForecastPart;
using sim::PlanForecast;

// What stands together in the bar, which has fewer looks than a step has parts.
const std::map<std::string_view, std::size_t>& series_of_part() {
  static const std::map<std::string_view, std::size_t> out = {
      {"layers", 0},        {"recompute", 0},         {"logits", 0},
      {"host", 1},          {"tensor_parallel", 2},   {"context_parallel", 3},
      {"data_parallel", 4}, {"pipeline_transfer", 5}, {"pipeline_bubble", 6},
      {"optimizer", 7},     {"overhead", 7}};
  return out;
}

const std::vector<html::Series>& time_series() {
  static const std::vector<html::Series> out = {
      {"computes", 0},         {"waits for the host", 1},    {"tensor parallel", 2},
      {"context parallel", 3}, {"data parallel", 4},         {"between stages", 5},
      {"bubble", 6},           {"optimizer, once a step", 7}};
  return out;
}

std::string plan_card(std::string_view title, const std::string& content) {
  return "<section class=\"card\"><h2>" + text(title) + "</h2>" + content + "</section>\n";
}

std::string parts_table(const std::string& name, const std::vector<ForecastPart>& parts,
                        double whole, std::string (*words)(double)) {
  std::string rows;
  for (const ForecastPart& part : parts)
    rows += "<tr>" + element("td", "", text(part.what)) +
            element("td", "n", text(words(part.value))) +
            element("td", "n", text(fixed(100 * part.value / whole, 1) + " %")) +
            element("td", "", text(part.rests_on)) + "</tr>\n";
  rows += "<tr><td>together</td>" + element("td", "n", text(words(whole))) +
          "<td class=\"n\">100.0 %</td><td></td></tr>\n";
  return html::scroller(name,
                        "<table><thead><tr><th></th><th class=\"n\"></th><th class=\"n\">share</th>"
                        "<th>rests on</th></tr></thead><tbody>\n" +
                            rows + "</tbody></table>");
}

std::string time_card(const PlanForecast& f) {
  html::StackedBar bar{"a step", std::vector<double>(time_series().size(), 0)};
  for (const ForecastPart& part : f.time) bar.parts[series_of_part().at(part.key)] += part.value;
  return plan_card("Where the step's time goes",
                   html::stacked_bars("parts of a step", time_series(), {bar}, f.step.seconds) +
                       parts_table("parts of a step", f.time, f.step.seconds, milliseconds));
}

std::string memory_card(const PlanForecast& f) {
  std::vector<html::Series> series;
  html::StackedBar bar{"stage " + std::to_string(f.step.memory.stage), {}};
  for (const ForecastPart& part : f.memory) {
    series.push_back({part.what, series.size()});
    bar.parts.push_back(part.value);
  }
  const std::string fit = plan_fit(f);
  return plan_card(
      "Memory of a GPU of the fullest stage",
      (fit.empty() ? "" : element("p", "caption", html::sentence(fit) + ".")) +
          html::stacked_bars("parts of a GPU's memory", series, {bar}, f.step.memory_bytes) +
          parts_table("parts of a GPU's memory", f.memory, f.step.memory_bytes, amount));
}

std::string numbers_list(const std::vector<PlanLine>& lines) {
  std::string out;
  for (const PlanLine& line : lines)
    out += "<div>" + element("dt", "", text(line.what)) + element("dd", "", text(line.value)) +
           "</div>";
  return element("dl", "numbers", out);
}

}  // namespace

std::string plan_html(const PlanForecast& f) {
  std::string description, basis;
  for (const PlanLine& line : plan_description(f))
    description += element("li", "", text(line.what + ": " + line.value)) + "\n";
  for (const std::string& sentence : f.basis())
    basis += element("li", "", html::sentence(sentence) + ".") + "\n";
  return html::page(
      "Lockstep plan: " + f.plan.name,
      "<p class=\"brand\">Lockstep plan</p>\n<main>\n<header class=\"verdict\">" +
          element("h1", "", text(f.plan.name)) + numbers_list(plan_headlines(f)) + "</header>\n" +
          plan_card("Plan", element("ul", "plain", description)) + time_card(f) + memory_card(f) +
          plan_card("What this rests on", element("ul", "plain", basis)) + "</main>\n<footer><p>" +
          text("lockstep " + std::string(tool_version())) + "</p></footer>\n");
}

}  // namespace lockstep
