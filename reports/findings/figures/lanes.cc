#include "reports/findings/figures/lanes.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/tables.h"
#include "reports/findings/figures/lane_choice.h"
#include "reports/findings/figures/lane_table.h"
#include "reports/findings/finding_words.h"

namespace lockstep::reports {
namespace {

using State = LaneCell::State;

constexpr std::size_t kLaneGap = 3;      // blanks between columns; the mark stands in them
constexpr std::size_t kLabelWidth = 22;  // at most, of a row's label
constexpr std::size_t kGoodCell = 14;    // a cell narrower than this says too little

std::string state_text(const LaneCell& cell) {
  if (cell.state == State::waits) return "WAITS";
  if (cell.state == State::waits_elsewhere)
    return "(waits in";  // the place follows on a line of its own
  const std::string words(state_words(cell.state));
  return words.empty() || cell.has_call() ? words : "(" + words + ")";
}

// The lines of one cell. `lines` of all cells of a row are filled up to the same height later.
std::vector<std::string> cell_lines(const LaneCell& cell, const LaneTable& table) {
  std::vector<std::string> lines;
  if (cell.has_call())
    for (std::size_t field = 0; field < kLaneFields; ++field)
      if (table.shown[field]) lines.push_back(cell.fields[field]);
  while (lines.size() > 1 && lines.back().empty()) lines.pop_back();
  if (const std::string state = state_text(cell); !state.empty()) lines.push_back(state);
  if (cell.state == State::waits_elsewhere) lines.push_back(" " + cell.elsewhere + ")");
  return lines;
}

class Drawing {
 public:
  Drawing(LaneTable table, const LaneOptions& options)
      : table_(std::move(table)), options_(options) {
    hidden_ranks_ = limit_rows(table_, options_.max_rows);
    layout();
  }

  std::string str() {
    out_ = std::string(options_.indent, ' ') +
           options_.paint.dim(pad_right(shorten_middle(table_.title, label_width_), label_width_));
    for (std::size_t column = 0; column < widths_.size(); ++column)
      out_ += std::string(kLaneGap, ' ') +
              options_.paint.dim(pad_right(table_.heads[column], widths_[column]));
    end_line();
    for (const LaneRow& row : table_.rows) draw(row);
    if (any_marked_)
      out_ += std::string(options_.indent, ' ') +
              options_.paint.dim("! not what the other ranks called") + "\n";
    if (hidden_ranks_ > 0)
      out_ += std::string(options_.indent, ' ') + "and " + std::to_string(hidden_ranks_) +
              " more ranks, which differ from these\n";
    return out_;
  }

 private:
  // Chooses the label's and the columns' widths so that a line fits.
  void layout() {
    label_width_ = columns_of(table_.title);
    for (const LaneRow& row : table_.rows)
      label_width_ = std::max(label_width_, rank_label(row.ranks).size());
    label_width_ = std::min(label_width_, kLabelWidth);
    drop_columns();
    for (std::size_t column = 0; column < table_.heads.size(); ++column) {
      std::size_t width = columns_of(table_.heads[column]);
      for (const LaneRow& row : table_.rows)
        for (const std::string& line : cell_lines(row.cells[column], table_))
          width = std::max(width, columns_of(line));
      widths_.push_back(width);
    }
    // The widest gives way until all fit.
    const std::size_t room = room_for_cells();
    while (std::accumulate(widths_.begin(), widths_.end(), std::size_t{0}) > room) {
      const auto widest = std::max_element(widths_.begin(), widths_.end());
      if (*widest <= 4) break;
      --*widest;
    }
  }

  std::size_t room_for_cells() const {
    const std::size_t taken = options_.indent + label_width_ + kLaneGap * table_.heads.size();
    return options_.width - std::min(options_.width, taken);
  }

  // Leaves out the columns that are farthest from the difference until the cells are wide enough.
  void drop_columns() {
    while (table_.heads.size() > 2 && room_for_cells() / table_.heads.size() < kGoodCell) {
      const std::size_t after = table_.heads.size() - 1 - table_.focus;
      const bool first = table_.focus > after || after == 0;
      const std::size_t column = first ? 0 : table_.heads.size() - 1;
      const auto at = static_cast<std::ptrdiff_t>(column);
      table_.heads.erase(table_.heads.begin() + at);
      for (LaneRow& row : table_.rows) row.cells.erase(row.cells.begin() + at);
      if (first) --table_.focus;
    }
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
    const std::string text = pad_right(shorten_middle(line, width), width);
    const std::string gap =
        marked && first ? options_.paint.red(" ! ") : std::string(kLaneGap, ' ');
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
