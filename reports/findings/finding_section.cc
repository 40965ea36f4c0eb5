#include "reports/findings/finding_section.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/tables.h"
#include "base/text.h"
#include "reports/findings/figures/lane_table.h"
#include "reports/findings/figures/lanes.h"
#include "reports/findings/figures/sequence_diff.h"
#include "reports/findings/finding_words.h"
#include "reports/html/markup.h"

namespace lockstep::reports::html {
namespace {

constexpr std::size_t kNamesInSection = 8;  // parameters shown before the fold
constexpr std::size_t kMostNames = 400;
constexpr std::size_t kLocations = 6;
constexpr std::size_t kLong = 180;  // longer messages are too long for a heading
constexpr std::size_t kEvidenceInSection = 200;
constexpr std::size_t kConsequences = 50;

std::string fact(std::string_view key, const std::string& markup) {
  if (markup.empty()) return {};
  return "<dt>" + std::string(key) + "</dt><dd>" + markup + "</dd>\n";
}

std::string name_list(const std::vector<std::string>& names, std::size_t begin, std::size_t end) {
  std::string out;
  for (std::size_t i = begin; i < std::min(end, names.size()); ++i)
    out += "<li>" + code(names[i]) + "</li>";
  if (end < names.size())
    out += "<li class=\"soft\">and " + std::to_string(names.size() - end) + " more</li>";
  return "<ul>" + out + "</ul>";
}

std::string what(const std::vector<std::string>& names) {
  if (names.empty()) return {};
  // A fold around a single name would hide it for nothing.
  if (names.size() <= kNamesInSection + 1) return name_list(names, 0, names.size());
  std::string out;
  for (std::size_t i = 0; i < kNamesInSection; ++i) out += "<li>" + code(names[i]) + "</li>";
  return "<ul>" + out + "</ul>" +
         details(std::to_string(names.size() - kNamesInSection) + " more",
                 name_list(names, kNamesInSection, kMostNames));
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
  for (const std::string& one : also_in_words(finding)) items += "<li>" + text(one) + "</li>";
  return items.empty() ? "" : "<ul>" + items + "</ul>";
}

std::string facts(const verify::Finding& finding) {
  const std::string all = fact("Who", text(who_in_words(finding))) +
                          fact("Where", text(where_in_words(finding))) +
                          fact("Also", also(finding)) + fact("What", what(finding.what)) +
                          fact("Source", sources(finding)) + fact("Why", sentence(finding.why));
  return all.empty() ? "" : "<dl class=\"facts\">\n" + all + "</dl>\n";
}

std::string consequences(const verify::Finding& finding) {
  if (finding.consequences.empty()) return {};
  std::string items;
  const std::size_t shown = std::min(kConsequences, finding.consequences.size());
  for (std::size_t i = 0; i < shown; ++i) {
    const verify::Finding& one = finding.consequences[i];
    items += "<li>" + sentence(one.message) + " " +
             element("span", "soft small", code(verify::rule(one.rule).name)) + "</li>\n";
  }
  if (shown < finding.consequences.size())
    items += "<li class=\"soft\">and " + std::to_string(finding.consequences.size() - shown) +
             " more</li>";
  return "<section><h3>What follows from it</h3>" + element("ul", "so", items) + "</section>\n";
}

std::string evidence(const verify::Finding& finding) {
  const std::vector<FoldedEvidence> folded = fold_evidence(finding.evidence);
  if (folded.empty()) return {};
  std::string rows;
  for (std::size_t i = 0; i < std::min(kEvidenceInSection, folded.size()); ++i) {
    const verify::Evidence& one = *folded[i].one;
    rows += "<tr><td>" + text(rank_label(folded[i].ranks, 30)) + "</td><td class=\"n\">" +
            (one.id && folded[i].ranks.size() == 1 ? std::to_string(*one.id) : "") + "</td><td>" +
            text(one.text) + "</td><td>" + (one.at.empty() ? "" : code(one.at)) + "</td></tr>\n";
  }
  std::string table =
      scroller("evidence",
               "<table><thead><tr><th>ranks</th><th class=\"n\">id</th><th>seen</th>"
               "<th>source</th></tr></thead><tbody>" +
                   rows + "</tbody></table>");
  if (folded.size() > kEvidenceInSection)
    table +=
        element("p", "caption", "and " + plural(folded.size() - kEvidenceInSection, "more row"));
  return details("Evidence", table);
}

}  // namespace

std::string finding_kind(const verify::Finding& finding) {
  return element("p", "kind",
                 element("span", "badge", sentence(verify::to_string(finding.severity))) +
                     code(verify::rule(finding.rule).name) +
                     element("span", "soft small", verify::to_string(finding.certainty)));
}

std::string finding_section(const verify::Finding& finding, const FindingSource& source,
                            const std::string& id) {
  std::string out =
      "<article class=\"card " + std::string(verify::to_string(finding.severity)) + "\" id=\"" +
      id + "\">\n<header>" + finding_kind(finding) +
      element("h2", finding.message.size() > kLong ? "long" : "", sentence(finding.message)) +
      "</header>\n";
  if (!finding.fix.empty() || !finding.next.empty())
    out += "<section class=\"do\"><h3>What to do</h3>" +
           (finding.next.empty() ? "" : "<p>" + code(finding.next) + "</p>") +
           (finding.fix.empty() ? "" : "<p>" + sentence(finding.fix) + "</p>") + "</section>\n";
  out += facts(finding);
  // Notes are about traces, not about calls: nothing to draw.
  if (finding.severity != verify::Severity::note) {
    if (const std::string lanes = lane_figure(finding, source.run, source.matched, id);
        !lanes.empty())
      out += "<section><h3>The calls around it</h3>" + lanes + "</section>\n";
    // For ranks that block each other across groups, the sequence of a single group explains
    // little.
    if (!seen_in_program_order(finding))
      if (const std::optional<SequenceDiff> diff =
              sequence_diff(finding, source.run, source.groups))
        out += diff_table(*diff, source.run);
  }
  return out + consequences(finding) + evidence(finding) + "</article>\n";
}

}  // namespace lockstep::reports::html
