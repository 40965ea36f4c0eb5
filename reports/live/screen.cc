#include "reports/live/screen.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

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
constexpr std::size_t kFindingsShown = 3;

// Ranks in the same situation.
struct RanksRow {
  std::vector<trace::Rank> ranks;
  const WatchedRank* one = nullptr;  // the latest of them
  bool waited_for = false;
};

std::vector<RanksRow> rows_of(const WatchState& state) {
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
    if (rows.empty() || key(*rows.back().one) != key(*r)) rows.emplace_back().one = r;
    RanksRow& row = rows.back();
    row.ranks.push_back(r->rank);
    if (r->behind > row.one->behind) row.one = r;
    row.waited_for |= std::binary_search(waited_for.begin(), waited_for.end(), r->rank);
  }
  // Rows that others wait for first, ended ones last: a short screen cuts from the end.
  std::stable_sort(rows.begin(), rows.end(), [](const RanksRow& a, const RanksRow& b) {
    const auto calm = [](const RanksRow& row) { return row.one->doing == Doing::ended; };
    return std::tuple(!a.waited_for, calm(a), a.ranks.front()) <
           std::tuple(!b.waited_for, calm(b), b.ranks.front());
  });
  return rows;
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
  std::size_t ranks, call, waits_for;

  explicit Widths(std::size_t width) {
    const std::size_t left = width - kStepWidth - kDoingWidth - kBehindWidth;
    ranks = std::clamp<std::size_t>(left / 4, 10, 24);
    waits_for = std::clamp<std::size_t>(left / 6, 4, 20);
    call = left - ranks - waits_for;
  }
};

std::string row_line(const RanksRow& row, const Widths& widths, const Paint& paint) {
  const WatchedRank& r = *row.one;
  std::string call = r.call;
  // Group and sequence number are appended if there is room.
  const std::string suffix = " " + r.group + " " + std::to_string(r.seq);
  if (!call.empty() && columns_of(call + suffix) < widths.call) call += suffix;
  std::string line = cell(rank_label(row.ranks, widths.ranks - 1), widths.ranks) +
                     pad_right(std::to_string(r.steps), kStepWidth);
  line += painted(paint, r.doing, std::string(to_string(r.doing)));
  line.append(kDoingWidth - to_string(r.doing).size(), ' ');
  line += cell(call, widths.call);
  line += cell(r.waits_for.empty() ? "" : rank_label(r.waits_for, widths.waits_for - 1),
               widths.waits_for);
  if (r.behind >= kShownDelay)
    line += duration_text(static_cast<double>(r.behind) / kNanosPerSecond);
  return without_trailing_blanks(std::move(line));
}

std::vector<std::string> ranks_table(const WatchState& state, const Widths& widths,
                                     std::size_t most, const Paint& paint) {
  const std::vector<RanksRow> rows = rows_of(state);
  std::vector<std::string> out;
  if (rows.empty() || most < 2) return out;
  out.push_back(paint.dim(
      without_trailing_blanks(pad_right("rank", widths.ranks) + pad_right("step", kStepWidth) +
                              pad_right("doing", kDoingWidth) + pad_right("call", widths.call) +
                              pad_right("for", widths.waits_for) + "behind")));
  const bool cut = rows.size() + 1 > most;
  // Two lines are needed for the head and for "and 3 rows more".
  const std::size_t shown = cut ? most - 2 : rows.size();
  for (std::size_t i = 0; i < shown; ++i) out.push_back(row_line(rows[i], widths, paint));
  if (cut) out.push_back("  and " + plural(rows.size() - shown, "row") + " more");
  return out;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  std::size_t begin = 0;
  for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
    out.push_back(text.substr(begin, end - begin));
  if (begin < text.size()) out.push_back(text.substr(begin));
  return out;
}

// Indents by two blanks; lines after the first by `indent`.
void add_indented(std::vector<std::string>& out, const std::string& text, std::size_t width,
                  std::size_t indent) {
  for (const std::string& line : lines_of("  " + wrap(text, width - 2, indent)))
    out.push_back(line);
}

std::vector<std::string> findings(const WatchState& state, std::size_t width, const Paint& paint) {
  std::vector<std::string> out;
  const std::size_t shown = std::min(state.findings.size(), kFindingsShown);
  for (std::size_t i = 0; i < shown; ++i) {
    const verify::Finding& f = state.findings[i];
    const std::string head =
        std::string(verify::to_string(f.certainty)) + " " + std::string(verify::rule(f.rule).name);
    out.push_back(f.severity == verify::Severity::error ? paint.red(head) : paint.yellow(head));
    add_indented(out, f.message, width, 2);
    if (!f.fix.empty()) add_indented(out, "fix: " + f.fix, width, 7);
  }
  if (state.findings.size() > shown)
    out.push_back("  and " + plural(state.findings.size() - shown, "finding") + " more");
  return out;
}

