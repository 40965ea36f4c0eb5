// The reports for terminals and programs; page.cc has the page.

#include "reports/sweeps/report.h"

#include <algorithm>
#include <map>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/quantities.h"
#include "base/tables.h"
#include "base/text.h"
#include "reports/table.h"
#include "sim/sweep/variation.h"

namespace lockstep::reports {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::size_t kShown = 40;  // the best rows; the rest of the front in addition
constexpr std::size_t kShownOfFront = 100;
constexpr std::size_t kShownReasons = 12;
constexpr std::size_t kShownLines = 6;  // of a point that stands for a reason

struct ShownRow {
  const sim::Row* row;
  const char* mark;
};

// "ranks=4 strategy=ddp".
std::string pairs(const std::vector<std::string>& names, const std::vector<std::string>& values) {
  std::string out;
  for (std::size_t i = 0; i < names.size(); ++i)
    out += fmt::format("{}{}={}", out.empty() ? "" : " ", names[i], values[i]);
  return out;
}

// What identifies each point, its figures, and a mark. `joined`: the point is one column, which may
// take several lines, and not one for each of `names`.
Table plans_table(const Summary& summary, const std::vector<ShownRow>& rows,
                  const std::vector<std::string>& names, bool joined) {
  std::vector<std::string> figures = {"step", "samples/s", "memory"};
  if (summary.transformers) figures.emplace_back("MFU");
  std::vector<Column> all =
      columns(joined ? std::vector<std::string>{"point"} : names, figures, {""});
  all.front().wrapped = joined;
  Table out(std::move(all));
  for (const auto& [row, mark] : rows) {
    std::vector<std::string> cells = value_cells(summary, *row);
    if (names.empty())
      cells = {point_text(summary, *row)};
    else if (joined)
      cells = {pairs(names, cells)};
    cells.insert(cells.end(),
                 {duration_text(row->step_seconds), number_text(row->samples_per_second),
                  bytes_text(row->memory_bytes)});
    if (summary.transformers)
      cells.push_back(row->transformer ? percent(row->transformer->mfu) : "");
    cells.emplace_back(mark);
    out.add(std::move(cells));
  }
  return out;
}

// The names of the varied keys in full, as options take them.
std::vector<std::string> full_heads(const Summary& summary) {
  std::vector<std::string> out;
  for (const std::string& key : summary.keys) out.push_back(printable(key));
  if (summary.several_machines) out.emplace_back("machine");
  return out;
}

// "c"; after "z" comes "a1".
std::string letter(std::size_t i) {
  constexpr std::size_t kLetters = 26;
  return fmt::format("{}{}", static_cast<char>('a' + i % kLetters),
                     i < kLetters ? "" : std::to_string(i / kLetters));
}

// The table in `width` columns. Where the names of the keys make it too wide, letters stand for
// them, which the lines above it explain; where it still is, the values of a point go on in further
// lines. Names and values cut down to five characters say nothing.
std::string fitted(const Summary& summary, const std::vector<ShownRow>& rows, std::size_t width) {
  constexpr std::size_t kIndent = 2;
  const auto fits = [&](const Table& table) { return table.width() + kIndent <= width; };
  const std::vector<std::string> names = value_heads(summary);
  // A sweep over machines alone varies no key; its points still need a name.
  const Table named = plans_table(summary, rows, names, names.empty());
  if (names.empty() || fits(named)) return named.text(width, kIndent);
  std::vector<std::string> letters;
  std::string legend;
  for (const std::string& key : full_heads(summary)) {
    letters.push_back(letter(letters.size()));
    legend += fmt::format("{}{}={}", legend.empty() ? "" : ", ", letters.back(), key);
  }
  Table out = plans_table(summary, rows, letters, false);
  if (!fits(out)) out = plans_table(summary, rows, letters, true);
  return fmt::format("  {}\n\n{}", wrap(legend, width - kIndent, kIndent),
                     out.text(width, kIndent));
}

std::string best_text(const Summary& summary, const sim::Row& row, std::size_t width) {
  const std::vector<std::string> heads = full_heads(summary), values = value_cells(summary, row);
  std::string out = "the best:";
  for (std::size_t i = 0; i < heads.size(); ++i)
    out += " " + shorten_middle(fmt::format("{}={}", heads[i], values[i]), width - 4);
  return wrap(out, width, 2) + "\n";
}

std::string table_text(const Summary& summary, const sim::Ranking& ranking, std::size_t width) {
  if (ranking.fitting.empty() && ranking.too_large.empty()) return {};
  std::vector<ShownRow> rows;
  std::size_t shown = 0, of_front = 0;
  for (std::size_t i = 0; i < ranking.fitting.size(); ++i) {
    const bool front = ranking.on_front[ranking.fitting[i]];
    // After the best rows only those of the front are shown, and not too many of them.
    if (i >= kShown && !(front && of_front < kShownOfFront)) continue;
    of_front += front ? 1U : 0U;
    ++shown;
    rows.push_back({&summary.rows[ranking.fitting[i]], front ? "*" : ""});
  }
  // Where few plans fit, those that nearly do are what one looks at next.
  for (std::size_t i = 0; i < ranking.too_large.size() && shown < kShown; ++i, ++shown)
    rows.push_back({&summary.rows[ranking.too_large[i]], "!"});
  std::string out = fitted(summary, rows, width);
  // Where a value is too wide for any line of the table, the best row at least says all of it.
  if (!ranking.fitting.empty() && out.find("..") != std::string::npos)
    out = fmt::format("{}\n{}", best_text(summary, summary.rows[ranking.fitting.front()], width),
                      out);
  const std::size_t all = ranking.fitting.size() + ranking.too_large.size();
  if (all > shown)
    out += fmt::format("  and {} more: --output csv=FILE has them all\n", grouped(all - shown));
  out += "\n";
  out += fmt::format("{}\n", wrap(memory_text(summary), width, 2));
  if (!ranking.fitting.empty())
    out += fmt::format(
        "{}\n",
        wrap(fmt::format(
                 "* Pareto front: none that fits is as good in {}, memory of a rank and number "
                 "of ranks, and better in one of them",
                 objective_text(summary.goal.objective)),
             width, 2));
  if (!ranking.too_large.empty())
    out += fmt::format(
        "{}\n",
        wrap(fmt::format("! does not fit: {}{}", plural(ranking.too_large.size(), "plan"),
                         summary.goal.memory_limit
                             ? fmt::format(", with {} per rank, or less where the machine has less",
                                           bytes_text(*summary.goal.memory_limit))
                             : ", with what the machine has"),
             width, 2));
  return out;
}

std::string reasons_text(const Summary& summary, const std::string& title,
                         const std::vector<std::size_t>& rows, std::size_t width) {
  if (rows.empty()) return {};
  std::string out = fmt::format("\n{} {}:\n", grouped(rows.size()), title);
  const std::vector<Reason> reasons = by_reason(summary, rows);
  for (std::size_t i = 0; i < std::min(reasons.size(), kShownReasons); ++i) {
    const Reason& reason = reasons[i];
    out += fmt::format(
        "  {}\n", wrap(fmt::format("{} × {}", grouped(reason.rows.size()), printable(reason.text)),
                       width - 2, 6));
    // One reason often holds for thousands of points ("tensor 3 does not divide 32 heads"): one of
    // them shows which.
    // Values may be of any length, and a point may have any number of them.
    const std::string first = shorten_end(point_text(summary, summary.rows[reason.rows.front()]),
                                          kShownLines * (width - 8));
    std::string point = reason.rows.size() > 1 ? "first:" : "";
    for (const std::string_view pair : split(first, ' '))
      point += " " + shorten_middle(pair, width - 8);
    out += fmt::format("      {}\n", wrap(point, width, 8, 6));
  }
  if (reasons.size() > kShownReasons)
    out += fmt::format("  and {} other reasons\n", grouped(reasons.size() - kShownReasons));
  return out;
}

std::string verdict_of(const sim::Row& row, const sim::Goal& goal) {
  if (row.outcome != sim::Outcome::trains) return std::string(sim::to_string(row.outcome));
  return sim::fits(row, goal) ? "ok" : "does-not-fit";
}

// Rows in the order of the text: what fits, then the rest by how it failed.
std::vector<std::size_t> sorted(const sim::Ranking& ranking) {
  std::vector<std::size_t> out = ranking.fitting;
  for (const auto* more :
       {&ranking.too_large, &ranking.hanging, &ranking.wrong, &ranking.refused, &ranking.failed})
    out.insert(out.end(), more->begin(), more->end());
  return out;
}

}  // namespace

