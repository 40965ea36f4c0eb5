#include "reports/findings/markdown_report.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/tables.h"
#include "base/text.h"
#include "reports/findings/figures/lanes.h"
#include "reports/findings/finding_words.h"

namespace lockstep::reports {
namespace {

constexpr std::size_t kMarkdownRows = 50;   // of the table; GitHub limits a job summary to 1 MiB
constexpr std::size_t kMarkdownNames = 25;  // parameters
constexpr std::size_t kMarkdownEvidence = 50;
constexpr std::size_t kListedInMarkdown = 50;

// `lines` as a code block, whose fence is longer than any run of backticks in it.
std::string code_block(const std::string& lines) {
  // A fence has at least three backticks.
  std::size_t longest = 2;
  std::size_t run = 0;
  for (const char c : lines) {
    run = c == '`' ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  const std::string fence(longest + 1, '`');
  return fence + "text\n" + lines + fence + "\n";
}

std::string capital(std::string_view text) {
  std::string out(text);
  if (!out.empty() && out[0] >= 'a' && out[0] <= 'z') out[0] = static_cast<char>(out[0] - 32);
  return out;
}

class MarkdownWriter {
 public:
  MarkdownWriter(const FilteredReport& filtered, const trace::Run& run)
      : filtered_(filtered), report_(filtered.report), run_(run) {}

  std::string str() {
    out_ = "## Lockstep: " + std::string(verify::to_string(report_.verdict)) + "\n\n" +
           markdown_text(capital(verdict_in_words(report_))) + ".\n";
    if (const verify::Finding* first = headline_of(report_);
        first != nullptr && first->message != first->headline)
      out_ += "\n" + markdown_text(capital(first->headline)) + ".\n";
    table();
    if (!report_.findings.empty()) first(report_.findings.front());
    set_aside();
    listed("Not known from these traces", report_.unknown);
    listed("About the filter", filtered_.notes);
    return std::move(out_);
  }

 private:
  void table() {
    const std::vector<verify::Finding>& findings = report_.findings;
    if (findings.empty()) return;
    out_ +=
        "\n| severity | rule | certainty | who | where | what happened "
        "|\n|---|---|---|---|---|---|\n";
    for (std::size_t i = 0; i < std::min(kMarkdownRows, findings.size()); ++i) {
      const verify::Finding& one = findings[i];
      // Without a culprit the column shows all concerned ranks.
      const std::vector<trace::Rank>& who = one.culprits.empty() ? one.ranks : one.culprits;
      out_ += "| " + std::string(verify::to_string(one.severity)) + " | `" +
              std::string(verify::rule(one.rule).name) + "` | " +
              std::string(verify::to_string(one.certainty)) + " | " +
              (who.empty() ? "" : rank_label(who, 30)) + " | " +
              markdown_text(where_in_words(one)) + " | " + markdown_text(one.message) + " |\n";
    }
    if (findings.size() > kMarkdownRows)
      out_ += "\nand " + plural(findings.size() - kMarkdownRows, "more finding") + ".\n";
  }

  void item(std::string_view key, const std::string& markdown) {
    if (!markdown.empty()) out_ += "- **" + std::string(key) + ":** " + markdown + "\n";
  }

  void first(const verify::Finding& finding) {
    out_ += "\n### " + capital(verify::to_string(finding.severity)) + ": `" +
            std::string(verify::rule(finding.rule).name) + "`\n\n" +
            markdown_text(finding.message) + "\n";
    if (const std::string picture = lanes(finding, run_, {.width = 80, .indent = 0, .paint = {}});
        !picture.empty())
      out_ += "\n" + code_block(picture);
    out_ += "\n";
    item("who", markdown_text(who_in_words(finding)));
    item("where", markdown_text(where_in_words(finding)));
    std::string also;
    for (const std::string& one : also_in_words(finding))
      also += (also.empty() ? "" : "; ") + markdown_text(one);
    item("also", also);
    std::string names;
    for (std::size_t i = 0; i < std::min(kMarkdownNames, finding.what.size()); ++i)
      names += (i == 0 ? "" : ", ") + markdown_code(finding.what[i]);
    if (finding.what.size() > kMarkdownNames)
      names += " and " + std::to_string(finding.what.size() - kMarkdownNames) + " more";
    item("what", names);
    item("why", markdown_text(finding.why));
    for (const verify::Finding& consequence : finding.consequences)
      item("so", markdown_text(consequence.message) + " (`" +
                     std::string(verify::rule(consequence.rule).name) + "`)");
    item("next", finding.next.empty() ? "" : markdown_code(finding.next));
    item("what to do", markdown_text(finding.fix));
    evidence(finding);
  }

  void evidence(const verify::Finding& finding) {
    if (finding.evidence.empty()) return;
    begin_details("Evidence");
    for (std::size_t i = 0; i < std::min(kMarkdownEvidence, finding.evidence.size()); ++i) {
      const verify::Evidence& one = finding.evidence[i];
      out_ += "- rank " + std::to_string(one.rank.value);
      if (!one.at.empty()) out_ += " at " + markdown_code(one.at);
      if (one.id) out_ += " (id " + std::to_string(*one.id) + ")";
      out_ += ": " + markdown_text(one.text) + "\n";
    }
    end_details(finding.evidence.size(), kMarkdownEvidence);
  }

  void set_aside() {
    std::vector<std::string> lines;
    for (const SetAside& one : filtered_.set_aside) lines.push_back(set_aside_in_words(one));
    listed("Found, but set aside", lines);
  }

  void listed(std::string_view title, const std::vector<std::string>& lines) {
    if (lines.empty()) return;
    begin_details(std::string(title) + " (" + std::to_string(lines.size()) + ")");
    for (std::size_t i = 0; i < std::min(kListedInMarkdown, lines.size()); ++i)
      out_ += "- " + markdown_text(lines[i]) + "\n";
    end_details(lines.size(), kListedInMarkdown);
  }

  // The blank line after the tag switches back to Markdown.
  void begin_details(const std::string& title) {
    out_ += "\n<details><summary>" + title + "</summary>\n\n";
  }

  void end_details(std::size_t count, std::size_t most) {
    if (count > most) out_ += "- and " + std::to_string(count - most) + " more\n";
    out_ += "\n</details>\n";
  }

  const FilteredReport& filtered_;
  const verify::Report& report_;
  const trace::Run& run_;
  std::string out_;
};

}  // namespace

// A character reference is text, never structure, to CommonMark and to HTML. "." and ":" are
// escaped as well, since "www." and "https:" alone make links in GitHub's Markdown. GitHub looks
// for "@name" and "#1" in the rendered text, so a zero-width space keeps them from becoming
// mentions.
std::string markdown_text(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       static_cast<unsigned char>(c) >= 0x80 ||
                       std::string_view(" ,;/'").find(c) != std::string_view::npos;
    if (plain)
      out += c;
    else
      out += "&#" + std::to_string(static_cast<int>(c)) + ";";
    if (c == '@' || c == '#') out += "&#8203;";
  }
  return out;
}

std::string markdown_code(std::string_view text) {
  return "<code>" + markdown_text(text) + "</code>";
}

std::string markdown_report(const FilteredReport& filtered, const trace::Run& run) {
  return MarkdownWriter(filtered, run).str();
}

}  // namespace lockstep::reports
