#include "verify/streams/edit_script.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <vector>

#include "base/check.h"

namespace lockstep {

namespace {

using EditScriptKind = FirstEdit::Kind;

struct Cell {
  std::size_t cost = std::numeric_limits<std::size_t>::max() / 2;
  std::size_t agreement = 0;
  enum class Step : std::uint8_t { end, agree, replace, swap, miss, add } step = Step::end;
};

class Table {
 public:
  explicit Table(const EditProblem& problem)
      : problem_(problem), cells_((problem.reference + 1) * (problem.deviant + 1)) {
    for (std::size_t i = problem.reference + 1; i-- > 0;) {
      for (std::size_t j = problem.deviant + 1; j-- > 0;) at(i, j) = best(i, j);
    }
  }

  Cell& at(std::size_t i, std::size_t j) { return cells_[i * (problem_.deviant + 1) + j]; }

 private:
  // The cheapest way from here to the end: of what the rest of both sequences needs.
  Cell best(std::size_t i, std::size_t j) {
    if (j == problem_.deviant) {
      return {i < problem_.owed ? problem_.owed - i : 0, 0, Cell::Step::end};
    }
    if (i == problem_.reference) {
      return {problem_.reference_ends ? problem_.deviant - j : 0, 0, Cell::Step::end};
    }
    Cell out;
    const auto consider = [&](const Cell& rest, std::size_t cost, std::size_t agreement,
                              Cell::Step step) {
      const std::size_t total = rest.cost + cost;
      const std::size_t agreed = rest.agreement + agreement;
      if (total < out.cost || (total == out.cost && agreed > out.agreement)) {
        out = {total, agreed, step};
      }
    };
    if (problem_.same(i, j)) consider(at(i + 1, j + 1), 0, 1, Cell::Step::agree);
    consider(at(i + 1, j + 1), problem_.replacement(i, j), 0, Cell::Step::replace);
    if (i + 1 < problem_.seen && j + 1 < problem_.deviant && problem_.same(i, j + 1) &&
        problem_.same(i + 1, j)) {
      consider(at(i + 2, j + 2), 1, 2, Cell::Step::swap);
    }
    consider(at(i + 1, j), 1, 0, Cell::Step::miss);
    consider(at(i, j + 1), 1, 0, Cell::Step::add);
    return out;
  }

  const EditProblem& problem_;
  std::vector<Cell> cells_;
};

}  // namespace

FirstEdit first_edit(const EditProblem& problem) {
  LOCKSTEP_CHECK(problem.reference > 0 && problem.deviant > 0, "an edit of nothing");
  LOCKSTEP_CHECK(problem.seen <= problem.reference, "more seen than there is");
  Table table(problem);
  const Cell& first = table.at(0, 0);
  FirstEdit out;
  out.cost = first.cost;
  out.agreement = first.agreement;
  switch (first.step) {
    case Cell::Step::swap:
      out.kind = EditScriptKind::swapped;
      out.count = 2;
      break;
    case Cell::Step::miss:
      out.kind = EditScriptKind::missing;
      while (out.count < problem.reference && table.at(out.count, 0).step == Cell::Step::miss) {
        ++out.count;
      }
      break;
    case Cell::Step::add:
      out.kind = EditScriptKind::extra;
      while (out.count < problem.deviant && table.at(0, out.count).step == Cell::Step::add) {
        ++out.count;
      }
      break;
    case Cell::Step::agree:
    case Cell::Step::replace:
    case Cell::Step::end:
      break;
  }
  return out;
}

}  // namespace lockstep
