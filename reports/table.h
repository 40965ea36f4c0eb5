// One table, written as text, Markdown, CSV or HTML.
//
//   Table table({{"rank", Column::number}, {"last call", Column::code}});
//   table.add({"37", "all_reduce(8388608)"});
//   out += table.text();
//
// Cells are text as in the traces: each form escapes it as it needs.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::reports {

// One field of comma-separated values (RFC 4180): printable, quoted where
// necessary. Text that a spreadsheet would take for a formula (= + - @ at the start) gets a leading
// apostrophe, so that a name in a trace cannot run anything:
// https://owasp.org/www-community/attacks/CSV_Injection
std::string csv_field(std::string_view text);

struct Column {
  enum Kind : unsigned char {
    words,
    number,  // to the right
    code,    // in a fixed-width font where the form has one
    mark,    // a word of its own: in HTML never broken
  };

  std::string name;
  Kind kind = words;
  bool pick = false;  // in HTML the script offers its values to choose from (html/explore.js)
  // As text it goes on in further lines where another column would be shortened: for sentences, and
  // for names that mean nothing without their middle. Not at U+00A0, which is written as a blank.
  bool wrapped = false;
};

// Columns of words, then columns of numbers, then such of words again.
std::vector<Column> columns(const std::vector<std::string>& words,
                            const std::vector<std::string>& numbers,
                            const std::vector<std::string>& last = {});

// What a row of an HTML table has in addition to its cells.
struct RowLook {
  std::string id;     // for links; unique in the page
  std::string marks;  // classes
  // By cell: what the script sorts it by, where that is not its text: 0.98 of "980 ms". May be
  // shorter than the row.
  std::vector<std::optional<double>> values = {};
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // As many cells as columns.
  void add(std::vector<std::string> cells, RowLook look = {});
  bool empty() const { return rows_.empty(); }

  // The text's width without an indent, as long as nothing is shortened.
  std::size_t width() const;

  // Lines, columns two blanks apart, each line preceded by `indent` blanks; the first one has the
  // columns' names, if any has one. Where they are wider than `width`, columns that may wrap do,
  // and then the widest columns of words or code are shortened in the middle.
  std::string text(std::size_t width = 80, std::size_t indent = 0) const;

  // GitHub's: a header, a line of dashes, a line per row.
  std::string markdown() const;

  // RFC 4180: a header and a row per line, which ends in CR LF.
  std::string csv() const;

  // A table that scrolls by itself where it is too wide. One of more than four columns becomes a
  // list of rows on a phone, in which each cell has its column's name. `label`: for screen readers.
  // `classes`: of the table.
  std::string html(std::string_view label, std::string_view classes = {}) const;

 private:
  struct Row {
    std::vector<std::string> cells;
    RowLook look;
  };
  std::vector<std::size_t> widths() const;  // of the columns

  std::vector<Column> columns_;
  std::vector<Row> rows_;
};

}  // namespace lockstep::reports
