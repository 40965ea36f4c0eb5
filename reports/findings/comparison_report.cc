#include "reports/findings/comparison_report.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/quantities.h"
#include "base/tables.h"
#include "base/text.h"
#include "reports/html/markup.h"
#include "reports/html/page.h"
#include "reports/table.h"

namespace lockstep::reports {

namespace {

std::string apart(double x) { return x == 0 ? "equal" : scientific(x); }

// The noun before the tensor's name.
std::string kind(const verify::TensorDifference& d) {
  return d.phase == verify::Phase::param ? "parameter" : "gradient of";
}

std::string comparison_headline(const verify::Comparison& c, std::size_t width) {
  // From the least to the most that the runs have in common.
  if (c.compared == 0 && !c.max_loss_difference) {
    return "NOTHING TO COMPARE: the runs have no recorded value in common\n";
  }
  if (c.compared == 0) {
    return "LOSSES ONLY: the runs have no recorded tensor in common (watch: {every: 1})\n";
  }
  if (!c.first_difference) {
    std::string out =
        fmt::format("THE SAME up to rounding: {} compared", plural(c.compared, "value"));
    // Each difference is within rounding, but they grow: worth a look, not a defect.
    if (c.drifted) out += ";\n  differences of rounding grow from step to step (marked !)";
    return out.append("\n");
  }
  const verify::TensorDifference& d = *c.first_difference;
  std::string out = fmt::format(
      "FIRST DIFFERENCE in step {}: {} {} differs by {} {:.{}f} % (rounding explains {:.3f} %); "
      "its norm is {:.4f} times the second run's",
      d.n, kind(d), printable(d.name), d.lower_bound ? "at least" : "about", 100 * d.error,
      d.error < 0.01 ? 4 : 1, 100 * d.tolerance, d.ratio);
  if (d.cosine) out += fmt::format(", the cosine between them {:.4f}", *d.cosine);
  return wrap(out, width, 2).append("\n");
}

std::string difference_cell(const std::optional<verify::TensorDifference>& d) {
  if (!d) return "-";
  return apart(d->error) + (d->error > d->tolerance ? " !" : "");
}

}  // namespace

std::string comparison_text(const verify::Comparison& c, std::size_t lines, std::size_t width) {
  std::string out = comparison_headline(c, width);
  if (c.max_loss_difference) {
    const double most = *c.max_loss_difference;
    out += most == 0 ? "losses equal\n" : fmt::format("losses at most {} apart\n", apart(most));
  }
  if (c.only_in_one > 0) {
    out +=
        fmt::format("{} that one run alone recorded left out\n", plural(c.only_in_one, "tensor"));
  }
  if (c.steps.empty()) return out;
  // The end of a name ("….weight") says more than its beginning, so a long name loses its
  // beginning.
  constexpr std::size_t kNumbers = 54;  // columns of the table that the name does not have
  constexpr std::size_t kShortestName = 12;
  const std::size_t name_width = std::max(width, kNumbers + kShortestName) - kNumbers;
  Table table({{"step", Column::number},
               {"loss 1", Column::number},
               {"loss 2", Column::number},
               {"gradients", Column::number},
               {"parameters", Column::number},
               {"worst gradient"}});
  for (std::size_t i = 0; i < c.steps.size(); ++i) {
    if (c.steps.size() > lines && i == lines / 2) {
      const std::size_t left_out = c.steps.size() - lines;
      table.add({"...", "", "", "", "", plural(left_out, "more step")});
      i += left_out;
    }
    const verify::StepDifference& s = c.steps[i];
    const auto loss = [](const std::optional<double>& x) {
      return x ? fmt::format("{:.5f}", *x) : std::string("-");
    };
    std::string name = s.gradient ? printable(s.gradient->name) : "";
    if (name.size() > name_width)
      name = fmt::format("…{}", name.substr(name.size() - name_width + 1));
    table.add({fmt::format("{}", s.n), loss(s.loss_a), loss(s.loss_b), difference_cell(s.gradient),
               difference_cell(s.parameter), name});
  }
  return out.append("\n").append(table.text(width));
}

namespace {

using Json = nlohmann::ordered_json;

Json json_of(const std::optional<verify::TensorDifference>& d) {
  if (!d) return nullptr;
  return {{"step", d->n},
          {"phase", d->phase == verify::Phase::param ? "parameter" : "gradient"},
          {"tensor", to_utf8(d->name)},
          {"relative_error", d->error},
          {"lower_bound", d->lower_bound},
          {"tolerance", d->tolerance},
          {"norm_ratio", d->ratio},
          {"cosine", d->cosine ? Json(*d->cosine) : Json()}};
}

std::string comparison_page(const verify::Comparison& comparison) {
  const std::string text = html::text(comparison_text(comparison, SIZE_MAX));
  return html::page(
      "Two runs compared",
      html::element("main", "",
                    html::element("h1", "", "Two runs compared") +
                        html::scroller("comparison", html::element("pre", "", text))));
}

// For programs: what was compared, the first difference (null: none), a row per step.
std::string comparison_json(const verify::Comparison& c) {
  const auto number = [](const std::optional<double>& x) { return x ? Json(*x) : Json(); };
  Json out = {{"compared", c.compared},
              {"only_in_one", c.only_in_one},
              {"same", c.compared > 0 && !c.first_difference},
              {"drifted", c.drifted},
              {"max_loss_difference", number(c.max_loss_difference)},
              {"first_difference", json_of(c.first_difference)},
              {"steps", Json::array()}};
  for (const verify::StepDifference& s : c.steps)
    out["steps"].push_back({{"step", s.n},
                            {"loss_1", number(s.loss_a)},
                            {"loss_2", number(s.loss_b)},
                            {"gradient", json_of(s.gradient)},
                            {"parameter", json_of(s.parameter)}});
  return fmt::format("{}\n", out.dump(2));
}

}  // namespace

OutputForms comparison_forms() { return {"comparison", {"text", "json", "html", "markdown"}}; }

std::string comparison_in(const std::string& kind, const verify::Comparison& comparison,
                          std::size_t width) {
  if (kind == "json") return comparison_json(comparison);
  if (kind == "html") return comparison_page(comparison);
  if (kind == "markdown")
    return fmt::format("```text\n{}```\n", comparison_text(comparison, SIZE_MAX));
  return comparison_text(comparison, 24, width);
}

Supplement reference_supplement(const std::string& why_none, const verify::Comparison& comparison) {
  Supplement out{
      .title = "Against one process with all batches", .text = {}, .key = "reference", .json = {}};
  if (why_none.empty()) {
    out.text = comparison_text(comparison);
    out.json = comparison_json(comparison);
  } else {
    out.text = fmt::format("{}\n", wrap(why_none, kReportColumns));
    out.json = Json{{"none", why_none}}.dump();
  }
  return out;
}

namespace {

using Cells = std::vector<std::string>;

std::string in_words(ReferenceVerdict verdict) {
  switch (verdict) {
    case ReferenceVerdict::agrees:
      return "agrees";
    case ReferenceVerdict::loss_differs:
      return "LOSS DIFFERS";
    case ReferenceVerdict::values_differ:
      return "VALUES DIFFER";
    case ReferenceVerdict::no_reference:
      return "no reference";
    case ReferenceVerdict::no_loss:
      return "no loss";
  }
  return "";
}

Cells cells_of(const ReferenceRow& row) {
  Cells cells = {printable(row.scenario), "-", "-", "-", "-", "-", in_words(verdict_of(row))};
  if (!row.loss) return cells;
  cells[1] = fmt::format("{}", row.loss->step + 1);
  cells[2] = fixed(row.loss->loss, 5);
  cells[3] = fixed(row.loss->reference, 5);
  cells[4] = row.loss->apart == 0 ? "equal" : scientific(row.loss->apart);
  cells[5] = scientific(row.loss->tolerance);
  return cells;
}

// Explains a row whose numbers do not show its verdict.
std::string reason(const ReferenceRow& row) {
  switch (verdict_of(row)) {
    case ReferenceVerdict::no_reference:
      return row.why_none;
    case ReferenceVerdict::values_differ:
      return fmt::format(
          "{} {} first differs in step {}",
          row.first_difference->phase == verify::Phase::param ? "parameter" : "the gradient of",
          printable(row.first_difference->name), row.first_difference->n);
    case ReferenceVerdict::no_loss:
      return "the two have no loss of one last step";
    default:
      return "";
  }
}

}  // namespace

ReferenceVerdict verdict_of(const ReferenceRow& row) {
  if (!row.why_none.empty()) return ReferenceVerdict::no_reference;
  if (!row.loss) return ReferenceVerdict::no_loss;
  if (!row.loss->agrees()) return ReferenceVerdict::loss_differs;
  return row.first_difference ? ReferenceVerdict::values_differ : ReferenceVerdict::agrees;
}

std::string reference_table(const std::vector<ReferenceRow>& rows, std::size_t width) {
  Table table(
      {{"scenario"}, {"steps"}, {"loss"}, {"reference"}, {"apart"}, {"tolerance"}, {"verdict"}});
  for (const ReferenceRow& row : rows) table.add(cells_of(row));
  std::string out = table.text(width);
  for (const ReferenceRow& row : rows)
    if (const std::string why = reason(row); !why.empty())
      out +=
          fmt::format("{}\n", wrap(fmt::format("{}: {}", printable(row.scenario), why), width, 2));
  return out;
}

}  // namespace lockstep::reports