// The latest rank with its call: the table has room for the time only.
std::vector<std::string> latest(const WatchState& state, std::size_t width) {
  const auto late = std::max_element(
      state.ranks.begin(), state.ranks.end(),
      [](const WatchedRank& a, const WatchedRank& b) { return a.behind < b.behind; });
  if (late == state.ranks.end() || late->behind < kShownDelay) return {};
  return lines_of(wrap("latest: rank " + std::to_string(late->rank.value) + ", " +
                           duration_text(static_cast<double>(late->behind) / kNanosPerSecond) +
                           " behind the median in " + late->behind_in,
                       width, 2));
}

}  // namespace

std::string duration_text(double seconds) {
  if (seconds < 0.1) return fixed(seconds * 1000, 0) + " ms";
  if (seconds < 10) return fixed(seconds, 1) + " s";
  if (seconds < 60) return fixed(seconds, 0) + " s";
  const auto whole = static_cast<std::int64_t>(seconds);
  if (whole < 3600) return std::to_string(whole / 60) + " min " + std::to_string(whole % 60) + " s";
  return std::to_string(whole / 3600) + " h " + std::to_string(whole / 60 % 60) + " min";
}

std::string progress_text(const WatchState& state) {
  if (state.ranks.empty())
    return state.problem.empty() ? "no rank has begun to record" : state.problem;
  std::string out = std::to_string(state.ranks.size()) + " of " +
                    plural(state.ranks.size() + state.absent.size(), "rank") + ", step " +
                    std::to_string(state.steps());
  trace::Nanos quiet = trace::kNoTime;
  for (const WatchedRank& r : state.ranks) {
    if (r.quiet != trace::kNoTime && (quiet == trace::kNoTime || r.quiet < quiet)) quiet = r.quiet;
  }
  constexpr trace::Nanos kQuiet = 1'000'000'000;
  if (quiet >= kQuiet)
    out += ", quiet for " + duration_text(static_cast<double>(quiet) / kNanosPerSecond);
  return out;
}

std::string watch_screen(const WatchState& state, const ScreenSize& size, const Paint& paint) {
  const std::size_t width = std::max(size.width, kLeastWidth);
  std::vector<std::string> top = {
      paint.bold(shorten_middle(printable(state.folder), width / 2)),
      shorten_end("  " + progress_text(state) + ", watched for " + duration_text(state.watched_s),
                  width),
      ""};
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
    const std::size_t height = std::max<std::size_t>(size.height, 4);
    top.resize(std::min(top.size(), height));
    below.resize(std::min(below.size(), height - top.size()));
    room = height - top.size() - below.size();
  }
  std::string out;
  for (const std::string& line : top) out += line + "\n";
  for (const std::string& line : ranks_table(state, Widths(width), room, paint)) out += line + "\n";
  for (const std::string& line : below) out += line + "\n";
  return out;
}

namespace {

using Doing = WatchedRank::Doing;

bool is_over(Doing doing) {
  return doing == Doing::ended || doing == Doing::raised || doing == Doing::hung ||
         doing == Doing::killed;
}

// Ranks to which the same happened share a line.
using RanksByState = std::map<std::string, std::vector<trace::Rank>>;

void add_lines(const RanksByState& what, std::vector<std::string>& lines) {
  for (const auto& [words, ranks] : what) lines.push_back(rank_label(ranks, 40) + " " + words);
}

}  // namespace

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
      const std::string words(to_string(r.doing));
      happened[r.doing == Doing::killed ? "gone: killed" : words].push_back(r.rank);
    }
    // Reported once per call, not at every look.
    const bool was_late = !is_new && old->behind >= late && old->behind_in == r.behind_in;
    if (r.behind >= late && !was_late) {
      delays.push_back("rank " + std::to_string(r.rank.value) + " is " +
                       duration_text(static_cast<double>(r.behind) / 1e9) +
                       " behind the median in " + r.behind_in);
    }
  }
  add_lines(happened, lines);
  lines.insert(lines.end(), delays.begin(), delays.end());
  for (const verify::Finding& f : now.findings) {
    const bool known =
        std::any_of(before.findings.begin(), before.findings.end(),
                    [&](const verify::Finding& b) { return b.fingerprint == f.fingerprint; });
    if (known) continue;
    lines.push_back(std::string(verify::to_string(f.certainty)) + " " +
                    std::string(verify::rule(f.rule).name) + ": " + f.message);
  }
  if (!now.problem.empty() && now.problem != before.problem) lines.push_back(now.problem);
  return lines;
}

}  // namespace lockstep::reports
