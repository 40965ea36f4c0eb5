#include "reports/findings/comparison_report.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/tables.h"
#include "base/text.h"
#include "reports/html/markup.h"
#include "reports/html/page.h"

namespace lockstep::reports {

namespace {

std::string apart(double x) { return x == 0 ? "equal" : scientific(x); }

// The noun before the tensor's name.
std::string kind(const verify::TensorDifference& d) {
  return d.phase == verify::Phase::param ? "parameter" : "gradient of";
}

std::string comparison_headline(const verify::Comparison& c) {
  // From the least to the most that the runs have in common.
  if (c.compared == 0 && !c.max_loss_difference) {
    return "NOTHING TO COMPARE: the runs have no recorded value in common\n";
  }
  if (c.compared == 0) {
    return "LOSSES ONLY: the runs have no recorded tensor in common (watch: {every: 1})\n";
  }
  if (!c.first_difference) {
    std::string out = "THE SAME up to rounding: " + plural(c.compared, "value") + " compared";
    // Each difference is within rounding, but they grow: worth a look, not a defect.
    if (c.drifted) out += ";\n  differences of rounding grow from step to step (marked !)";
    return out + "\n";
  }
  const verify::TensorDifference& d = *c.first_difference;
  std::string out = "FIRST DIFFERENCE in step " + std::to_string(d.n) + ": " + kind(d) + " " +
                    printable(d.name) + " differs by " + (d.lower_bound ? "at least " : "about ") +
                    fixed(100 * d.error, d.error < 0.01 ? 4 : 1) + " % (rounding explains " +
                    fixed(100 * d.tolerance, 3) + " %); its norm is " + fixed(d.ratio, 4) +
                    " times the second run's";
  if (d.cosine) out += ", the cosine between them " + fixed(*d.cosine, 4);
  return wrap(out, 80, 2) + "\n";
}

std::string difference_cell(const std::optional<verify::TensorDifference>& d) {
  if (!d) return "-";
  return apart(d->error) + (d->error > d->tolerance ? " !" : "");
}

std::string comparison_row(const std::string& n, const std::string& a, const std::string& b,
                           const std::string& gradient, const std::string& parameter,
                           const std::string& worst) {
  const auto padded = [](std::string text, std::size_t width) {
    if (text.size() < width) text.insert(0, width - text.size(), ' ');
    return text;
  };
  std::string name = worst;
  constexpr std::size_t kNameWidth = 26;
  // The end of a name ("….weight") says more than its beginning.
  if (name.size() > kNameWidth) name = "…" + name.substr(name.size() - kNameWidth + 1);
  return padded(n, 6) + padded(a, 10) + padded(b, 10) + padded(gradient, 12) +
         padded(parameter, 12) + "  " + name + "\n";
}

}  // namespace

std::string comparison_text(const verify::Comparison& c, std::size_t lines) {
  std::string out = comparison_headline(c);
  if (c.max_loss_difference) {
    out += "losses at most " + apart(*c.max_loss_difference) + " apart\n";
  }
  if (c.only_in_one > 0) {
    out += plural(c.only_in_one, "tensor") + " that one run alone recorded left out\n";
  }
  if (c.steps.empty()) return out;
  out += "\n" +
         comparison_row("step", "loss 1", "loss 2", "gradients", "parameters", "worst gradient");
  for (std::size_t i = 0; i < c.steps.size(); ++i) {
    if (c.steps.size() > lines && i == lines / 2) {
      const std::size_t left_out = c.steps.size() - lines;
      out += "   ... " + plural(left_out, "more step") + "\n";
      i += left_out;
    }
    const verify::StepDifference& s = c.steps[i];
    const auto loss = [](const std::optional<double>& x) { return x ? fixed(*x, 5) : "-"; };
    out += comparison_row(std::to_string(s.n), loss(s.loss_a), loss(s.loss_b),
                          difference_cell(s.gradient), difference_cell(s.parameter),
                          s.gradient ? printable(s.gradient->name) : "");
  }
  return out;
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

}  // namespace

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
  return out.dump(2) + "\n";
}

OutputForms comparison_forms() { return {"comparison", {"text", "json", "html", "markdown"}}; }

std::string comparison_in(const std::string& kind, const verify::Comparison& comparison) {
  if (kind == "json") return comparison_json(comparison);
  if (kind == "html") return comparison_page(comparison);
  if (kind == "markdown")
    return fmt::format("```text\n{}```\n", comparison_text(comparison, SIZE_MAX));
  return comparison_text(comparison);
}

Supplement reference_supplement(const std::string& none, const verify::Comparison& comparison) {
  Supplement out{
      .title = "Against one process with all batches", .text = {}, .key = "reference", .json = {}};
  if (none.empty()) {
    out.text = comparison_text(comparison);
    out.json = comparison_json(comparison);
  } else {
    out.text = wrap(none, kReportColumns) + "\n";
    out.json = Json{{"none", none}}.dump();
  }
  return out;
}

namespace {

using Cells = std::array<std::string, 7>;

std::string in_words(ReferenceVerdict verdict) {
  switch (verdict) {
    case ReferenceVerdict::agrees:
      return "agrees";
    case ReferenceVerdict::loss_parts:
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
  cells[1] = std::to_string(row.loss->step + 1);
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
      return row.none;
    case ReferenceVerdict::values_differ:
      return std::string(row.first_difference->phase == verify::Phase::param ? "parameter "
                                                                             : "the gradient of ") +
             printable(row.first_difference->name) + " first differs in step " +
             std::to_string(row.first_difference->n);
    case ReferenceVerdict::no_loss:
      return "the two have no loss of one last step";
    default:
      return "";
  }
}

}  // namespace

ReferenceVerdict verdict_of(const ReferenceRow& row) {
  if (!row.none.empty()) return ReferenceVerdict::no_reference;
  if (!row.loss) return ReferenceVerdict::no_loss;
  if (!row.loss->agrees()) return ReferenceVerdict::loss_parts;
  return row.first_difference ? ReferenceVerdict::values_differ : ReferenceVerdict::agrees;
}

std::string reference_table(const std::vector<ReferenceRow>& rows) {
  std::vector<Cells> lines = {
      {"scenario", "steps", "loss", "reference", "apart", "tolerance", "verdict"}};
  for (const ReferenceRow& row : rows) lines.push_back(cells_of(row));
  std::array<std::size_t, std::tuple_size_v<Cells>> widths{};
  for (const Cells& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      widths[i] = std::max(widths[i], columns_of(line[i]));
    }
  }
  // The names get what the other columns leave, with two blanks between columns.
  std::size_t others = 2 * (widths.size() - 1);
  for (std::size_t i = 1; i < widths.size(); ++i) others += widths[i];
  constexpr std::size_t kShortestName = 8;
  widths[0] = std::min(
      widths[0], kReportColumns > others + kShortestName ? kReportColumns - others : kShortestName);
  std::string out;
  for (Cells& line : lines) {
    line[0] = shorten_middle(line[0], widths[0]);
    for (std::size_t i = 0; i + 1 < line.size(); ++i) out += pad_right(line[i], widths[i]) + "  ";
    out += line.back() + "\n";
  }
  for (const ReferenceRow& row : rows) {
    if (const std::string why = reason(row); !why.empty()) {
      out += wrap(printable(row.scenario) + ": " + why, kReportColumns, 2) + "\n";
    }
  }
  return out;
}

}  // namespace lockstep::reports
