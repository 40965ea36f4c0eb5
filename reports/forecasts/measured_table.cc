#include "reports/forecasts/measured_table.h"

#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/tables.h"
#include "base/text.h"

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
  if (kind == sim::Comparison::Kind::memory)
    return fixed(value / (1024.0 * 1024 * 1024), 1) + " GiB";
  if (kind == sim::Comparison::Kind::tokens) return fixed(value, value < 1000 ? 1 : 0) + " tok/s";
  if (value < 1e-3) return fixed(value * 1e6, 2) + " us";
  return value < 1 ? fixed(value * 1e3, 2) + " ms" : fixed(value, 2) + " s";
}

std::vector<sim::Comparison> figures_of(const sim::TableAnswer& answer, sim::Comparison::Kind kind,
                                        bool held_out) {
  std::vector<sim::Comparison> out;
  for (const sim::ComparedRow& row : answer.rows)
    if (row.figure.kind == kind && (!held_out || !row.fitted)) out.push_back(row.figure);
  return out;
}

std::string summary_line(const std::string& name, const sim::ErrorSummary& summary) {
  return pad_right(name, 26) + plural(summary.count, "figure") + ": mean " +
         fixed(100 * summary.mean, 2) + " %, median " + fixed(100 * summary.median, 2) +
         " %, largest " + fixed(100 * summary.largest, 1) + " %\n";
}

nlohmann::ordered_json summary_json(const sim::ErrorSummary& summary) {
  return {{"count", summary.count},
          {"mape", summary.mean},
          {"median", summary.median},
          {"max", summary.largest}};
}

}  // namespace

std::string table_answer_text(const sim::TableAnswer& answer) {
  std::string out = "calibration: " + printable(answer.calibration) + "\n\n";
  out += "  row    measured   predicted    error  \n";
  for (const sim::ComparedRow& row : answer.rows) {
    const std::string error =
        (row.figure.error() < 0 ? "" : "+") + fixed(100 * row.figure.error(), 1) + " %";
    const auto right = [](const std::string& text, std::size_t width) {
      return std::string(width > text.size() ? width - text.size() : 0, ' ') + text;
    };
    out += right(std::to_string(row.figure.row), 5) + (row.fitted ? "*" : " ") +
           right(figure_text(row.figure.kind, row.figure.measured), 11) +
           right(figure_text(row.figure.kind, row.figure.predicted), 12) + right(error, 9) + "  " +
           shorten_middle(printable(row.label), 39) + "\n";
  }
  out += "\n";
  bool marked = false;
  for (const sim::Comparison::Kind kind :
       {sim::Comparison::Kind::seconds, sim::Comparison::Kind::tokens,
        sim::Comparison::Kind::memory}) {
    const auto all = figures_of(answer, kind, false);
    const auto held_out = figures_of(answer, kind, true);
    if (all.empty()) continue;
    out += summary_line("error of " + std::string(kind_name(kind)), sim::summarize(all));
    if (held_out.size() == all.size()) continue;
    marked = true;
    if (!held_out.empty())
      out += summary_line("  without rows fitted to", sim::summarize(held_out));
  }
  if (marked) out += "* the calibration was fitted to this row\n";
  return out;
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
  return out.dump(2) + "\n";
}

}  // namespace lockstep::reports