std::string sweep_text(const Summary& summary, std::size_t width) {
  const sim::Ranking ranking = sim::rank(summary.rows, summary.goal);
  std::string out = fmt::format(
      "{}\n",
      wrap(fmt::format("\"{}\": {}", printable(summary.scenario), tried_text(summary)), width));
  out += fmt::format("best by {}", objective_text(summary.goal.objective));
  if (summary.goal.memory_limit)
    out += fmt::format(" within {} per rank", bytes_text(*summary.goal.memory_limit));
  out += "\n";
  if (const std::string table = table_text(summary, ranking, width); !table.empty())
    out += fmt::format("\n{}", table);
  out +=
      reasons_text(summary, ranking.hanging.size() == 1 ? "hangs" : "hang", ranking.hanging, width);
  out += reasons_text(summary,
                      ranking.wrong.size() == 1 ? "reaches its end, with wrong results"
                                                : "reach their end, with wrong results",
                      ranking.wrong, width);
  out += reasons_text(summary, "refused", ranking.refused, width);
  out += reasons_text(summary, "failed, to be tried again next time", ranking.failed, width);
  return out;
}

std::string sweep_csv(const Summary& summary) {
  const sim::Ranking ranking = sim::rank(summary.rows, summary.goal);
  std::vector<std::string> names = {"machine"};
  names.insert(names.end(), summary.keys.begin(), summary.keys.end());
  names.insert(names.end(), {"verdict", "pareto"});
  std::vector<std::string> figures = {"world_size", "step_time_s", "samples_per_s",
                                      "samples_per_s_per_rank", "memory_bytes"};
  if (summary.transformers)
    // A formula knows no messages, and a simulated scenario no tokens.
    figures.insert(figures.end(), {"tokens_per_s_per_rank", "mfu", "bubble"});
  else
    figures.emplace_back("bytes_sent_per_step");
  Table table(columns(names, figures, {"reason"}));
  for (const std::size_t i : sorted(ranking)) {
    const sim::Row& row = summary.rows[i];
    std::vector<std::string> fields = {row.machine};
    for (const std::string& key : summary.keys)
      fields.push_back(row.values.contains(key) ? sim::value_text(row.values.at(key)) : "");
    fields.push_back(verdict_of(row, summary.goal));
    fields.emplace_back(ranking.on_front[i] ? "yes" : "no");
    fields.push_back(row.ranks > 0 ? std::to_string(row.ranks) : "");
    // Rows that do not train have empty figures, not zeros.
    const bool trains = row.outcome == sim::Outcome::trains;
    std::vector<double> values = {row.step_seconds, row.samples_per_second,
                                  trains ? row.samples_per_second_per_rank() : 0.0,
                                  row.memory_bytes};
    const sim::TransformerFigures own = row.transformer.value_or(sim::TransformerFigures{});
    if (summary.transformers)
      values.insert(values.end(), {own.tokens_per_second_per_rank, own.mfu, own.bubble});
    else
      values.push_back(row.sent_bytes);
    for (const double value : values) fields.push_back(trains ? fmt::format("{}", value) : "");
    fields.push_back(row.reason);
    table.add(std::move(fields));
  }
  return table.csv();
}

