#include "reports/findings/figures/lane_choice.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace lockstep::reports {
namespace {

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

// The order in which rows are kept.
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
  if (table.rows.empty()) table = by_sequence(finding, run, window.before, window.after);
  return table;
}

std::size_t limit_rows(LaneTable& table, std::size_t most) {
  if (table.rows.size() <= most) return 0;
  std::vector<std::size_t> order = by_importance(table);
  // Culprits alone would hide what they deviate from.
  const auto other = std::find_if(order.begin(), order.end(),
                                  [&](std::size_t i) { return !table.rows[i].culprit; });
  if (other - order.begin() >= static_cast<std::ptrdiff_t>(most) && other != order.end())
    std::iter_swap(other, order.begin() + static_cast<std::ptrdiff_t>(most) - 1);
  std::size_t hidden = 0;
  for (std::size_t i = most; i < order.size(); ++i) hidden += table.rows[order[i]].ranks.size();
  order.resize(most);
  std::sort(order.begin(), order.end());
  std::vector<LaneRow> kept;
  for (const std::size_t i : order) kept.push_back(std::move(table.rows[i]));
  table.rows = std::move(kept);
  return hidden;
}

bool stands_out(const LaneTable& table, const LaneRow& row, std::size_t column) {
  if (!table.compared || !row.cells[column].has_call()) return false;
  const LaneCell* usual = reference(table, column);
  return usual != nullptr && disagree(row.cells[column], *usual);
}

std::string_view state_words(LaneCell::State state) {
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
