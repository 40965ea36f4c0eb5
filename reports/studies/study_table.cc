#include "reports/studies/study_table.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/quantities.h"
#include "base/tables.h"
#include "base/text.h"
#include "reports/table.h"

namespace lockstep::reports {

namespace {

using StudyCells = std::vector<std::string>;

constexpr const char* kNothing = "-";

std::string remedy_name(const Combination& c) {
  return c.remedy.empty() ? "(no image missing)" : printable(c.remedy);
}

std::string or_nothing(std::optional<double> value, std::string (*text)(double)) {
  return value ? text(*value) : kNothing;
}

// "41 ±3": half of the range.
std::string with_range(const std::optional<Spread>& s, double scale) {
  if (!s) return kNothing;
  const std::string out = number_text(s->median * scale);
  return s->low < s->high ? fmt::format("{} ±{}", out, number_text((s->high - s->low) / 2 * scale))
                          : out;
}

// "812 (+14)": and how much more than without missing images.
std::string with_extra(const std::optional<Spread>& s, const std::optional<Spread>& base,
                       double scale) {
  if (!s) return kNothing;
  const std::string out = number_text(s->median * scale);
  if (!base) return out;
  const double extra = (s->median - base->median) * scale;
  return fmt::format("{} ({}{})", out, extra < 0 ? "" : "+", number_text(extra));
}

// The run of the same strategy in which no image is missing; null if there is none.
const Combination* base_of(const Combination& c, const std::vector<Combination>& all) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const Combination& other) {
    return other.remedy.empty() && other.strategy == c.strategy;
  });
  return found == all.end() ? nullptr : &*found;
}

std::string how_it_ends(const Combination& c) {
  if (c.impossible) return fmt::format("no such job: {}", *c.impossible);
  return c.end;
}

StudyCells rightness(const Combination& c) {
  const Accuracy a = c.accuracy.value_or(Accuracy());
  return {or_nothing(a.gradient_error, scientific) + (a.first_difference ? " !" : ""),
          or_nothing(a.image_drift, percent), or_nothing(a.feature_drift, percent),
          or_nothing(a.batch_norm_drift, percent), or_nothing(a.text_drift, percent)};
}

StudyCells costs(const Combination& c, const std::vector<Combination>& all) {
  constexpr double kKibi = 1.0 / 1024, kMebi = kKibi / 1024;
  const Combination* base = base_of(c, all);
  const bool is_base = c.remedy.empty() || base == nullptr;
  const std::optional<Spread> nothing;
  return {with_range(c.step_ms, 1),
          with_extra(c.bytes_per_step, is_base ? nothing : base->bytes_per_step, kKibi),
          with_extra(c.peak_bytes, is_base ? nothing : base->peak_bytes, kMebi),
          with_range(c.loss, 1), with_range(c.recall_at_1, 100)};
}

const StudyCells kRightness = {"gradient", "image path", "embeddings", "BatchNorm", "text path"};
const StudyCells kCosts = {"ms per step", "KiB per step", "peak MiB", "loss", "recall@1 %"};

// A line for each strategy, and below it one for each of its combinations that completed.
// `cells_of`: the figures of a combination.
template <class CellsOf>
std::string section(const std::vector<Combination>& all, const StudyCells& names, CellsOf cells_of,
                    std::size_t width) {
  Table table(columns({"strategy"}, names));
  const Combination* above = nullptr;
  for (const Combination& c : all) {
    if (!c.completed) continue;
    StudyCells cells = {printable(c.strategy)};
    cells.resize(names.size() + 1);
    if (above == nullptr || above->strategy != c.strategy) table.add(std::move(cells));
    above = &c;
    cells = cells_of(c);
    cells.insert(cells.begin(), fmt::format("  {}", remedy_name(c)));
    table.add(std::move(cells));
  }
  return table.text(width);
}

nlohmann::ordered_json json_of(const std::optional<Spread>& s) {
  if (!s) return nullptr;
  return {{"median", s->median}, {"low", s->low}, {"high", s->high}};
}

nlohmann::ordered_json json_of(const std::optional<double>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

}  // namespace

// Two tables, since 80 columns do not hold all figures.
std::string study_text(const std::vector<Combination>& combinations, std::size_t width) {
  std::size_t repeats = 0;
  std::string ends;
  for (const Combination& c : combinations) {
    repeats = std::max(repeats, c.repeats);
    if (!c.completed)
      ends += fmt::format("  {}\n", wrap(fmt::format("{}, {}: {}", printable(c.strategy),
                                                     remedy_name(c), printable(how_it_ends(c))),
                                         width - 2, 4));
  }
  return fmt::format(
      "Right? gradient: error against one process that does the same (! it differs);\n"
      "others: apart, at the end, from one process that needs no remedy\n\n{}\n"
      "Cost and result: median of {} (±: half of their range; +: more than\n"
      "where no image is missing)\n\n{}{}{}",
      section(combinations, kRightness, rightness, width), plural(repeats, "run"),
      section(
          combinations, kCosts, [&](const Combination& c) { return costs(c, combinations); },
          width),
      ends.empty() ? "" : "\nDo not complete:\n", ends);
}

std::string study_markdown(const std::vector<Combination>& combinations) {
  StudyCells figures = kRightness;
  figures.insert(figures.end(), kCosts.begin(), kCosts.end());
  Table table(columns({"strategy", "remedy", "ends"}, figures));
  for (const Combination& c : combinations) {
    StudyCells cells = {c.strategy, remedy_name(c), how_it_ends(c)};
    for (const StudyCells& more : {rightness(c), costs(c, combinations)})
      cells.insert(cells.end(), more.begin(), more.end());
    table.add(std::move(cells));
  }
  return table.markdown();
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
    row["diverged"] = a.first_difference ? Json(*a.first_difference) : Json();
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
  return fmt::format("{}\n", out.dump(1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace lockstep::reports
