#include "reports/lanes.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include "reports/columns.h"
#include "reports/lane_table.h"

namespace lockstep {
namespace {

using State = LaneCell::State;

constexpr std::size_t kGap = 3;          // blanks between columns; the mark stands in them
constexpr std::size_t kLabelWidth = 22;  // at most, of a row's label
constexpr std::size_t kGoodCell = 14;    // a cell narrower than this says too little

std::string state_text(const LaneCell& cell) {
  switch (cell.state) {
    case State::done:
    case State::absent:
      return "";
    case State::waits:
      return "WAITS";
    case State::pending:
      return "not done";
    case State::not_called:
      return "(never called)";
    case State::waits_elsewhere:
      return "(waits in";  // the place follows on a line of its own
    case State::ended:
      return "(ended)";
    case State::raised:
      return "(exception)";
    case State::killed:
      return "(killed)";
    case State::cut:
      return "(trace ends)";
    case State::lost:
      return "(not kept)";
    case State::no_trace:
      return "(no trace)";
  }
  return "";
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

// True where two calls disagree in a field that both recorded.
bool disagree(const LaneCell& a, const LaneCell& b) {
  for (std::size_t field = 0; field < kLaneFields; ++field)
    if (!a.fields[field].empty() && !b.fields[field].empty() && a.fields[field] != b.fields[field])
      return true;
  return false;
}

// The call that the others of a column are compared with: the one that most ranks made, the
// finding's culprits counted only where nobody else called anything.
const LaneCell* reference(const LaneTable& table, std::size_t column) {
  const LaneCell* best = nullptr;
  std::size_t best_count = 0;
  bool best_culprit = true;
  for (const LaneRow& row : table.rows) {
    const LaneCell& cell = row.cells[column];
    if (!cell.has_call()) continue;
    std::size_t count = 0;
    for (const LaneRow& other : table.rows)
      if (other.culprit == row.culprit && other.cells[column].has_call() &&
          !disagree(cell, other.cells[column]))
        count += other.ranks.size();
    if ((best_culprit && !row.culprit) || (best_culprit == row.culprit && count > best_count)) {
      best = &cell;
      best_count = count;
      best_culprit = row.culprit;
    }
  }
  return best;
}

class Drawing {
 public:
  Drawing(LaneTable table, const LaneOptions& options)
      : table_(std::move(table)), options_(options) {
    limit_rows();
    layout();
  }

  std::string str() {
    out_ = std::string(options_.indent, ' ') +
           options_.paint.dim(pad_right(shorten_middle(table_.title, label_width_), label_width_));
    for (std::size_t column = 0; column < widths_.size(); ++column)
      out_ += std::string(kGap, ' ') +
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
  void limit_rows() {
    if (table_.rows.size() <= options_.max_rows) return;
    std::vector<std::size_t> order(table_.rows.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      const LaneRow& left = table_.rows[a];
      const LaneRow& right = table_.rows[b];
      if (left.culprit != right.culprit) return left.culprit;
      return left.ranks.size() > right.ranks.size();
    });
    // Culprits alone would hide what they deviate from.
    if (const auto other = std::find_if(order.begin(), order.end(),
                                        [&](std::size_t i) { return !table_.rows[i].culprit; });
        other - order.begin() >= static_cast<std::ptrdiff_t>(options_.max_rows) &&
        other != order.end())
      std::iter_swap(other, order.begin() + static_cast<std::ptrdiff_t>(options_.max_rows) - 1);
    for (std::size_t i = options_.max_rows; i < order.size(); ++i)
      hidden_ranks_ += table_.rows[order[i]].ranks.size();
    order.resize(options_.max_rows);
    std::sort(order.begin(), order.end());
    std::vector<LaneRow> kept;
    for (const std::size_t i : order) kept.push_back(std::move(table_.rows[i]));
    table_.rows = std::move(kept);
  }

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
    const std::size_t taken = options_.indent + label_width_ + kGap * table_.heads.size();
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
      const LaneCell* usual = table_.compared ? reference(table_, column) : nullptr;
      marked.push_back(usual != nullptr && row.cells[column].has_call() &&
                       disagree(row.cells[column], *usual));
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
    const std::string gap = marked && first ? options_.paint.red(" ! ") : std::string(kGap, ' ');
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

// Ranks that block one another in several groups or point-to-point are seen best in program order.
bool wants_program_order(const Finding& finding) {
  switch (finding.rule) {
    case RuleId::cross_group_deadlock:
    case RuleId::deadlock:
    case RuleId::p2p_unmatched:
    case RuleId::p2p_cycle:
    case RuleId::p2p_size:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::string lanes(const Finding& finding, const Run& run, const LaneOptions& options) {
  LaneTable table;
  if (wants_program_order(finding)) table = by_program_order(finding, run, 3);
  if (table.rows.empty()) table = by_sequence(finding, run, 2, 2);
  if (table.rows.empty()) return {};
  return Drawing(std::move(table), options).str();
}

}  // namespace lockstep
