#include "reports/live/watch_news.h"

#include <algorithm>
#include <map>

#include "base/columns.h"
#include "base/text.h"
#include "reports/findings/finding_words.h"
#include "reports/live/watch_screen.h"
#include "verify/rules.h"

namespace lockstep {

namespace {

using Doing = WatchedRank::Doing;

bool is_over(Doing doing) {
  return doing == Doing::ended || doing == Doing::raised || doing == Doing::hung ||
         doing == Doing::killed;
}

// Ranks to which the same happened are one line.
using RanksByWords = std::map<std::string, std::vector<Rank>>;

void add_lines(const RanksByWords& what, std::vector<std::string>& lines) {
  for (const auto& [words, ranks] : what) lines.push_back(rank_label(ranks, 40) + " " + words);
}

}  // namespace

std::vector<std::string> watch_news(const WatchState& before, const WatchState& now, Nanos late) {
  std::vector<std::string> lines;
  RanksByWords happened;
  std::vector<std::string> delays;
  for (const WatchedRank& r : now.ranks) {
    const auto old =
        std::lower_bound(before.ranks.begin(), before.ranks.end(), r.rank,
                         [](const WatchedRank& b, Rank rank) { return b.rank < rank; });
    const bool is_new = old == before.ranks.end() || old->rank != r.rank;
    if (is_new) happened["began"].push_back(r.rank);
    if (is_over(r.doing) && (is_new || old->doing != r.doing)) {
      const std::string words(to_string(r.doing));
      happened[r.doing == Doing::killed ? "gone: killed" : words].push_back(r.rank);
    }
    const bool was_late = !is_new && old->behind >= late && old->behind_in == r.behind_in;
    if (r.behind >= late && !was_late) {
      delays.push_back("rank " + std::to_string(r.rank.value) + " is " +
                       duration_words(static_cast<double>(r.behind) / 1e9) +
                       " behind the median in " + r.behind_in);
    }
  }
  add_lines(happened, lines);
  lines.insert(lines.end(), delays.begin(), delays.end());
  for (const Finding& f : now.findings) {
    const bool known =
        std::any_of(before.findings.begin(), before.findings.end(),
                    [&](const Finding& b) { return b.fingerprint == f.fingerprint; });
    if (known) continue;
    lines.push_back(std::string(to_string(f.certainty)) + " " + std::string(rule(f.rule).name) +
                    ": " + f.message);
  }
  if (!now.problem.empty() && now.problem != before.problem) lines.push_back(now.problem);
  return lines;
}

}  // namespace lockstep
