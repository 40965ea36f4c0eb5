#include "reports/studies/study_table.h"

#include <algorithm>
#include <cstdio>
#include <numeric>

#include <nlohmann/json.hpp>

#include "base/tables.h"
#include "base/text.h"

namespace lockstep::reports {

namespace {

using StudyCells = std::vector<std::string>;

constexpr const char* kNothing = "-";

std::string remedy_name(const Combination& c) {
  return c.remedy.empty() ? "(no image missing)" : printable(c.remedy);
}

std::string scientific(std::optional<double> value) {
  if (!value) return kNothing;
  char text[32];
  std::snprintf(text, sizeof text, "%.1e", *value);
  return text;
}

std::string percent(std::optional<double> value) {
  if (!value) return kNothing;
  const double p = 100 * *value;
  // Two digits in either case; 9.95 would round to "10.0".
  return fixed(p, p < 9.95 ? 1 : 0) + " %";
}

// "41 ±3": half of the range.
std::string with_range(const std::optional<Spread>& s, double scale, int decimals) {
  if (!s) return kNothing;
  std::string out = fixed(s->median * scale, decimals);
  if (s->low < s->high) out += " ±" + fixed((s->high - s->low) / 2 * scale, decimals);
  return out;
}

// "812 (+14)": and how much more than without missing images.
std::string with_extra(const std::optional<Spread>& s, const std::optional<Spread>& base,
                       double scale, int decimals) {
  if (!s) return kNothing;
  std::string out = fixed(s->median * scale, decimals);
  if (!base) return out;
  const std::string extra = fixed((s->median - base->median) * scale, decimals);
  return out + (extra.starts_with("-") ? " (" : " (+") + extra + ")";
}

// The run of the same strategy in which no image is missing; null if there is none.
const Combination* base_of(const Combination& c, const std::vector<Combination>& all) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const Combination& other) {
    return other.remedy.empty() && other.strategy == c.strategy;
  });
  return found == all.end() ? nullptr : &*found;
}

std::string how_it_ends(const Combination& c) {
  if (c.impossible) return "no such job: " + *c.impossible;
  return c.end;
}

StudyCells rightness(const Combination& c) {
  const Accuracy none;
  const Accuracy& a = c.accuracy ? *c.accuracy : none;
  return {scientific(a.gradient_error) + (a.first_difference ? " !" : ""), percent(a.image_drift),
          percent(a.feature_drift), percent(a.batch_norm_drift), percent(a.text_drift)};
}

StudyCells costs(const Combination& c, const std::vector<Combination>& all) {
  const Combination* base = base_of(c, all);
  const bool is_base = c.remedy.empty() || base == nullptr;
  const std::optional<Spread> nothing;
  return {with_range(c.step_ms, 1, 0),
          with_extra(c.bytes_per_step, is_base ? nothing : base->bytes_per_step, 1e-3, 0),
          with_extra(c.peak_bytes, is_base ? nothing : base->peak_bytes, 1e-6, 0),
          with_range(c.loss, 1, 2), with_range(c.recall_at_1, 100, 0)};
}

const StudyCells kRightness = {"gradient", "image path", "embeddings", "BatchNorm", "text path"};
const StudyCells kCosts = {"ms a step", "KB a step", "peak MB", "loss", "recall@1 %"};

// `cells_of`: cells of a combination that completed; the others show how they ended.
template <class CellsOf>
std::string section(const std::vector<Combination>& all, const StudyCells& head, CellsOf cells_of) {
  constexpr std::size_t kRemedyColumns = 22;
  constexpr std::size_t kColumns = 78;
  std::vector<std::size_t> widths;
  for (const std::string& name : head) widths.push_back(columns_of(name));
  for (const Combination& c : all) {
    if (!c.completed) continue;
    const StudyCells cells = cells_of(c);
    for (std::size_t i = 0; i < cells.size(); ++i)
      widths[i] = std::max(widths[i], columns_of(cells[i]));
  }
  const auto line = [&](const std::string& name, const StudyCells& cells) {
    std::string out = "  " + pad_right(shorten_end(name, kRemedyColumns), kRemedyColumns);
    for (std::size_t i = 0; i < cells.size(); ++i)
      out += " " + std::string(widths[i] - columns_of(cells[i]), ' ') + cells[i];
    return out + "\n";
  };
  std::string out;
  std::string strategy;
  for (const Combination& c : all) {
    if (c.strategy != strategy || out.empty()) {
      strategy = c.strategy;
      out += line(printable(strategy), head).substr(2);
    }
    out += c.completed
               ? line(remedy_name(c), cells_of(c))
               : "  " + pad_right(shorten_end(remedy_name(c), kRemedyColumns), kRemedyColumns) +
                     " " + shorten_end(how_it_ends(c), kColumns - kRemedyColumns - 3) + "\n";
  }
  return out;
}

