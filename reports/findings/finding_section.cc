#include "reports/findings/finding_section.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "base/tables.h"
#include "base/text.h"
#include "reports/findings/figures/figures.h"
#include "reports/findings/figures/lane_figure.h"
#include "reports/findings/figures/lane_view.h"
#include "reports/findings/finding_words.h"
#include "reports/html/markup.h"
#include "reports/table.h"

namespace lockstep::reports::html {
namespace {

constexpr std::size_t kNamesInSection = 8;  // parameters shown before the fold
constexpr std::size_t kMaxNames = 400;
constexpr std::size_t kLocations = 6;
constexpr std::size_t kLong = 180;  // longer messages are too long for a heading
constexpr std::size_t kEvidenceInSection = 200;
constexpr std::size_t kConsequences = 50;
constexpr std::size_t kStacks = 8;

std::string fact(std::string_view key, const std::string& markup) {
  return markup.empty() ? "" : fmt::format("<dt>{}</dt><dd>{}</dd>\n", key, markup);
}

std::string section(std::string_view title, const std::string& markup) {
  return markup.empty() ? "" : fmt::format("<section><h3>{}</h3>{}</section>\n", title, markup);
}

std::string more(std::size_t count) {
  return fmt::format("<li class=\"soft\">and {} more</li>", count);
}

std::string name_list(const std::vector<std::string>& names, std::size_t begin, std::size_t end) {
  std::string out;
  for (std::size_t i = begin; i < std::min(end, names.size()); ++i)
    out += element("li", "", code(names[i]));
  if (end < names.size()) out += more(names.size() - end);
  return element("ul", "", out);
}

std::string what(const std::vector<std::string>& names) {
  if (names.empty()) return {};
  // Not folded for a single name: the fold takes as much space.
  if (names.size() <= kNamesInSection + 1) return name_list(names, 0, names.size());
  std::string out;
  for (std::size_t i = 0; i < kNamesInSection; ++i) out += element("li", "", code(names[i]));
  return element("ul", "", out) + details(fmt::format("{} more", names.size() - kNamesInSection),
                                          name_list(names, kNamesInSection, kMaxNames));
}

std::string sources(const verify::Finding& finding) {
  std::vector<std::string> locations;
  for (const verify::Evidence& evidence : finding.evidence)
    if (!evidence.at.empty() &&
        std::find(locations.begin(), locations.end(), evidence.at) == locations.end())
      locations.push_back(evidence.at);
  return locations.empty() ? "" : name_list(locations, 0, kLocations);
}

std::string also(const verify::Finding& finding) {
  std::string items;
  for (const std::string& one : also_in_words(finding)) items += element("li", "", text(one));
  return items.empty() ? "" : element("ul", "", items);
}

std::string facts(const verify::Finding& finding) {
  const std::string all = fact("Who", text(who_in_words(finding))) +
                          fact("Where", text(where_in_words(finding))) +
                          fact("Also", also(finding)) + fact("What", what(finding.what)) +
                          fact("Source", sources(finding)) + fact("Why", sentence(finding.why));
  return all.empty() ? "" : fmt::format("<dl class=\"facts\">\n{}</dl>\n", all);
}

std::string consequences(const verify::Finding& finding) {
  if (finding.consequences.empty()) return {};
  std::string items;
  const std::size_t shown = std::min(kConsequences, finding.consequences.size());
  for (std::size_t i = 0; i < shown; ++i) {
    const verify::Finding& one = finding.consequences[i];
    items += fmt::format("<li>{} {}</li>\n", sentence(one.message),
                         element("span", "soft small", code(verify::rule(one.rule).name)));
  }
  if (shown < finding.consequences.size()) items += more(finding.consequences.size() - shown);
  return section("What follows from it", element("ul", "so", items));
}

std::string evidence(const verify::Finding& finding) {
  const std::vector<FoldedEvidence> folded = fold_evidence(finding.evidence);
  if (folded.empty()) return {};
  Table table({{"ranks"}, {"id", Column::number}, {"seen"}, {"source", Column::code}});
  for (std::size_t i = 0; i < std::min(kEvidenceInSection, folded.size()); ++i) {
    const verify::Evidence& one = *folded[i].one;
    // Ids are per rank, so several ranks have none in common.
    const bool numbered = one.id && folded[i].ranks.size() == 1;
    table.add({rank_label(folded[i].ranks, 30), numbered ? fmt::format("{}", *one.id) : "",
               one.text, one.at});
  }
  std::string out = table.html("evidence");
  if (folded.size() > kEvidenceInSection)
    out += element("p", "caption",
                   fmt::format("and {}", plural(folded.size() - kEvidenceInSection, "more row")));
  return details("Evidence", out);
}

// All frames of the calls in the evidence, if the traces recorded them. Ranks with equal frames
// share a stack.
std::string stacks(const verify::Finding& finding, const trace::Run& run) {
  std::map<std::vector<std::string>, std::set<trace::Rank>> ranks;
  std::vector<std::vector<std::string>> order;  // culprits' and nearest first, as the evidence is
  for (const verify::Evidence& one : finding.evidence) {
    const trace::Call* const call = call_of(one, run);
    if (call == nullptr) continue;
    std::vector<std::string> frames = stack_of(*call, run.tables);
    if (frames.empty()) continue;
    if (ranks[frames].insert(one.rank).second && ranks[frames].size() == 1)
      order.push_back(std::move(frames));
  }
  std::string out;
  for (std::size_t i = 0; i < std::min(kStacks, order.size()); ++i) {
    const std::set<trace::Rank>& same = ranks.at(order[i]);
    const std::vector<trace::Rank> sorted(same.begin(), same.end());
    std::string lines;
    for (const std::string& frame : order[i]) lines.append(text(frame)).append("\n");
    out += details(text(fmt::format("Stack of {}", rank_label(sorted, 60))),
                   scroller("stack", element("pre", "", lines)));
  }
  return out;
}

// "Error modality-divergence proven", with its badge.
std::string finding_kind(const verify::Finding& finding) {
  return element("p", "kind",
                 element("span", "badge", sentence(verify::to_string(finding.severity))) +
                     code(verify::rule(finding.rule).name) +
                     element("span", "soft small", verify::to_string(finding.certainty)));
}

}  // namespace

std::string finding_section(const verify::Finding& finding, const FindingSource& source,
                            const std::string& id) {
  const std::string header = fmt::format(
      "<header>{}{}</header>", finding_kind(finding),
      element("h2", finding.message.size() > kLong ? "long" : "", sentence(finding.message)));
  std::string act;
  if (!finding.next.empty()) act += element("p", "", code(finding.next));
  if (!finding.fix.empty()) act += element("p", "", sentence(finding.fix));
  if (!act.empty())
    act = fmt::format("<section class=\"do\"><h3>What to do</h3>{}</section>\n", act);
  std::string pictures;
  // Most notes are about traces rather than calls, so there is nothing to draw.
  if (is_about_calls(finding)) {
    pictures +=
        section("The calls around it", lane_figure(finding, source.run, source.matched, id));
    // For ranks that block each other across groups, the sequence of a single group explains
    // little.
    if (!seen_in_program_order(finding))
      if (const std::optional<SequenceDiff> diff =
              sequence_diff(finding, source.run, source.groups))
        pictures += diff_table(*diff, source.run);
  }
  return fmt::format("<article class=\"card {}\" id=\"{}\">\n{}{}{}{}{}{}{}</article>\n",
                     verify::to_string(finding.severity), id, header, act, pictures, facts(finding),
                     consequences(finding), stacks(finding, source.run), evidence(finding));
}

std::string finding_sections(const verify::Report& report, const FindingSource& source) {
  std::string out;
  for (std::size_t i = 0; i < std::min(kFindingsInFull, report.findings.size()); ++i)
    out += finding_section(report.findings[i], source, finding_id(i));
  return out;
}

std::string finding_sections(const verify::Report& report, const trace::Run& run) {
  std::string out = finding_sections(report, {run, match_calls(run), verify::group_streams(run)});
  if (report.findings.size() > kFindingsInFull)
    out += element(
        "p", "caption",
        text(fmt::format("and {}: --output json=FILE has them all",
                         plural(report.findings.size() - kFindingsInFull, "more finding"))));
  return out;
}

std::string finding_id(std::size_t finding) { return fmt::format("finding-{}", finding + 1); }

}  // namespace lockstep::reports::html
