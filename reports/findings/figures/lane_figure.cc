#include "reports/findings/figures/lane_figure.h"

#include <algorithm>
#include <map>
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

namespace lockstep::reports::html {
namespace {

using State = LaneCell::State;

constexpr std::size_t kMaxLaneRows = 10;
constexpr std::size_t kBoxLetters = 18;  // that fit into a box
constexpr double kLabel = 200;           // width of the lanes' names, at least
constexpr double kTitleLetter = 9;       // of the title, in capitals
constexpr std::size_t kTitleLetters = 30;
constexpr double kBox = 150;
constexpr double kBoxGap = 20;  // between boxes, both ways
constexpr double kHead = 30;
constexpr double kLine = 16;
constexpr double kPad = 9;
constexpr double kNameLine = 20;  // of a name above its lane

struct CellText {
  std::vector<std::string> lines;  // of the call: the first is its operation
  std::string state;
};

CellText cell_text(const LaneCell& cell, const LaneTable& table) {
  CellText out;
  if (cell.has_call())
    for (std::size_t field = 0; field < kLaneFields; ++field)
      if (table.shown[field] && !cell.fields[field].empty())
        out.lines.push_back(fitted(cell, cell.fields[field], kBoxLetters));
  out.state = describe_state(cell.state);
  if (cell.state == State::waits_elsewhere)
    out.state = shorten_middle(fmt::format("{} {}", out.state, cell.elsewhere), kBoxLetters);
  return out;
}

// The call in full, for tooltips and screen readers.
std::string full_text_of(const LaneCell& cell) {
  std::string out;
  for (const std::string& field : cell.fields)
    if (!field.empty()) out.append(out.empty() ? "" : ", ").append(field);
  const std::string_view state = describe_state(cell.state);
  if (!state.empty()) out.append(out.empty() ? "" : "; ").append(state);
  return out;
}

// The target of a cell's link: its row in the table of the calls in full.
std::string name_of_cell(const std::string& id, std::size_t row, std::size_t column) {
  return fmt::format("{}-{}-{}", id, row, column);
}

class LanePicture {
 public:
  enum class Names : std::uint8_t { beside, above };  // the lanes
  // `id`: of the links' targets, which count columns from `first_column`.
  LanePicture(LaneTable table, const trace::Run& run, const MatchedCalls& matched, std::string id,
              std::size_t first_column, Names names)
      : table_(std::move(table)),
        run_(run),
        matched_(matched),
        id_(std::move(id)),
        first_column_(first_column),
        names_(names),
        left_(names == Names::beside ? label_width() : 0) {
    place();
  }

  std::string str() const {
    const double width = left_ + static_cast<double>(table_.heads.size()) * (kBox + kBoxGap);
    std::string content = heads() + joins();
    for (std::size_t r = 0; r < table_.rows.size(); ++r) content += row(r);
    return svg_picture(summary(), width, height_, content, /*has_links=*/true);
  }

 private:
  std::string title() const { return shorten_middle(table_.title, kTitleLetters); }
  double label_width() const {
    return std::max(kLabel, kTitleLetter * static_cast<double>(columns_of(title())));
  }

  void place() {
    height_ = kHead;
    for (const LaneRow& row : table_.rows) {
      if (names_ == Names::above) height_ += kNameLine;
      std::size_t most = 1;
      for (const LaneCell& cell : row.cells) {
        const CellText text = cell_text(cell, table_);
        most = std::max(most, text.lines.size() + (text.state.empty() ? 0 : 1));
      }
      const double box = 2 * kPad + static_cast<double>(most) * kLine - 3;
      std::vector<Box>& boxes = boxes_.emplace_back();
      for (std::size_t c = 0; c < row.cells.size(); ++c)
        boxes.push_back({left_ + static_cast<double>(c) * (kBox + kBoxGap), height_, kBox, box});
      height_ += box + kBoxGap;
    }
    height_ -= kBoxGap - 4;
  }

  std::string summary() const {
    std::string out =
        fmt::format("{}, {} of ranks:", table_.title, plural(table_.rows.size(), "kind"));
    for (const LaneRow& row : table_.rows) {
      const LaneCell& cell = row.cells[table_.focus];
      const std::string content = full_text_of(cell);
      out +=
          fmt::format(" {}: {}.", rank_label(row.ranks, 40), content.empty() ? "no call" : content);
    }
    return out;
  }