std::string sweep_json(const Summary& summary) {
  const sim::Ranking ranking = sim::rank(summary.rows, summary.goal);
  OrderedJson out;
  out["sweep"] = 1;
  out[summary.transformers ? "plan" : "scenario"] = to_utf8(summary.scenario);
  out["varied"] = summary.keys;
  out["grid_points"] = summary.grid_points;
  out["tried"] = summary.rows.size();
  // Whoever picks the first row must know whether a better one may be missing.
  out["exhaustive"] = summary.exhaustive && !summary.interrupted;
  if (!summary.exhaustive) out["seed"] = summary.seed;
  out["interrupted"] = summary.interrupted;
  out["objective"] = sim::to_string(summary.goal.objective);
  if (summary.goal.memory_limit) out["memory_limit_bytes"] = *summary.goal.memory_limit;
  out["counts"] = {{"ok", ranking.fitting.size()},      {"does-not-fit", ranking.too_large.size()},
                   {"hangs", ranking.hanging.size()},   {"wrong", ranking.wrong.size()},
                   {"refused", ranking.refused.size()}, {"failed", ranking.failed.size()}};
  out["rows"] = OrderedJson::array();
  for (const std::size_t i : sorted(ranking)) {
    const sim::Row& row = summary.rows[i];
    // The same keys as in results.jsonl.
    OrderedJson one = OrderedJson::parse(sim::row_line(row, sim::fits(row, summary.goal)));
    one["pareto"] = static_cast<bool>(ranking.on_front[i]);
    out["rows"].push_back(std::move(one));
  }
  return fmt::format("{}\n", out.dump(2, ' ', false, OrderedJson::error_handler_t::replace));
}

