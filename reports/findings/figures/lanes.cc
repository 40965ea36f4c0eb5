#include "reports/findings/figures/lanes.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include <fmt/format.h>

#include "base/tables.h"
#include "base/text.h"
#include "reports/findings/figures/lane_table.h"
#include "reports/findings/figures/lane_view.h"
#include "reports/findings/finding_words.h"
#include "reports/html/markup.h"
#include "reports/html/svg.h"
#include "reports/table.h"

namespace lockstep::reports {
namespace {

using State = LaneCell::State;

constexpr std::size_t kLaneGap = 3;      // blanks between columns; the mark "!" goes there
constexpr std::size_t kLabelWidth = 22;  // of a row's label, at most, in 80 columns
constexpr std::size_t kGoodCell = 14;    // narrower cells are not readable

std::string state_text(const LaneCell& cell) {
  if (cell.state == State::waits) return "WAITS";
  if (cell.state == State::waits_elsewhere)
    return "(waits in";  // the place follows on a line of its own
  const std::string state(describe_state(cell.state));
  return state.empty() || cell.has_call() ? state : fmt::format("({})", state);
}

// The lines of one cell: the shown fields of its call, then its state. draw() fills the cells of a
// row up to the same height.
std::vector<std::string> cell_lines(const LaneCell& cell, const LaneTable& table) {
  std::vector<std::string> lines;
  if (cell.has_call())
    for (std::size_t field = 0; field < kLaneFields; ++field)
      if (table.shown[field]) lines.push_back(cell.fields[field]);
  // Empty fields in the middle stay: the same field is on the same line in all cells.
  while (lines.size() > 1 && lines.back().empty()) lines.pop_back();
  if (const std::string state = state_text(cell); !state.empty()) lines.push_back(state);
  if (cell.state == State::waits_elsewhere) lines.push_back(fmt::format(" {})", cell.elsewhere));
  return lines;
}

// The least width that shows all sizes of these cells, if they are shown.
std::size_t size_width(const LaneTable& table) {
  std::size_t width = 0;
  if (!table.shown[kSize]) return width;
  for (const LaneRow& row : table.rows)
    for (const LaneCell& cell : row.cells)
      if (cell.has_call()) width = std::max(width, columns_of(short_size(cell.fields[kSize])));
  return width;
}

class Drawing {
 public:
  Drawing(LaneTable table, const LaneOptions& options)
      : table_(std::move(table)), options_(options) {
    // Rows first: the widths follow from what is shown, not from what is left out.
    hidden_ranks_ = limit_rows(table_, options_.max_rows);
    layout();
  }

  std::string str() {
    out_ = fmt::format(
        "{}{}", std::string(options_.indent, ' '),
        options_.paint.dim(pad_right(shorten_middle(table_.title, label_width_), label_width_)));
    for (std::size_t column = 0; column < widths_.size(); ++column)
      out_ += fmt::format("{}{}", std::string(kLaneGap, ' '),
                          options_.paint.dim(pad_right(table_.heads[column], widths_[column])));
    end_line();
    for (const LaneRow& row : table_.rows) draw(row);
    if (any_marked_)
      out_ += fmt::format("{:{}}{}\n", "", options_.indent,
                          options_.paint.dim("! not what the other ranks called"));
    if (hidden_ranks_ > 0)
      out_ += fmt::format("{:{}}and {} more ranks, which differ from these\n", "", options_.indent,
                          hidden_ranks_);
    return out_;
  }

