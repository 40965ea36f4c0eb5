#include "reports/live/screen.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/quantities.h"
#include "base/tables.h"
#include "base/text.h"
#include "reports/findings/finding_words.h"
#include "verify/rules/rules.h"

namespace lockstep::reports {

namespace {

using Doing = WatchedRank::Doing;

constexpr double kNanosPerSecond = 1e9;
constexpr trace::Nanos kShownDelay = 1'000'000;  // shorter delays are normal
constexpr std::size_t kStepWidth = 7;
constexpr std::size_t kDoingWidth = 7;
constexpr std::size_t kBehindWidth = 9;
constexpr std::size_t kWaitingWidth = 12;  // "59 min 59 s"
constexpr std::size_t kFindingsShown = 3;

// Ranks in the same state share a row.
struct RanksRow {
  std::vector<trace::Rank> ranks;
  const WatchedRank* latest = nullptr;  // the one that is furthest behind
  bool waited_for = false;
};

std::int64_t slowest_step(const RanksRow& row) { return row.latest->steps; }

void sort_rows(std::vector<RanksRow>& rows, WatchView::Sort sort) {
  const auto by = [&](auto key) {
    std::stable_sort(rows.begin(), rows.end(), [&](const RanksRow& a, const RanksRow& b) {
      return std::tuple(key(a), a.ranks.front()) < std::tuple(key(b), b.ranks.front());
    });
  };
  switch (sort) {
    case WatchView::Sort::attention:
      // A short screen cuts off the end, so what needs attention comes first.
      by([](const RanksRow& row) {
        return std::pair(!row.waited_for, row.latest->doing == Doing::ended);
      });
      break;
    case WatchView::Sort::rank:
      by([](const RanksRow&) { return 0; });
      break;
    case WatchView::Sort::behind:
      by([](const RanksRow& row) { return -row.latest->behind; });
      break;
    case WatchView::Sort::step:
      by(slowest_step);
      break;
  }
}

std::vector<RanksRow> rows_of(const WatchState& state, WatchView::Sort order) {
  std::vector<trace::Rank> waited_for;
  for (const WatchedRank& r : state.ranks)
    waited_for.insert(waited_for.end(), r.waits_for.begin(), r.waits_for.end());
  std::sort(waited_for.begin(), waited_for.end());
  const auto key = [](const WatchedRank& r) {
    return std::tie(r.doing, r.steps, r.call, r.group, r.seq, r.waits_for);
  };
  std::vector<const WatchedRank*> sorted;
  for (const WatchedRank& r : state.ranks) sorted.push_back(&r);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](auto* a, auto* b) { return key(*a) < key(*b); });
  std::vector<RanksRow> rows;
  for (const WatchedRank* r : sorted) {
    if (rows.empty() || key(*rows.back().latest) != key(*r)) rows.emplace_back().latest = r;
    RanksRow& row = rows.back();
    row.ranks.push_back(r->rank);
    if (r->behind > row.latest->behind) row.latest = r;
    row.waited_for |= std::binary_search(waited_for.begin(), waited_for.end(), r->rank);
  }
  sort_rows(rows, order);
  return rows;
}

// The row that holds the rank; rows.size(): none.
std::size_t row_holding(const std::vector<RanksRow>& rows, std::optional<trace::Rank> rank) {
  if (!rank) return rows.size();
  const auto held = std::find_if(rows.begin(), rows.end(), [&](const RanksRow& row) {
    return std::find(row.ranks.begin(), row.ranks.end(), *rank) != row.ranks.end();
  });
  return static_cast<std::size_t>(held - rows.begin());
}

std::string seconds_text(trace::Nanos time) {
  return duration_text(static_cast<double>(time) / kNanosPerSecond);
}

std::string painted(const Paint& paint, Doing doing, const std::string& text) {
  switch (doing) {
    case Doing::stuck:
    case Doing::raised:
    case Doing::hung:
    case Doing::killed:
      return paint.red(text);
    case Doing::waits:
      return paint.yellow(text);
    case Doing::ended:
      return paint.green(text);
    case Doing::works:
      break;
  }
  return text;
}

