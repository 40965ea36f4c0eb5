#include "reports/findings/reference_table.h"

#include <algorithm>
#include <array>

#include "base/amount.h"
#include "base/columns.h"
#include "base/text.h"

namespace lockstep {

namespace {

using Cells = std::array<std::string, 7>;

std::string in_words(ReferenceVerdict verdict) {
  switch (verdict) {
    case ReferenceVerdict::agrees:
      return "agrees";
    case ReferenceVerdict::loss_parts:
      return "LOSS PARTS";
    case ReferenceVerdict::values_part:
      return "VALUES PART";
    case ReferenceVerdict::no_reference:
      return "no reference";
    case ReferenceVerdict::no_loss:
      return "no loss";
  }
  return "";
}

Cells cells_of(const ReferenceRow& row) {
  Cells cells = {printable(row.scenario), "-", "-", "-", "-", "-", in_words(verdict_of(row))};
  if (!row.loss) return cells;
  cells[1] = std::to_string(row.loss->step + 1);
  cells[2] = fixed(row.loss->loss, 5);
  cells[3] = fixed(row.loss->reference, 5);
  cells[4] = row.loss->apart == 0 ? "equal" : scientific(row.loss->apart);
  cells[5] = scientific(row.loss->tolerance);
  return cells;
}

// Why a row says what it says, where its numbers do not show it.
std::string reason(const ReferenceRow& row) {
  switch (verdict_of(row)) {
    case ReferenceVerdict::no_reference:
      return row.none;
    case ReferenceVerdict::values_part:
      return std::string(row.parted->phase == Phase::param ? "parameter " : "the gradient of ") +
             printable(row.parted->name) + " parts in step " + std::to_string(row.parted->n);
    case ReferenceVerdict::no_loss:
      return "the two have no loss of one last step";
    default:
      return "";
  }
}

}  // namespace

ReferenceVerdict verdict_of(const ReferenceRow& row) {
  if (!row.none.empty()) return ReferenceVerdict::no_reference;
  if (!row.loss) return ReferenceVerdict::no_loss;
  if (!row.loss->agrees()) return ReferenceVerdict::loss_parts;
  return row.parted ? ReferenceVerdict::values_part : ReferenceVerdict::agrees;
}

std::string reference_table(const std::vector<ReferenceRow>& rows) {
  std::vector<Cells> lines = {
      {"scenario", "steps", "loss", "reference", "apart", "tolerance", "verdict"}};
  for (const ReferenceRow& row : rows) lines.push_back(cells_of(row));
  std::array<std::size_t, std::tuple_size_v<Cells>> widths{};
  for (const Cells& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      widths[i] = std::max(widths[i], columns_of(line[i]));
    }
  }
  // The names give way to the other columns and the two blanks between any two.
  std::size_t others = 2 * (widths.size() - 1);
  for (std::size_t i = 1; i < widths.size(); ++i) others += widths[i];
  constexpr std::size_t kShortestName = 8;
  widths[0] = std::min(
      widths[0], kReportColumns > others + kShortestName ? kReportColumns - others : kShortestName);
  std::string out;
  for (Cells& line : lines) {
    line[0] = shorten_middle(line[0], widths[0]);
    for (std::size_t i = 0; i + 1 < line.size(); ++i) out += pad_right(line[i], widths[i]) + "  ";
    out += line.back() + "\n";
  }
  for (const ReferenceRow& row : rows) {
    if (const std::string why = reason(row); !why.empty()) {
      out += wrap(printable(row.scenario) + ": " + why, kReportColumns, 2) + "\n";
    }
  }
  return out;
}

}  // namespace lockstep
