#include "reports/forecasts/parts.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/quantities.h"
#include "base/tables.h"
#include "reports/table.h"
#include "sim/sweep/variation.h"

namespace lockstep::reports {
namespace {

constexpr std::size_t kNames = 12;  // columns of the figures' names

double share(const PartsOfWhole& parts, double value) {
  return parts.whole > 0 ? value / parts.whole : 0;
}

}  // namespace

std::string plan_title(const sim::PlanFile& plan) {
  std::string out = plan.name;
  for (const auto& [key, value] : plan.settings.items())
    out += fmt::format("{}{}={}", out.size() == plan.name.size() ? " with " : ", ", key,
                       sim::value_text(value));
  return out;
}

std::string figures_text(const std::vector<NamedFigure>& figures, std::size_t width) {
  std::string out;
  for (const NamedFigure& one : figures)
    out += fmt::format("{} {}\n", pad_right(shorten_middle(one.what, kNames), kNames),
                       wrap(one.value, width, kNames + 1, kNames + 1));
  return out;
}

std::string description_html(const std::vector<NamedFigure>& figures) {
  std::string out;
  for (const NamedFigure& one : figures)
    out += fmt::format(
        "{}\n", html::element("li", "", html::text(fmt::format("{}: {}", one.what, one.value))));
  return html::element("ul", "plain", out);
}

std::string layout_beyond_tensor(const sim::TrainingPlan& plan, const std::string& of_schedule) {
  std::string out;
  if (plan.context > 1) out += fmt::format(", context {}", plan.context);
  if (plan.expert > 1) out += fmt::format(", expert {}", plan.expert);
  out += fmt::format(", pipeline {}", plan.pipeline);
  if (plan.pipeline > 1)
    out += fmt::format(" ({}{})", sim::pipeline_schedule_name(plan.schedule), of_schedule);
  return out + fmt::format(", data {}, ZeRO {}", plan.data, static_cast<int>(plan.sharding));
}

std::string step_time_text(double seconds, const sim::StepRange& range) {
  return fmt::format("{} ({} to {} in four cases of five)", duration_text(seconds),
                     duration_text(range.least), duration_text(range.most));
}

std::string fit_text(const sim::MemoryNeed& need, const std::string& where) {
  const auto has = static_cast<double>(need.gpu->value);
  if (need.bytes <= has)
    return fmt::format("fits {}, {} are left", bytes_text(has), bytes_text(has - need.bytes));
  const std::string missing =
      fmt::format("{}: {} too much on {}", bytes_text(has), bytes_text(need.missing()), where);
  if (need.surely_too_large()) return fmt::format("does not fit {}", missing);
  return fmt::format(
      "may not fit {}, which is within the {} by which measured peaks differ from predictions",
      missing, percent(sim::kMemorySpread));
}

void add_fit(nlohmann::ordered_json& to, const sim::MemoryNeed& need) {
  if (!need.gpu) return;
  to["gpu_bytes"] = need.gpu->value;
  to["fits"] = need.missing() == 0;
  to["surely_too_large"] = need.surely_too_large();
  to["missing_bytes"] = need.missing();
}

std::string goodput_text(const sim::PlanForecast::Goodput& goodput, double tokens_per_second) {
  return fmt::format(
      "{}: {} tokens/s; a failure every {}, a checkpoint after {} of work (best: {}; by Young {}, "
      "by Daly {})",
      percent(goodput.share), number_text(goodput.share * tokens_per_second),
      duration_text(goodput.mtbf), duration_text(goodput.interval), duration_text(goodput.best),
      duration_text(goodput.young), duration_text(goodput.daly));
}

nlohmann::ordered_json goodput_json(const sim::PlanForecast::Goodput& goodput,
                                    double tokens_per_second) {
  return {{"share", goodput.share},          {"tokens_per_s", goodput.share * tokens_per_second},
          {"mtbf_s", goodput.mtbf},          {"interval_s", goodput.interval},
          {"best_interval_s", goodput.best}, {"young_interval_s", goodput.young},
          {"daly_interval_s", goodput.daly}};
}

std::string parts_text(const PartsOfWhole& parts, std::size_t width) {
  Table table(columns({""}, {"", ""}));
  const auto add = [&](const std::string& what, double value) {
    table.add({what, parts.text(value), percent(share(parts, value))});
  };
  for (const sim::ForecastPart& part : parts.parts) add(part.what, part.value);
  // The whole, not the sum of the parts: where a model forgets a part, the shares show it.
  add("together", parts.whole);
  return table.text(width, 2);
}

std::string parts_html(const std::string& label, const PartsOfWhole& parts) {
  const bool based = std::any_of(parts.parts.begin(), parts.parts.end(),
                                 [](const auto& part) { return !part.rests_on.empty(); });
  Table table(columns({""}, {"", "share"},
                      based ? std::vector<std::string>{"rests on"} : std::vector<std::string>{}));
  const auto add = [&](const std::string& what, double value, const std::string& rests_on) {
    std::vector<std::string> cells = {what, parts.text(value), percent(share(parts, value))};
    if (based) cells.push_back(rests_on);
    table.add(std::move(cells));
  };
  for (const sim::ForecastPart& part : parts.parts) add(part.what, part.value, part.rests_on);
  add("together", parts.whole, "");
  return table.html(label);
}

nlohmann::ordered_json parts_json(const PartsOfWhole& parts, const char* unit) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const sim::ForecastPart& part : parts.parts)
    out.push_back({{"part", printable(part.key)},
                   {"what", printable(part.what)},
                   {unit, part.value},
                   {"share", share(parts, part.value)},
                   {"rests_on", part.rests_on}});
  return out;
}

std::string basis_text(const std::vector<std::string>& sentences,
                       const std::vector<const std::vector<sim::ForecastPart>*>& parts,
                       std::size_t width) {
  std::string out;
  const auto line = [&](const std::string& text) {
    out += fmt::format("  {}\n", wrap(text, width - 2, 4));
  };
  for (const std::string& sentence : sentences) line(sentence);
  for (const auto* list : parts)
    for (const sim::ForecastPart& part : *list)
      line(fmt::format("{}: {}", part.what, part.rests_on));
  return out;
}

}  // namespace lockstep::reports