// The selected row: inverse if there are colours.
std::string inverted(const Paint& paint, const std::string& line) {
  return paint.on ? fmt::format("\x1b[7m{}\x1b[0m", line) : line;
}

std::string cell(const std::string& text, std::size_t width) {
  return pad_right(shorten_middle(text, width - 1), width);
}

std::string without_trailing_blanks(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

// The columns whose width depends on the screen: a quarter for ranks, a sixth for "for", the rest
// for the call.
struct Widths {
  std::size_t ranks, call, waits_for, waiting;

  explicit Widths(std::size_t width) {
    // The column with the time that a row has waited needs a wide screen.
    constexpr std::size_t kWithTimes = 96;
    waiting = width >= kWithTimes ? kWaitingWidth : 0;
    const std::size_t left = width - kStepWidth - kDoingWidth - kBehindWidth - waiting;
    ranks = std::clamp<std::size_t>(left / 4, 10, 24);
    waits_for = std::clamp<std::size_t>(left / 6, 4, 20);
    call = left - ranks - waits_for;
  }
};

std::string row_line(const RanksRow& row, const Widths& widths, const Paint& paint) {
  const WatchedRank& r = *row.latest;
  std::string call = r.call;
  // Group and sequence number are appended if there is room.
  const std::string suffix = fmt::format(" {} {}", r.group, r.seq);
  if (!call.empty() && columns_of(call + suffix) < widths.call) call += suffix;
  std::string line = cell(rank_label(row.ranks, widths.ranks - 1), widths.ranks) +
                     pad_right(std::to_string(r.steps), kStepWidth);
  line += painted(paint, r.doing, std::string(to_string(r.doing)));
  line.append(kDoingWidth - to_string(r.doing).size(), ' ');
  line += cell(call, widths.call);
  line += cell(r.waits_for.empty() ? "" : rank_label(r.waits_for, widths.waits_for - 1),
               widths.waits_for);
  if (widths.waiting > 0)
    line += pad_right(r.waiting == trace::kNoTime ? "" : seconds_text(r.waiting), widths.waiting);
  if (r.behind >= kShownDelay) line += seconds_text(r.behind);
  return without_trailing_blanks(std::move(line));
}

std::vector<std::string> ranks_table(const WatchState& state, const WatchView& view,
                                     const Widths& widths, std::size_t most, const Paint& paint) {
  const std::vector<RanksRow> rows = rows_of(state, view.sort);
  const std::size_t chosen = row_holding(rows, view.selected);
  std::vector<std::string> out;
  if (rows.empty() || most < 2) return out;
  out.push_back(paint.dim(without_trailing_blanks(
      fmt::format("{}{}{}{}{}{}behind", pad_right("rank", widths.ranks),
                  pad_right("step", kStepWidth), pad_right("doing", kDoingWidth),
                  pad_right("call", widths.call), pad_right("for", widths.waits_for),
                  widths.waiting > 0 ? pad_right("waiting", widths.waiting) : ""))));
  const bool cut = rows.size() + 1 > most;
  // Two lines are needed for the head and for "and 3 rows more".
  const std::size_t shown = cut ? most - 2 : rows.size();
  // The selected row stays on the screen.
  const std::size_t first = chosen < rows.size() && chosen >= shown
                                ? std::min(chosen - shown + 1, rows.size() - shown)
                                : 0;
  for (std::size_t i = first; i < first + shown; ++i) {
    const std::string line = row_line(rows[i], widths, i == chosen ? Paint{} : paint);
    out.push_back(i == chosen ? inverted(paint, line) : line);
  }
  if (cut)
    out.push_back(fmt::format("  and {} more{}", plural(rows.size() - shown, "row"),
                              first > 0 ? fmt::format(", {} of them above", first) : ""));
  return out;
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> out;
  while (!text.empty()) out.emplace_back(take_until(text, '\n'));
  return out;
}

// Indents by two blanks; lines after the first by `indent`.
void add_indented(std::vector<std::string>& out, const std::string& text, std::size_t width,
                  std::size_t indent) {
  for (const std::string& line : lines_of(fmt::format("  {}", wrap(text, width - 2, indent))))
    out.push_back(line);
}

std::vector<std::string> findings(const WatchState& state, std::size_t width, const Paint& paint) {
  std::vector<std::string> out;
  const std::size_t shown = std::min(state.findings.size(), kFindingsShown);
  for (std::size_t i = 0; i < shown; ++i) {
    const verify::Finding& f = state.findings[i];
    const std::string head =
        fmt::format("{} {}", verify::to_string(f.certainty), verify::rule(f.rule).name);
    out.push_back(f.severity == verify::Severity::error ? paint.red(head) : paint.yellow(head));
    add_indented(out, f.message, width, 2);
    if (!f.fix.empty()) add_indented(out, fmt::format("fix: {}", f.fix), width, 7);
  }
  if (state.findings.size() > shown)
    out.push_back(fmt::format("  and {} more", plural(state.findings.size() - shown, "finding")));
  return out;
}

// The rank that is furthest behind, with its call, for which the table has no room.
std::vector<std::string> latest(const WatchState& state, std::size_t width) {
  const auto late = std::max_element(
      state.ranks.begin(), state.ranks.end(),
      [](const WatchedRank& a, const WatchedRank& b) { return a.behind < b.behind; });
  if (late == state.ranks.end() || late->behind < kShownDelay) return {};
  return lines_of(wrap(fmt::format("latest: rank {}, {} behind the median in {}", late->rank.value,
                                   seconds_text(late->behind), late->behind_in),
                       width, 2));
}

// What is known about one rank, a line each, and the command that says more.
std::vector<std::string> rank_detail(const WatchState& state, const WatchedRank& r,
                                     std::size_t width, const Paint& paint) {
  std::vector<trace::Rank> waiting;
  for (const WatchedRank& other : state.ranks)
    if (std::find(other.waits_for.begin(), other.waits_for.end(), r.rank) != other.waits_for.end())
      waiting.push_back(other.rank);
  std::vector<std::string> out = {paint.bold(fmt::format("rank {}", r.rank.value))};
  const std::size_t room = width - 17;
  const auto add = [&](std::string_view what, const std::string& value) {
    if (value.empty()) return;
    std::string name = fmt::format("  {}", pad_right(what, 15));
    for (const std::string& each : lines_of(wrap(value, room))) {
      out.push_back(name + each);
      name.assign(name.size(), ' ');
    }
  };
  add("doing",
      fmt::format(
          "{}{}", to_string(r.doing),
          r.waiting == trace::kNoTime ? "" : fmt::format(", for {}", seconds_text(r.waiting))));
  add("steps", fmt::format("{}{}", r.steps,
                           r.loss ? fmt::format(", the last loss {}", fixed(*r.loss, 3)) : ""));
  add(r.doing == Doing::waits || r.doing == Doing::stuck ? "waits in" : "last call",
      r.call.empty() ? "none yet" : fmt::format("{}, group {}, seq {}", r.call, r.group, r.seq));
  add("at", r.at);
  add("waits for", r.waits_for.empty() ? "" : rank_label(r.waits_for, room));
  add("waited for by", waiting.empty() ? "" : rank_label(waiting, room));
  if (r.behind >= kShownDelay)
    add("behind", fmt::format("{}, in {}", seconds_text(r.behind), r.behind_in));
  if (r.quiet != trace::kNoTime) add("last event", fmt::format("{} ago", seconds_text(r.quiet)));
  add("process",
      r.pid > 0 ? fmt::format("{}{}", r.pid, r.host.empty() ? "" : fmt::format(" on {}", r.host))
                : "");
  if (r.pid > 0) add("its stack", fmt::format("py-spy dump --pid {}", r.pid));
  return out;
}

std::vector<std::string> key_help(const Paint& paint) {
  return {paint.bold("Keys"),
          "  up, down      choose a row; page up, page down, home and end, too",
          "  Enter, right  everything known about the row's first rank; up and down go on",
          "  Esc, left     back",
          "  s             sort: by rank, what needs attention, the latest, the slowest",
          "  q, Ctrl-C     end; the job goes on",
          "  ?             these lines",
          "",
          paint.bold("Columns"),
          "  doing         works: outside of any call that holds it; waits: in a call",
          "                in which others are missing; stuck: proven to wait for ever",
          "  for           whom it waits for",
          "  waiting       since it came to that call (on wide screens)",
          "  behind        how much later than the group's median it came, at least"};
}

// The last line of an interactive screen.
std::string key_line(const WatchView& view, std::size_t width, const Paint& paint) {
  const std::string keys =
      view.help     ? "any key: back"
      : view.detail ? "Esc back  up/down other ranks  q quit  ? help"
                    : fmt::format("up/down choose  Enter detail  s sort ({})  q quit  ? help",
                                  to_string(view.sort));
  return paint.dim(shorten_end(keys, width));
}

// `lines` in at most `height` lines (0: no bound), and the line of keys at the bottom.
std::string with_keys(std::vector<std::string> lines, const ScreenSize& size, const WatchView& view,
                      std::size_t width, const Paint& paint) {
  if (view.interactive && size.height > 0) {
    lines.resize(std::max<std::size_t>(size.height, 4) - 1);
    lines.push_back(key_line(view, width, paint));
  } else if (size.height > 0) {
    lines.resize(std::min(lines.size(), std::max<std::size_t>(size.height, 4)));
  }
  std::string out;
  for (const std::string& line : lines) out += line + "\n";
  return out;
}

bool is_over(Doing doing) {
  return doing == Doing::ended || doing == Doing::raised || doing == Doing::hung ||
         doing == Doing::killed;
}

// Ranks to which the same happened share a line.
using RanksByState = std::map<std::string, std::vector<trace::Rank>>;

void add_lines(const RanksByState& what, std::vector<std::string>& lines) {
  for (const auto& [event, ranks] : what)
    lines.push_back(fmt::format("{} {}", rank_label(ranks, 40), event));
}

}  // namespace

