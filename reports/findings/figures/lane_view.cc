#include "reports/findings/figures/lane_view.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "base/tables.h"
#include "base/text.h"

namespace lockstep::reports {
namespace {

// True if two calls differ in a field that both recorded, and should not.
bool disagree(const LaneCell& a, const LaneCell& b) {
  for (std::size_t field = 0; field < kLaneFields; ++field)
    if (!((field == kSize || field == kSplits) && a.size_is_own && b.size_is_own) &&
        !a.fields[field].empty() && !b.fields[field].empty() && a.fields[field] != b.fields[field])
      return true;
  return false;
}

// The call that a column's calls are compared with: the one that most ranks made. Culprits count
// only if nobody else called anything. On a tie, the first row's.
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

// Rows in the order in which they are kept: culprits, then those of most ranks.
std::vector<std::size_t> by_importance(const LaneTable& table) {
  std::vector<std::size_t> order(table.rows.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const LaneRow& left = table.rows[a];
    const LaneRow& right = table.rows[b];
    if (left.culprit != right.culprit) return left.culprit;
    return left.ranks.size() > right.ranks.size();
  });
  return order;
}

bool about_messages(verify::RuleId rule) {
  return rule == verify::RuleId::p2p_unmatched || rule == verify::RuleId::p2p_cycle ||
         rule == verify::RuleId::p2p_size;
}

}  // namespace

bool seen_in_program_order(const verify::Finding& finding) {
  switch (finding.rule) {
    case verify::RuleId::cross_group_deadlock:
    case verify::RuleId::deadlock:
    case verify::RuleId::p2p_unmatched:
    case verify::RuleId::p2p_cycle:
    case verify::RuleId::p2p_size:
      return true;
    default:
      return false;
  }
}

LaneTable choose_lanes(const verify::Finding& finding, const trace::Run& run,
                       const LaneWindow& window) {
  LaneTable table;
  if (seen_in_program_order(finding)) table = by_program_order(finding, run, window.last);
  // The number of a message counts messages; the sequence is that of collectives.
  if (table.rows.empty() && !about_messages(finding.rule))
    table = by_sequence(finding, run, window.before, window.after);
  // A grid of "never called" and "trace ends" shows nothing that the words do not.
  const auto calls = [](const LaneRow& row) {
    return std::any_of(row.cells.begin(), row.cells.end(),
                       [](const LaneCell& cell) { return cell.has_call(); });
  };
  if (std::none_of(table.rows.begin(), table.rows.end(), calls)) table.rows.clear();
  return table;
}

std::size_t limit_rows(LaneTable& table, std::size_t most) {
  if (table.rows.size() <= most) return 0;
  std::vector<std::size_t> order = by_importance(table);
  // Culprits alone would not show what they deviate from: the last kept row goes to the first row
  // that is not theirs.
  const auto other = std::find_if(order.begin(), order.end(),
                                  [&](std::size_t i) { return !table.rows[i].culprit; });
  if (other - order.begin() >= static_cast<std::ptrdiff_t>(most) && other != order.end())
    std::iter_swap(other, order.begin() + static_cast<std::ptrdiff_t>(most) - 1);
  std::size_t hidden = 0;
  for (std::size_t i = most; i < order.size(); ++i) hidden += table.rows[order[i]].ranks.size();
  order.resize(most);
  std::sort(order.begin(), order.end());
  std::vector<LaneRow> kept;
  kept.reserve(order.size());
  for (const std::size_t i : order) kept.push_back(std::move(table.rows[i]));
  table.rows = std::move(kept);
  return hidden;
}

bool drop_farthest_column(LaneTable& table) {
  const std::size_t after = table.heads.size() - 1 - table.focus;
  const bool first = table.focus > after || after == 0;
  const std::size_t column = first ? 0 : table.heads.size() - 1;
  const auto at = static_cast<std::ptrdiff_t>(column);
  table.heads.erase(table.heads.begin() + at);
  for (LaneRow& row : table.rows) row.cells.erase(row.cells.begin() + at);
  if (first) --table.focus;
  return first;
}

bool stands_out(const LaneTable& table, const LaneRow& row, std::size_t column) {
  if (!table.compared || !row.cells[column].has_call()) return false;
  const LaneCell* usual = reference(table, column);
  return usual != nullptr && disagree(row.cells[column], *usual);
}

std::string short_size(std::string_view size) {
  static constexpr std::pair<std::string_view, std::string_view> kShort[] = {
      {"float32", "f32"}, {"bfloat16", "bf16"}, {"float16", "f16"},
      {"float64", "f64"}, {"int64", "i64"},     {"int32", "i32"},
      {"int16", "i16"},   {"int8", "i8"},       {"uint8", "u8"}};
  const std::size_t blank = size.rfind(' ');
  if (blank == kNpos) return std::string(size);
  for (const auto& [dtype, word] : kShort)
    if (size.substr(blank + 1) == dtype) return std::string(size.substr(0, blank + 1)).append(word);
  return std::string(size);
}

std::string fitted(const LaneCell& cell, const std::string& line, std::size_t width) {
  if (columns_of(line) > width && line == cell.fields[kSize]) return short_size(line);
  const bool is_name = line == cell.fields[kOp] && line.find(' ') == kNpos;
  if (is_name && columns_of(line) > width) {
    std::string cut = shorten_end(line, width);
    std::erase(cut, ' ');  // before the mark: "reduce_scatter_.."
    return cut;
  }
  return shorten_middle(line, width);
}

std::string_view describe_state(LaneCell::State state) {
  using State = LaneCell::State;
  switch (state) {
    case State::done:
    case State::absent:
      return "";
    case State::waits:
      return "waits";
    case State::pending:
      return "not done";
    case State::not_called:
      return "never called";
    case State::waits_elsewhere:
      return "waits in";
    case State::ended:
      return "ended";
    case State::raised:
      return "exception";
    case State::killed:
      return "killed";
    case State::interrupted:
      return "interrupted";
    case State::cut:
      return "trace ends";
    case State::lost:
      return "not kept";
    case State::no_trace:
      return "no trace";
  }
  return "";
}

}  // namespace lockstep::reports