nlohmann::ordered_json json_of(const std::optional<Spread>& s) {
  if (!s) return nullptr;
  return {{"median", s->median}, {"low", s->low}, {"high", s->high}};
}

nlohmann::ordered_json json_of(const std::optional<double>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

}  // namespace

// One row per combination; several tables, since 80 columns do not hold all figures.
std::string study_text(const std::vector<Combination>& combinations) {
  const std::size_t repeats = std::accumulate(
      combinations.begin(), combinations.end(), std::size_t{0},
      [](std::size_t most, const Combination& c) { return std::max(most, c.repeats); });
  std::string out =
      "Right? gradient: error against one process that does the same (! it differs);\n"
      "others: apart, at the end, from one process that needs no remedy\n\n";
  out += section(combinations, kRightness, rightness);
  out += "\nCost and result: median of " + plural(repeats, "run") +
         " (±: half of their range; +: more than\nwhere no image is missing)\n\n";
  out +=
      section(combinations, kCosts, [&](const Combination& c) { return costs(c, combinations); });
  return out;
}

namespace {

// A "|" would end the cell of the table.
std::string cell_text(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out;
}

}  // namespace

std::string study_markdown(const std::vector<Combination>& combinations) {
  std::string out = "| strategy | remedy | ends |";
  std::string rule = "|---|---|---|";
  for (const StudyCells* head : {&kRightness, &kCosts}) {
    for (const std::string& name : *head) {
      out += " " + name + " |";
      rule += "--:|";
    }
  }
  out += "\n" + rule + "\n";
  for (const Combination& c : combinations) {
    out += "| " + cell_text(printable(c.strategy)) + " | " + cell_text(remedy_name(c)) + " | " +
           cell_text(how_it_ends(c)) + " |";
    StudyCells cells = rightness(c);
    const StudyCells more = costs(c, combinations);
    cells.insert(cells.end(), more.begin(), more.end());
    for (const std::string& cell : cells) out += " " + cell + " |";
    out += "\n";
  }
  return out;
}

std::string study_json(const std::vector<Combination>& combinations) {
  using Json = nlohmann::ordered_json;
  Json out = Json::array();
  for (const Combination& c : combinations) {
    Json row = {{"strategy", c.strategy},
                {"remedy", c.remedy.empty() ? Json() : Json(c.remedy)},
                {"impossible", c.impossible ? Json(*c.impossible) : Json()},
                {"completed", c.completed},
                {"end", c.end},
                {"repeats", c.repeats}};
    const Accuracy a = c.accuracy.value_or(Accuracy());
    row["gradient_error"] = json_of(a.gradient_error);
    row["parted"] = a.first_difference ? Json(*a.first_difference) : Json();
    row["image_drift"] = json_of(a.image_drift);
    row["embedding_drift"] = json_of(a.feature_drift);
    row["batch_norm_drift"] = json_of(a.batch_norm_drift);
    row["text_drift"] = json_of(a.text_drift);
    row["step_ms"] = json_of(c.step_ms);
    row["bytes_per_step"] = json_of(c.bytes_per_step);
    row["peak_bytes"] = json_of(c.peak_bytes);
    row["loss"] = json_of(c.loss);
    row["recall_at_1"] = json_of(c.recall_at_1);
    out.push_back(std::move(row));
  }
  return out.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep::reports