std::string_view to_string(WatchView::Sort sort) {
  switch (sort) {
    case WatchView::Sort::attention:
      return "attention";
    case WatchView::Sort::rank:
      return "rank";
    case WatchView::Sort::behind:
      return "latest";
    case WatchView::Sort::step:
      return "slowest";
  }
  return "";
}

WatchView::Sort sort_after(WatchView::Sort sort) {
  switch (sort) {
    case WatchView::Sort::rank:
      return WatchView::Sort::attention;
    case WatchView::Sort::attention:
      return WatchView::Sort::behind;
    case WatchView::Sort::behind:
      return WatchView::Sort::step;
    case WatchView::Sort::step:
      break;
  }
  return WatchView::Sort::rank;
}

std::optional<trace::Rank> row_from(const WatchState& state, const WatchView& view,
                                    std::ptrdiff_t rows) {
  const std::vector<RanksRow> all = rows_of(state, view.sort);
  if (all.empty()) return std::nullopt;
  const std::size_t chosen = row_holding(all, view.selected);
  if (chosen == all.size()) return all.front().ranks.front();
  const auto last = static_cast<std::ptrdiff_t>(all.size()) - 1;
  const std::ptrdiff_t to =
      std::clamp<std::ptrdiff_t>(static_cast<std::ptrdiff_t>(chosen) + rows, 0, last);
  return all[static_cast<std::size_t>(to)].ranks.front();
}