 private:
  // Chooses the widths of label and columns so that a line fits.
  void layout() {
    label_width_ = columns_of(table_.title);
    for (const LaneRow& row : table_.rows)
      label_width_ = std::max(label_width_, rank_label(row.ranks).size());
    label_width_ = std::min(label_width_, std::max(kLabelWidth, options_.width / 4));
    drop_columns();
    for (std::size_t column = 0; column < table_.heads.size(); ++column) {
      std::size_t width = columns_of(table_.heads[column]);
      for (const LaneRow& row : table_.rows)
        for (const std::string& line : cell_lines(row.cells[column], table_))
          width = std::max(width, columns_of(line));
      widths_.push_back(width);
    }
    // Shrink the widest column, one character at a time, until all fit. Below 4 characters nothing
    // can be read, and a size is not cut: the line gets too wide instead.
    const std::size_t room = room_for_cells();
    const std::size_t least = std::max<std::size_t>(4, size_width(table_));
    while (std::accumulate(widths_.begin(), widths_.end(), std::size_t{0}) > room) {
      const auto widest = std::max_element(widths_.begin(), widths_.end());
      if (*widest <= least) break;
      --*widest;
    }
    // The calls come first; the group's name takes what they leave. Lists of ranks fold instead.
    const std::size_t taken = std::accumulate(widths_.begin(), widths_.end(), std::size_t{0});
    label_width_ = std::max(label_width_, std::min(columns_of(table_.title),
                                                   label_width_ + room - std::min(room, taken)));
    // "bf16" where "bfloat16" has no room; everywhere, so that equal sizes look equal.
    for (const LaneRow& row : table_.rows)
      for (std::size_t column = 0; column < widths_.size(); ++column)
        short_sizes_ |=
            table_.shown[kSize] && columns_of(row.cells[column].fields[kSize]) > widths_[column];
  }

  std::size_t room_for_cells() const {
    const std::size_t taken = options_.indent + label_width_ + kLaneGap * table_.heads.size();
    return options_.width - std::min(options_.width, taken);
  }

  // Removes the columns farthest from the difference until the cells are wide enough. At least two
  // stay.
  void drop_columns() {
    const std::size_t good = std::max(kGoodCell, size_width(table_));
    while (table_.heads.size() > 2 && room_for_cells() / table_.heads.size() < good)
      drop_farthest_column(table_);
    choose_fields(table_);
  }

  void draw(const LaneRow& row) {
    std::vector<std::vector<std::string>> cells;
    std::vector<bool> marked;
    std::size_t height = 1;
    for (std::size_t column = 0; column < widths_.size(); ++column) {
      cells.push_back(cell_lines(row.cells[column], table_));
      height = std::max(height, cells.back().size());
      marked.push_back(stands_out(table_, row, column));
      any_marked_ = any_marked_ || marked.back();
    }
    for (std::size_t line = 0; line < height; ++line) {
      out_ += std::string(options_.indent, ' ');
      const std::string label = line == 0 ? rank_label(row.ranks, label_width_) : "";
      const std::string padded = pad_right(label, label_width_);
      out_ += row.culprit ? options_.paint.red(padded) : padded;
      for (std::size_t column = 0; column < widths_.size(); ++column)
        out_ += cell_text(row.cells[column], line < cells[column].size() ? cells[column][line] : "",
                          marked[column], line == 0, widths_[column]);
      end_line();
    }
  }

  std::string cell_text(const LaneCell& cell, const std::string& line, bool marked, bool first,
                        std::size_t width) const {
    const bool size = short_sizes_ && line == cell.fields[kSize];
    const std::string text = pad_right(fitted(cell, size ? short_size(line) : line, width), width);
    const std::string gap =
        marked && first ? options_.paint.red(" ! ") : std::string(kLaneGap, ' ');
    // The mark is more important than the state's colour.
    if (marked) return gap + options_.paint.red(text);
    const bool state_line = !line.empty() && line == state_text(cell);
    if (state_line && cell.state == State::waits) return gap + options_.paint.yellow(text);
    if (state_line) return gap + options_.paint.bold(text);
    return gap + text;
  }

  void end_line() {
    out_.erase(out_.find_last_not_of(' ') + 1);
    out_ += '\n';
  }

  LaneTable table_;
  LaneOptions options_;
  std::size_t label_width_ = 0;
  std::vector<std::size_t> widths_;
  std::size_t hidden_ranks_ = 0;
  bool any_marked_ = false;
  bool short_sizes_ = false;
  std::string out_;
};

}  // namespace

std::string lanes(const verify::Finding& finding, const trace::Run& run,
                  const LaneOptions& options) {
  LaneTable table = choose_lanes(finding, run, {});
  if (table.rows.empty()) return {};
  return Drawing(std::move(table), options).str();
}

}  // namespace lockstep::reports