namespace {

// The last `count` parts of a key.
std::string tail(const std::string& key, std::size_t count) {
  const std::vector<std::string> parts = sim::key_parts(key);
  std::string out;
  for (std::size_t i = parts.size() - std::min(count, parts.size()); i < parts.size(); ++i)
    out += (out.empty() ? "" : ".") + parts[i];
  return out;
}

// The shortest tail of a key that no other key has: "train.batch_size" becomes "batch_size". A
// number alone ("0") says nothing.
std::string short_key(const std::string& key, const std::vector<std::string>& keys) {
  const std::size_t parts = sim::key_parts(key).size();
  for (std::size_t count = 1; count < parts; ++count) {
    const std::string candidate = tail(key, count);
    const bool is_number = candidate.find_first_not_of("0123456789") == std::string::npos;
    const auto same = [&](const std::string& other) { return tail(other, count) == candidate; };
    // links.0.beta and links.1.beta share "beta", and become "0.beta" and "1.beta".
    if (!is_number && std::count_if(keys.begin(), keys.end(), same) == 1) return candidate;
  }
  return key;
}

std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

std::vector<std::string> value_heads(const Summary& summary) {
  std::vector<std::string> out;
  for (const std::string& key : summary.keys)
    out.push_back(printable(short_key(key, summary.keys)));
  if (summary.several_machines) out.emplace_back("machine");
  return out;
}

std::vector<std::string> value_cells(const Summary& summary, const sim::Row& row) {
  std::vector<std::string> out;
  for (const std::string& key : summary.keys)
    out.push_back(row.values.contains(key) ? printable(sim::value_text(row.values.at(key))) : "");
  if (summary.several_machines) out.push_back(printable(file_name(row.machine)));
  return out;
}

std::string point_text(const Summary& summary, const sim::Row& row) {
  const std::string out = pairs(value_heads(summary), value_cells(summary, row));
  return !out.empty()           ? out
         : summary.transformers ? "the plan as it stands"
                                : "the job as it stands";
}

std::string tried_text(const Summary& summary) {
  std::string out =
      fmt::format("{} of {}{}", grouped(summary.rows.size()), grouped(summary.grid_points),
                  summary.grid_points == 1 ? " point" : " points");
  if (!summary.exhaustive)
    out += fmt::format(
        "; a search with seed {}, which is not exhaustive: a better plan may be among "
        "the others",
        summary.seed);
  if (summary.interrupted) out += "; interrupted: the same command continues";
  return out;
}

std::string objective_text(sim::Objective objective) {
  switch (objective) {
    case sim::Objective::step_time:
      return "step time";
    case sim::Objective::samples_per_second:
      return "samples/s";
    case sim::Objective::samples_per_second_per_rank:
      return "samples/s per rank";
  }
  return {};
}

std::string memory_text(const Summary& summary) {
  // One row without counted activations makes the column a lower bound.
  const bool counted =
      std::all_of(summary.rows.begin(), summary.rows.end(), [](const sim::Row& row) {
        return row.memory_counted || row.outcome != sim::Outcome::trains;
      });
  if (summary.transformers)
    return "memory: all that a GPU of the fullest pipeline stage must hold, by formula";
  if (counted) return "memory: what the device of the fullest rank must have at its peak";
  return "memory of the fullest rank: parameters, gradients and the optimizer's state at least; "
         "activations and buffers were not counted everywhere";
}

std::vector<Reason> by_reason(const Summary& summary, const std::vector<std::size_t>& rows) {
  std::map<std::string, std::size_t> indices;
  std::vector<Reason> out;
  for (const std::size_t row : rows) {
    // In the order of the rows, which are ranked: of equally frequent reasons the first stays
    // first.
    const auto [found, is_new] = indices.emplace(summary.rows[row].reason, out.size());
    if (is_new) out.push_back({summary.rows[row].reason, {}});
    out[found->second].rows.push_back(row);
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const Reason& a, const Reason& b) { return a.rows.size() > b.rows.size(); });
  return out;
}

}  // namespace lockstep::reports