std::string progress_text(const WatchState& state) {
  if (state.ranks.empty())
    return state.problem.empty() ? "no rank has begun to record" : state.problem;
  std::string out =
      fmt::format("{} of {}, step {}", state.ranks.size(),
                  plural(state.ranks.size() + state.absent.size(), "rank"), state.steps());
  if (state.steps_per_s) {
    // Two digits: 0.024, 3.1, 250.
    const double rate = *state.steps_per_s;
    out += fmt::format(", {} steps/s", fixed(rate, rate < 0.1 ? 3 : rate < 10 ? 1 : 0));
  }
  if (const std::optional<double> loss = state.loss())
    out += fmt::format(", loss {}", fixed(*loss, 3));
  trace::Nanos quiet = trace::kNoTime;
  for (const WatchedRank& r : state.ranks) {
    if (r.quiet != trace::kNoTime && (quiet == trace::kNoTime || r.quiet < quiet)) quiet = r.quiet;
  }
  // A shorter silence is ordinary: ranks compute between their calls.
  constexpr trace::Nanos kQuiet = 1'000'000'000;
  if (quiet >= kQuiet) out += fmt::format(", quiet for {}", seconds_text(quiet));
  return out;
}

std::string watch_screen(const WatchState& state, const ScreenSize& size, const Paint& paint,
                         const WatchView& view) {
  const std::size_t width = std::max(size.width, kMinWidth);
  if (view.help) return with_keys(key_help(paint), size, view, width, paint);
  if (view.detail && view.selected) {
    const auto rank = std::find_if(state.ranks.begin(), state.ranks.end(),
                                   [&](const WatchedRank& r) { return r.rank == *view.selected; });
    if (rank != state.ranks.end())
      return with_keys(rank_detail(state, *rank, width, paint), size, view, width, paint);
  }
  // A single poll (--once) has no duration to show.
  constexpr double kOnePoll = 0.1;
  const std::string watched = state.watched_s < kOnePoll
                                  ? ""
                                  : fmt::format(", watched for {}", duration_text(state.watched_s));
  std::vector<std::string> top = {
      paint.bold(shorten_middle(printable(state.folder), width / 2)),
      shorten_end(fmt::format("  {}{}", progress_text(state), watched), width), ""};
  std::vector<std::string> below = latest(state, width);
  std::vector<std::string> found = findings(state, width, paint);
  if (!found.empty()) {
    if (!below.empty()) below.emplace_back();
    below.insert(below.end(), found.begin(), found.end());
  }
  if (!below.empty()) below.insert(below.begin(), "");
  // The table gets the lines that are left between headline and findings.
  std::size_t room = SIZE_MAX;
  if (size.height > 0) {
    const std::size_t height = std::max<std::size_t>(size.height, 4) - (view.interactive ? 1 : 0);
    top.resize(std::min(top.size(), height));
    below.resize(std::min(below.size(), height - top.size()));
    room = height - top.size() - below.size();
  }
  std::vector<std::string> lines = std::move(top);
  const std::vector<std::string> table = ranks_table(state, view, Widths(width), room, paint);
  lines.insert(lines.end(), table.begin(), table.end());
  lines.insert(lines.end(), below.begin(), below.end());
  return with_keys(std::move(lines), size, view, width, paint);
}

