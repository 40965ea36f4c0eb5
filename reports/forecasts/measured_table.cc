#include "reports/forecasts/measured_table.h"

#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/quantities.h"
#include "base/tables.h"
#include "base/text.h"
#include "reports/table.h"

namespace lockstep::reports {
namespace {

using sim::Comparison;

std::string_view kind_name(sim::Comparison::Kind kind) {
  switch (kind) {
    case sim::Comparison::Kind::seconds:
      return "time";
    case sim::Comparison::Kind::tokens:
      return "tokens/s";
    case sim::Comparison::Kind::memory:
      return "memory";
  }
  return "";
}

std::string figure_text(sim::Comparison::Kind kind, double value) {
  return kind == sim::Comparison::Kind::memory   ? bytes_text(value)
         : kind == sim::Comparison::Kind::tokens ? fmt::format("{} tok/s", number_text(value))
                                                 : duration_text(value);
}

std::vector<sim::Comparison> figures_of(const sim::TableAnswer& answer, sim::Comparison::Kind kind,
                                        bool held_out) {
  std::vector<sim::Comparison> out;
  for (const sim::ComparedRow& row : answer.rows)
    // The errors of rows that the calibration was fitted to say nothing about how well it predicts.
    if (row.figure.kind == kind && (!held_out || !row.fitted)) out.push_back(row.figure);
  return out;
}

// "64 GPUs, t 2 d 32": a line ends after a comma only.
std::string broken_at_commas(std::string_view label) {
  std::string out;
  for (const char c : label)
    out += c == ' ' && !out.ends_with(',') ? std::string("\u00a0") : std::string(1, c);
  return out;
}

nlohmann::ordered_json summary_json(const sim::ErrorSummary& summary) {
  return {{"count", summary.count},
          {"mape", summary.mean},
          {"median", summary.median},
          {"max", summary.largest}};
}

}  // namespace

std::string table_answer_text(const sim::TableAnswer& answer, std::size_t width) {
  Table rows({{"row", Column::number},
              {""},
              {"measured", Column::number},
              {"predicted", Column::number},
              {"error", Column::number},
              {.name = "label", .wrapped = true}});
  for (const sim::ComparedRow& row : answer.rows)
    rows.add({std::to_string(row.figure.row), row.fitted ? "*" : "",
              figure_text(row.figure.kind, row.figure.measured),
              figure_text(row.figure.kind, row.figure.predicted),
              fmt::format("{}{}", row.figure.error() < 0 ? "" : "+", percent(row.figure.error())),
              broken_at_commas(row.label)});
  Table errors(columns({"error of"}, {"figures", "mean", "median", "largest"}));
  const auto add = [&](const std::string& name, const std::vector<sim::Comparison>& figures) {
    const sim::ErrorSummary summary = sim::summarize(figures);
    errors.add({name, std::to_string(summary.count), percent(summary.mean), percent(summary.median),
                percent(summary.largest)});
  };
  bool marked = false;
  for (const sim::Comparison::Kind kind :
       {sim::Comparison::Kind::seconds, sim::Comparison::Kind::tokens,
        sim::Comparison::Kind::memory}) {
    const auto all = figures_of(answer, kind, false);
    const auto held_out = figures_of(answer, kind, true);
    if (all.empty()) continue;
    add(std::string(kind_name(kind)), all);
    // Without a fit all rows are held out, and a second line would repeat the first.
    if (held_out.size() == all.size()) continue;
    marked = true;
    if (!held_out.empty()) add("  without rows fitted to", held_out);
  }
  return fmt::format(
      "calibration: {}\n\n{}\n{}{}{}", printable(answer.calibration), rows.text(width, 2),
      errors.text(), marked ? "* the calibration was fitted to this row\n" : "",
      answer.letters.empty()
          ? ""
          : fmt::format("{}\n", wrap(fmt::format("label: {}", answer.letters), width, 2)));
}

std::string table_answer_json(const sim::TableAnswer& answer) {
  nlohmann::ordered_json out;
  out["file"] = printable(answer.file);
  out["calibration"] = printable(answer.calibration);
  out["rows"] = nlohmann::ordered_json::array();
  for (const sim::ComparedRow& row : answer.rows)
    out["rows"].push_back({{"row", row.figure.row},
                           {"label", printable(row.label)},
                           {"kind", kind_name(row.figure.kind)},
                           {"measured", row.figure.measured},
                           {"predicted", row.figure.predicted},
                           {"error", row.figure.error()},
                           {"fitted", row.fitted}});
  out["summary"] = nlohmann::ordered_json::object();
  out["held_out"] = nlohmann::ordered_json::object();
  for (const sim::Comparison::Kind kind :
       {sim::Comparison::Kind::seconds, sim::Comparison::Kind::tokens,
        sim::Comparison::Kind::memory}) {
    const auto all = figures_of(answer, kind, false);
    if (all.empty()) continue;
    out["summary"][std::string(kind_name(kind))] = summary_json(sim::summarize(all));
    out["held_out"][std::string(kind_name(kind))] =
        summary_json(sim::summarize(figures_of(answer, kind, true)));
  }
  return fmt::format("{}\n", out.dump(2));
}

}  // namespace lockstep::reports
