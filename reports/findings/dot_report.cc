// The wait-for graph in Graphviz's language: a box per set of ranks, an arrow per wait.
#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "base/quantities.h"
#include "base/tables.h"
#include "base/text.h"
#include "reports/findings/figures/wait_picture.h"
#include "reports/findings/finding_words.h"
#include "reports/findings/reports.h"

namespace lockstep::reports {
namespace {

constexpr std::size_t kLineWidth = 48;
constexpr std::size_t kNotes = 20;

std::string node_label(const WaitNode& node) {
  const std::string ranks = rank_label(node.ranks, kLineWidth);
  if (node.call.empty()) return fmt::format("{}\n{}", ranks, node.state);
  return fmt::format("{}\n{} in {}\n{}", ranks, node.state,
                     shorten_middle(printable(node.call), kLineWidth),
                     shorten_middle(printable(node.location), kLineWidth));
}

std::string_view edge_style(WaitEdge::Kind kind) {
  switch (kind) {
    case WaitEdge::Kind::missing:
      return "";
    case WaitEdge::Kind::any:
      return " [label=\"any of these\", style=dashed]";
    case WaitEdge::Kind::mismatch:
      return " [label=\"do not fit\", dir=both, color=\"#b42318\", fontcolor=\"#b42318\"]";
    case WaitEdge::Kind::unknown:
      return " [label=\"perhaps\", style=dashed]";
  }
  return "";
}

std::string name_of(char kind, std::size_t index) { return fmt::format("{}{}", kind, index); }

bool concerns(const verify::Finding& finding, const WaitNode& node) {
  return std::any_of(node.ranks.begin(), node.ranks.end(), [&](trace::Rank rank) {
    return std::binary_search(finding.culprits.begin(), finding.culprits.end(), rank);
  });
}

std::string notes(const std::vector<verify::Finding>& findings, const WaitPicture& picture) {
  std::string out;
  std::size_t shown = 0;
  for (const verify::Finding& finding : findings) {
    // Graphs with more notes than kNotes are not readable.
    if (finding.severity == verify::Severity::note || shown == kNotes) continue;
    const std::string name = name_of('f', shown++);
    const std::string text = fmt::format(
        "{} {}\n{}", verify::to_string(finding.severity), verify::rule(finding.rule).name,
        wrap(shorten_end(printable(summary_of(finding)), 4 * kLineWidth), kLineWidth));
    out += fmt::format("  {} [shape=note, style=filled, fillcolor=\"#fff7e6\", label={}];\n", name,
                       dot_string(text));
    for (std::size_t n = 0; n < picture.nodes.size(); ++n)
      if (picture.nodes[n].culprit && concerns(finding, picture.nodes[n]))
        out += fmt::format("  {} -> {} [style=dotted, arrowhead=none, constraint=false];\n", name,
                           name_of('n', n));
  }
  return out;
}

}  // namespace

std::string dot_string(std::string_view lines) {
  std::string out = "\"";
  for (const char c : lines) {
    // In DOT "\n" is a centred line break; only quotes and backslashes need escaping.
    if (c == '\n')
      out += "\\n";
    else if (c == '"' || c == '\\')
      out.append("\\").append(1, c);
    else
      out += c;
  }
  return out.append("\"");
}

std::string dot_report(const FilteredReport& filtered, const trace::Run& run,
                       std::optional<verify::CallSemantics> semantics) {
  const WaitPicture picture = wait_picture(filtered.report, run, semantics);
  std::string title = verdict_in_words(filtered.report);
  if (picture.nodes.empty()) title += "\nno rank waits for another";
  std::string out = fmt::format(
      "digraph waits {{\n  graph [rankdir=LR, fontname=\"Helvetica\", labelloc=t, label={}];\n"
      "  node [shape=box, fontname=\"Helvetica\", fontsize=11];\n"
      "  edge [fontname=\"Helvetica\", fontsize=10];\n",
      dot_string(title));
  for (std::size_t n = 0; n < picture.nodes.size(); ++n) {
    const WaitNode& node = picture.nodes[n];
    out += fmt::format("  {} [label={}{}{}];\n", name_of('n', n), dot_string(node_label(node)),
                       node.culprit ? ", color=\"#b42318\", penwidth=2.5" : "",
                       node.call.empty() ? ", style=rounded" : "");
  }
  for (const WaitEdge& edge : picture.edges)
    out += fmt::format("  {} -> {}{};\n", name_of('n', edge.from), name_of('n', edge.to),
                       edge_style(edge.kind));
  if (picture.edges_left_out > 0)
    out += fmt::format("  // {} more edges\n", grouped(picture.edges_left_out));
  return out.append(notes(filtered.report.findings, picture)).append("}\n");
}

}  // namespace lockstep::reports