std::vector<std::string> watch_news(const WatchState& before, const WatchState& now,
                                    trace::Nanos late) {
  std::vector<std::string> lines;
  RanksByState happened;
  std::vector<std::string> delays;
  for (const WatchedRank& r : now.ranks) {
    const auto old =
        std::lower_bound(before.ranks.begin(), before.ranks.end(), r.rank,
                         [](const WatchedRank& b, trace::Rank rank) { return b.rank < rank; });
    const bool is_new = old == before.ranks.end() || old->rank != r.rank;
    if (is_new) happened["began"].push_back(r.rank);
    if (is_over(r.doing) && (is_new || old->doing != r.doing)) {
      const std::string end(to_string(r.doing));
      happened[r.doing == Doing::killed ? "gone: killed" : end].push_back(r.rank);
    }
    // Reported once per call, not at every poll.
    const bool was_late = !is_new && old->behind >= late && old->behind_in == r.behind_in;
    if (r.behind >= late && !was_late) {
      delays.push_back(fmt::format("rank {} is {} behind the median in {}", r.rank.value,
                                   duration_text(static_cast<double>(r.behind) / 1e9),
                                   r.behind_in));
    }
  }
  add_lines(happened, lines);
  lines.insert(lines.end(), delays.begin(), delays.end());
  for (const verify::Finding& f : now.findings) {
    const bool known =
        std::any_of(before.findings.begin(), before.findings.end(),
                    [&](const verify::Finding& b) { return b.fingerprint == f.fingerprint; });
    if (known) continue;
    lines.push_back(fmt::format("{} {}: {}", verify::to_string(f.certainty),
                                verify::rule(f.rule).name, f.message));
  }
  // Where no rank has begun, the progress says it.
  if (!now.ranks.empty() && !now.problem.empty() && now.problem != before.problem)
    lines.push_back(now.problem);
  return lines;
}

}  // namespace lockstep::reports