  std::string heads() const {
    std::string out;
    const double x = left_ + static_cast<double>(table_.focus) * (kBox + kBoxGap);
    if (table_.compared)
      out += svg_rect("focus", {x - kBoxGap / 2 + 3, 0, kBox + kBoxGap - 6, height_}, 6);
    if (names_ == Names::beside) out += svg_text("head", {0, 14}, title());
    for (std::size_t c = 0; c < table_.heads.size(); ++c)
      out += svg_text("head", {left_ + static_cast<double>(c) * (kBox + kBoxGap), 14},
                      table_.heads[c]);
    return out;
  }

  std::uint32_t instance_of(std::size_t r, std::size_t c) const {
    const LaneCell& cell = table_.rows[r].cells[c];
    if (cell.call == kNoLaneCall) return MatchedCalls::kAlone;
    const trace::RankTrace* trace = run_.find(table_.rows[r].ranks.front());
    return matched_.instance[static_cast<std::size_t>(trace - run_.ranks.data())][cell.call];
  }

  // A line from each call to the call in the next lane below that matches it. None between calls of
  // the same lane (ranks that send to each other and do the same).
  std::string joins() const {
    struct Cell {
      std::size_t row, column;
    };
    std::map<std::uint32_t, Cell> last;
    std::string out;
    for (std::size_t r = 0; r < table_.rows.size(); ++r) {
      for (std::size_t c = 0; c < table_.rows[r].cells.size(); ++c) {
        const std::uint32_t instance = instance_of(r, c);
        if (instance == MatchedCalls::kAlone) continue;
        if (const auto above = last.find(instance); above != last.end()) {
          const auto [row, column] = above->second;
          // Red where one of the two deviates and the other does not.
          const bool bad =
              stands_out(table_, table_.rows[r], c) != stands_out(table_, table_.rows[row], column);
          if (row != r)
            out += svg_upright_curve(bad ? "join bad" : "join", boxes_[row][column].bottom(),
                                     boxes_[r][c].top());
        }
        last[instance] = {r, c};
      }
    }
    return out;
  }

  std::string row(std::size_t r) const {
    const LaneRow& row = table_.rows[r];
    const Box& first = boxes_[r].front();
    const double middle = first.y + first.height / 2;
    const double begin = names_ == Names::beside ? left_ - kBoxGap : 0;
    std::string out = svg_line("lane", {begin, middle}, {boxes_[r].back().right().x, middle});
    const char* const look = row.culprit ? "name bad-ink" : "name";
    if (names_ == Names::beside) {
      out += svg_text(look, {0, middle + 1}, rank_label(row.ranks, 25)) +
             svg_text("note", {0, middle + 17},
                      row.ranks.size() > 1 ? plural(row.ranks.size(), "rank") : "");
    } else {
      out += svg_text(look, {0, first.y - 7}, rank_label(row.ranks, 44));
    }
    for (std::size_t c = 0; c < row.cells.size(); ++c) out += box(r, c);
    return out;
  }

  std::string box(std::size_t r, std::size_t c) const {
    const LaneRow& row = table_.rows[r];
    const LaneCell& cell = row.cells[c];
    const CellText text = cell_text(cell, table_);
    if (text.lines.empty() && text.state.empty()) return {};
    const bool bad = stands_out(table_, row, c);
    const Box& box = boxes_[r][c];
    std::string content =
        element("title", "",
                html::text(fmt::format("{}: {}", rank_label(row.ranks, 60), full_text_of(cell))));
    // Opaque, so that lanes and lines pass behind the box.
    content += svg_rect("ground", box);
    content += svg_rect(bad                          ? "box bad"
                        : cell.state == State::waits ? "box waits"
                        : cell.has_call()            ? "box"
                                                     : "none",
                        box);
    double y = box.y + kPad + 10;
    for (std::size_t i = 0; i < text.lines.size(); ++i, y += kLine)
      content += svg_text(i == 0 ? "op" : "", {box.x + kPad, y}, text.lines[i]);
    if (!text.state.empty()) {
      const bool waits = cell.state == State::waits;
      const bool quiet = cell.has_call() && !waits;
      content += svg_text(waits   ? "state warn-ink"
                          : quiet ? "note"
                                  : "state",
                          {box.x + kPad, y}, text.state);
    }
    if (bad) content += svg_text("state bad-ink", {box.x + box.width - 16, box.y + kPad + 10}, "≠");
    return fmt::format("<a href=\"#{}\">{}</a>", name_of_cell(id_, r, first_column_ + c), content);
  }

