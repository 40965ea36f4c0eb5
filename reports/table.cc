#include "reports/table.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/tables.h"
#include "base/text.h"
#include "reports/findings/reports.h"
#include "reports/html/markup.h"

namespace lockstep::reports {

std::string csv_field(std::string_view text) {
  constexpr std::string_view kFormula = "=+-@";
  std::string out = printable(text);
  if (!out.empty() && kFormula.find(out.front()) != std::string_view::npos) out = "'" + out;
  if (out.find_first_of(",\"'") == std::string::npos) return out;
  std::string quoted = "\"";
  for (const char c : out) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

namespace {

constexpr std::string_view kBetween = "  ";
constexpr std::string_view kNoBreak = "\u00a0";
constexpr std::size_t kShortest = 4;  // columns that a shortened cell keeps
constexpr std::size_t kHanging = 2;   // blanks before what goes on from the line above

void end_text_line(std::string& out) {
  out.erase(out.find_last_not_of(' ') + 1);
  out += '\n';
}

std::string attribute_if(std::string_view name, std::string_view value) {
  return value.empty() ? "" : fmt::format(" {}=\"{}\"", name, html::text(value));
}

// The columns that a cell takes where it is broken at every blank.
std::size_t narrowest(std::string_view cell) {
  std::size_t widest = 0;
  for (const std::string_view word : split(cell, ' '))
    widest = std::max(widest, kHanging + columns_of(word));
  return widest;
}

// The width of columns that stand side by side.
std::size_t together(const std::vector<std::size_t>& widths) {
  return std::accumulate(widths.begin(), widths.end(), kBetween.size() * (widths.size() - 1));
}

}  // namespace

std::vector<Column> columns(const std::vector<std::string>& words,
                            const std::vector<std::string>& numbers,
                            const std::vector<std::string>& last) {
  std::vector<Column> out;
  for (const std::string& name : words) out.push_back({name});
  for (const std::string& name : numbers) out.push_back({name, Column::number});
  for (const std::string& name : last) out.push_back({name});
  return out;
}

void Table::add(std::vector<std::string> cells, RowLook look) {
  LOCKSTEP_CHECK(cells.size() == columns_.size(), "a row has a cell for each column");
  rows_.push_back({std::move(cells), std::move(look)});
}

std::vector<std::size_t> Table::widths() const {
  std::vector<std::size_t> out;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    out.push_back(columns_of(columns_[c].name));
    for (const Row& row : rows_) out[c] = std::max(out[c], columns_of(printable(row.cells[c])));
  }
  return out;
}

std::size_t Table::width() const { return together(widths()); }

std::string Table::text(std::size_t width, std::size_t indent) const {
  std::vector<std::size_t> widths = this->widths();
  std::size_t all = indent + together(widths);
  for (std::size_t c = 0; c < columns_.size() && all > width; ++c) {
    if (!columns_[c].wrapped) continue;
    std::size_t least = columns_of(columns_[c].name);
    for (const Row& row : rows_) least = std::max(least, narrowest(printable(row.cells[c])));
    const std::size_t loss = std::min(all - width, widths[c] - std::min(widths[c], least));
    widths[c] -= loss;
    all -= loss;
  }
  // The widest column of words loses a letter as long as the lines are too wide. Numbers are never
  // cut: a figure without its end is another one.
  for (; all > width; --all) {
    std::size_t* widest = nullptr;
    for (std::size_t c = 0; c < columns_.size(); ++c)
      if (columns_[c].kind != Column::number && (widest == nullptr || widths[c] > *widest))
        widest = &widths[c];
    if (widest == nullptr || *widest <= kShortest) break;
    --*widest;
  }
  std::string out;
  const auto line = [&](const auto& cell) {
    out.append(indent, ' ');
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      if (c > 0) out += kBetween;
      const bool right = columns_[c].kind == Column::number;
      const bool shortened = !right && columns_of(cell(c)) > widths[c];
      const std::string fitted = shortened ? shorten_middle(cell(c), widths[c]) : cell(c);
      out += right ? pad_left(fitted, widths[c]) : pad_right(fitted, widths[c]);
    }
    end_text_line(out);
  };
  // A row takes as many lines as its longest cell, and nearly always one.
  const auto lines = [&](const Row& row) {
    std::vector<std::vector<std::string>> cells(columns_.size());
    std::size_t height = 1;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      const std::string cell = printable(row.cells[c]);
      const bool broken = columns_[c].wrapped && columns_of(cell) > widths[c];
      std::string text = broken ? wrap(cell, widths[c], kHanging) : cell;
      for (std::size_t at = 0; columns_[c].wrapped && (at = text.find(kNoBreak, at)) != text.npos;)
        text.replace(at, kNoBreak.size(), " ");
      for (const std::string_view part : split(text, '\n')) cells[c].emplace_back(part);
      height = std::max(height, cells[c].size());
    }
    for (std::size_t i = 0; i < height; ++i)
      line([&](std::size_t c) { return i < cells[c].size() ? cells[c][i] : std::string(); });
  };
  if (std::any_of(columns_.begin(), columns_.end(),
                  [](const Column& c) { return !c.name.empty(); }))
    line([&](std::size_t c) { return columns_[c].name; });
  for (const Row& row : rows_) lines(row);
  return out;
}

