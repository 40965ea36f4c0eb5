#include "reports/findings/figures/modality_table.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "base/tables.h"
#include "base/text.h"
#include "reports/findings/finding_words.h"
#include "reports/html/markup.h"

namespace lockstep::reports::html {
namespace {

constexpr std::size_t kSteps = 9;
constexpr std::size_t kModalityRows = 12;

// The steps shown: those around `step`, or the last ones.
std::vector<std::int64_t> steps_around(const trace::Run& run, std::optional<std::int64_t> step) {
  std::set<std::int64_t> all;
  for (const trace::RankTrace& trace : run.ranks)
    for (const trace::ModalityMark& mark : trace.modalities) all.insert(mark.n);
  const std::vector<std::int64_t> steps(all.begin(), all.end());
  const auto place = static_cast<std::size_t>(
      step ? std::lower_bound(steps.begin(), steps.end(), *step) - steps.begin()
           : static_cast<std::ptrdiff_t>(steps.size()));
  const std::size_t last = std::min(steps.size(), place + kSteps / 2 + 1);
  const std::size_t first = last - std::min(last, kSteps);
  return {steps.begin() + static_cast<std::ptrdiff_t>(first),
          steps.begin() + static_cast<std::ptrdiff_t>(last)};
}

// By step: what the rank's batch held; nothing recorded: id 0.
using Held = std::vector<trace::NameListId>;

std::map<Held, std::vector<trace::Rank>> ranks_by_held(const trace::Run& run,
                                                       const std::vector<std::int64_t>& steps) {
  std::map<Held, std::vector<trace::Rank>> rows;
  for (const trace::RankTrace& trace : run.ranks) {
    Held held(steps.size());
    for (const trace::ModalityMark& mark : trace.modalities) {
      const auto step = std::lower_bound(steps.begin(), steps.end(), mark.n);
      if (step != steps.end() && *step == mark.n)
        held[static_cast<std::size_t>(step - steps.begin())] = mark.has;
    }
    rows[held].push_back(trace.rank);
  }
  return rows;
}

// A chip for each modality that anybody's batch held in that step.
std::string batch_cell(const trace::Run& run, trace::NameListId held,
                       const std::set<std::string>& somebody_has) {
  if (held.value == 0) return "<span class=\"soft\">not recorded</span>";
  const std::vector<std::string> names = run.tables.names(held);
  std::string out;
  for (const std::string& name : somebody_has) {
    const bool has = std::find(names.begin(), names.end(), name) != names.end();
    out +=
        has ? element("span", "has", text(name)) : element("span", "has lacks", "no " + text(name));
  }
  return out.empty() ? "<span class=\"soft\">nothing</span>" : out;
}

}  // namespace

std::string modality_table(const trace::Run& run, std::optional<std::int64_t> step) {
  const std::vector<std::int64_t> steps = steps_around(run, step);
  if (steps.empty()) return {};
  const auto folded = ranks_by_held(run, steps);
  std::vector<std::set<std::string>> somebody_has(steps.size());
  for (const auto& [held, ranks] : folded)
    for (std::size_t s = 0; s < steps.size(); ++s)
      for (std::string& name : run.tables.names(held[s])) somebody_has[s].insert(std::move(name));

  std::vector<std::pair<std::vector<trace::Rank>, Held>> rows;
  for (const auto& [held, ranks] : folded) rows.emplace_back(ranks, held);
  std::sort(rows.begin(), rows.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string out = "<table><thead><tr><th>ranks</th>";
  for (const std::int64_t n : steps) out += "<th>step " + std::to_string(n) + "</th>";
  out += "</tr></thead><tbody>";
  for (std::size_t r = 0; r < std::min(rows.size(), kModalityRows); ++r) {
    out += "<tr><th>" + text(rank_label(rows[r].first, 24)) + "</th>";
    for (std::size_t s = 0; s < steps.size(); ++s)
      out += std::string(step && steps[s] == *step ? "<td class=\"here\">" : "<td>") +
             batch_cell(run, rows[r].second[s], somebody_has[s]) + "</td>";
    out += "</tr>\n";
  }
  out = scroller("modalities of the batches", out + "</tbody></table>");
  if (rows.size() > kModalityRows)
    out += element("p", "caption",
                   "and " + plural(rows.size() - kModalityRows, "more kind") + " of ranks");
  return out;
}

}  // namespace lockstep::reports::html