  LaneTable table_;
  const trace::Run& run_;
  const MatchedCalls& matched_;
  std::string id_;
  std::size_t first_column_;
  Names names_;
  double left_;                          // where the boxes begin
  std::vector<std::vector<Box>> boxes_;  // by row and column
  double height_ = 0;
};

class LaneFigure {
 public:
  LaneFigure(LaneTable table, const trace::Run& run, const MatchedCalls& matched, std::string id)
      : table_(std::move(table)), run_(run), matched_(matched), id_(std::move(id)) {
    hidden_ = limit_rows(table_, kMaxLaneRows);
  }

  std::string str() {
    const LanePicture wide(table_, run_, matched_, id_, 0, LanePicture::Names::beside);
    return element("figure", "",
                   element("div", "roomy", scroller("the calls of each kind of rank", wide.str())) +
                       element("div", "narrow", narrow()) + caption() +
                       details("These calls in full", full_table()));
  }

 private:
  // The difference and the column next to it, which fit a phone's width: what matters must not be
  // behind a scroll bar.
  std::string narrow() const {
    constexpr std::size_t kColumnsOfAPhone = 2;
    LaneTable table = table_;
    std::size_t first = 0;
    while (table.heads.size() > kColumnsOfAPhone)
      if (drop_farthest_column(table)) ++first;
    choose_fields(table);
    return LanePicture(std::move(table), run_, matched_, id_, first, LanePicture::Names::above)
        .str();
  }

  std::string caption() const {
    std::string out = "Time goes from left to right; lines join calls that match.";
    bool any = false;
    for (const LaneRow& row : table_.rows)
      for (std::size_t c = 0; c < row.cells.size(); ++c) any = any || stands_out(table_, row, c);
    if (any) out += " ≠ marks a call that is not what the others called.";
    if (hidden_ > 0) out += fmt::format(" {} differ from these.", plural(hidden_, "more rank"));
    return element("figcaption", "", text(out));
  }

  std::string full_table() const {
    Table table({{"ranks"},
                 {"place", Column::mark},
                 {"call", Column::code},
                 {"state"},
                 {"step", Column::number},
                 {"source", Column::code}});
    for (std::size_t r = 0; r < table_.rows.size(); ++r)
      for (std::size_t c = 0; c < table_.rows[r].cells.size(); ++c) add_full_row(table, r, c);
    return table.html("the calls in full");
  }

  // The picture shows only the first of the names that a call carries; here are more.
  std::string full_content(const LaneCell& cell, const trace::Call& made) const {
    constexpr std::size_t kNames = 40;
    std::string out;
    for (std::size_t field = 0; field < kLaneFields; ++field) {
      if (field == kStep) continue;  // has a column of its own
      const std::string content =
          field == kWhat ? join_and(run_.tables.names(made.what), kNames) : cell.fields[field];
      if (!content.empty()) out.append(out.empty() ? "" : ", ").append(content);
    }
    return out;
  }

  void add_full_row(Table& table, std::size_t r, std::size_t c) const {
    const LaneRow& row = table_.rows[r];
    const LaneCell& cell = row.cells[c];
    const CellText shown = cell_text(cell, table_);
    if (shown.lines.empty() && shown.state.empty()) return;
    std::string call, at, step;
    if (cell.call != kNoLaneCall) {
      const trace::Call& made = run_.find(row.ranks.front())->calls[cell.call];
      call = full_content(cell, made);
      at = run_.tables.str(made.at);
      if (made.step != trace::kNone) step = fmt::format("{}", made.step);
    }
    std::string state(describe_state(cell.state));
    if (cell.state == State::waits_elsewhere) state += fmt::format(" {}", cell.elsewhere);
    table.add({rank_label(row.ranks, 30), table_.heads[c], call, state, step, at},
              {name_of_cell(id_, r, c), {}});
  }

  LaneTable table_;
  const trace::Run& run_;
  const MatchedCalls& matched_;
  std::string id_;
  std::size_t hidden_ = 0;
};

}  // namespace

std::string lane_figure(const verify::Finding& finding, const trace::Run& run,
                        const MatchedCalls& matched, const std::string& id) {
  LaneTable table = choose_lanes(finding, run, {.before = 2, .after = 2, .last = 4});
  if (table.rows.empty()) return {};
  return LaneFigure(std::move(table), run, matched, id).str();
}

}  // namespace lockstep::reports::html