std::string Table::markdown() const {
  std::string head, dashes, out;
  for (const Column& column : columns_) {
    head += fmt::format(" {} |", column.name);
    dashes += column.kind == Column::number ? "---:|" : "---|";
  }
  out = fmt::format("|{}\n|{}\n", head, dashes);
  for (const Row& row : rows_) {
    out += '|';
    for (std::size_t c = 0; c < columns_.size(); ++c)
      out += fmt::format(" {} |", columns_[c].kind == Column::code ? markdown_code(row.cells[c])
                                                                   : markdown_text(row.cells[c]));
    out += '\n';
  }
  return out;
}

std::string Table::csv() const {
  std::string out;
  const auto line = [&](const auto& cell) {
    for (std::size_t c = 0; c < columns_.size(); ++c) out.append(c == 0 ? "" : ",").append(cell(c));
    out += "\r\n";
  };
  line([&](std::size_t c) { return csv_field(columns_[c].name); });
  for (const Row& row : rows_)
    line([&](std::size_t c) {
      // A number is not a formula, whatever its sign.
      return columns_[c].kind == Column::number ? row.cells[c] : csv_field(row.cells[c]);
    });
  return out;
}

std::string Table::html(std::string_view label, std::string_view classes) const {
  // A phone has room for this many columns; a wider table becomes a list.
  constexpr std::size_t kColumnsOnPhone = 4;
  const bool as_list = columns_.size() > kColumnsOnPhone;
  // The script names the cells of its tables (html/explore.js), which are long; without it the head
  // stays in view.
  const bool named = as_list && !contains_text(classes, "explore");
  std::string head, body;
  const auto look = [](const Column& column) -> std::string_view {
    return column.kind == Column::number ? "n" : column.kind == Column::mark ? "place" : "";
  };
  for (const Column& column : columns_)
    head += fmt::format("<th{}>{}</th>",
                        attribute_if("class", trimmed(fmt::format("{} {}", look(column),
                                                                  column.pick ? "pick" : ""))),
                        html::text(column.name));
  for (const Row& row : rows_) {
    body += fmt::format("<tr{}{}>", attribute_if("id", row.look.id),
                        attribute_if("class", row.look.marks));
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      const std::string& cell = row.cells[c];
      const std::optional<double> value =
          c < row.look.values.size() ? row.look.values[c] : std::nullopt;
      body += fmt::format(
          "<td{}{}{}>{}</td>", attribute_if("class", look(columns_[c])),
          attribute_if("data-name", named && !cell.empty() ? columns_[c].name : ""),
          attribute_if("data-value", value ? fmt::format("{}", *value) : ""),
          columns_[c].kind == Column::code && !cell.empty() ? html::code(cell) : html::text(cell));
    }
    body += "</tr>\n";
  }
  return html::scroller(
      label,
      fmt::format(
          "<table{}><thead><tr>{}</tr></thead><tbody>{}</tbody></table>",
          attribute_if("class", trimmed(fmt::format("{} {}", classes, as_list ? "list" : ""))),
          head, body));
}

}  // namespace lockstep::reports
