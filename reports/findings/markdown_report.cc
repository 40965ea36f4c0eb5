// The report as Markdown, for the job summaries of CI services. Text from traces is escaped, so
// that no name becomes a heading, a link or a mention.
#include <algorithm>
#include <cstddef>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"
#include "reports/findings/figures/lanes.h"
#include "reports/findings/finding_words.h"
#include "reports/findings/reports.h"
#include "reports/table.h"

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
  return fmt::format("{0}text\n{1}{0}\n", fence, lines);
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
    out_ = fmt::format("## Lockstep: {}\n\n", verify::to_string(report_.verdict));
    if (const verify::Finding* first = headline_of(report_); first != nullptr) {
      out_ += fmt::format("**{}.**\n\n", markdown_text(capital(first->headline)));
      if (!first->next.empty()) out_ += fmt::format("Next: {}\n\n", markdown_code(first->next));
    }
    out_ += fmt::format("{}.\n", markdown_text(capital(verdict_in_words(report_))));
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
    Table table({{"severity"}, {"rule"}, {"certainty"}, {"who"}, {"where"}, {"what happened"}});
    for (std::size_t i = 0; i < std::min(kMarkdownRows, findings.size()); ++i) {
      const verify::Finding& one = findings[i];
      // Without a culprit the column shows all concerned ranks.
      const std::vector<trace::Rank>& who = one.culprits.empty() ? one.ranks : one.culprits;
      table.add({std::string(verify::to_string(one.severity)),
                 std::string(verify::rule(one.rule).name),
                 std::string(verify::to_string(one.certainty)),
                 who.empty() ? "" : rank_label(who, 30), where_in_words(one), one.message});
    }
    out_ += fmt::format("\n{}", table.markdown());
    if (findings.size() > kMarkdownRows)
      out_ += fmt::format("\nand {}.\n", plural(findings.size() - kMarkdownRows, "more finding"));
  }

  void item(std::string_view key, const std::string& markdown) {
    if (!markdown.empty()) out_ += fmt::format("- **{}:** {}\n", key, markdown);
  }

  void first(const verify::Finding& finding) {
    out_ += fmt::format("\n### {}: `{}`\n\n{}\n", capital(verify::to_string(finding.severity)),
                        verify::rule(finding.rule).name, markdown_text(finding.message));
    if (const std::string picture = lanes(finding, run_, {.width = 80, .indent = 0, .paint = {}});
        !picture.empty())
      out_ += fmt::format("\n{}", code_block(picture));
    out_ += "\n";
    item("who", markdown_text(who_in_words(finding)));
    item("where", markdown_text(where_in_words(finding)));
    std::string also;
    for (const std::string& one : also_in_words(finding))
      also.append(also.empty() ? "" : "; ").append(markdown_text(one));
    item("also", also);
    std::string names;
    for (std::size_t i = 0; i < std::min(kMarkdownNames, finding.what.size()); ++i)
      names.append(i == 0 ? "" : ", ").append(markdown_code(finding.what[i]));
    if (finding.what.size() > kMarkdownNames)
      names += fmt::format(" and {} more", finding.what.size() - kMarkdownNames);
    item("what", names);
    item("why", markdown_text(finding.why));
    for (const verify::Finding& consequence : finding.consequences)
      item("so", fmt::format("{} (`{}`)", markdown_text(consequence.message),
                             verify::rule(consequence.rule).name));
    item("next", finding.next.empty() ? "" : markdown_code(finding.next));
    item("what to do", markdown_text(finding.fix));
    evidence(finding);
  }

  void evidence(const verify::Finding& finding) {
    if (finding.evidence.empty()) return;
    begin_details("Evidence");
    for (std::size_t i = 0; i < std::min(kMarkdownEvidence, finding.evidence.size()); ++i) {
      const verify::Evidence& one = finding.evidence[i];
      if (one.sentence) {
        out_ += fmt::format("- {}\n", markdown_text(one.text));
        continue;
      }
      out_ += fmt::format("- rank {}", one.rank.value);
      if (!one.at.empty()) out_ += fmt::format(" at {}", markdown_code(one.at));
      if (one.id) out_ += fmt::format(" (id {})", *one.id);
      out_ += fmt::format(": {}\n", markdown_text(one.text));
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
    begin_details(fmt::format("{} ({})", title, lines.size()));
    for (std::size_t i = 0; i < std::min(kListedInMarkdown, lines.size()); ++i)
      out_ += fmt::format("- {}\n", markdown_text(lines[i]));
    end_details(lines.size(), kListedInMarkdown);
  }

  // The blank line after the tag switches back to Markdown.
  void begin_details(const std::string& title) {
    out_ += fmt::format("\n<details><summary>{}</summary>\n\n", title);
  }

  void end_details(std::size_t count, std::size_t most) {
    if (count > most) out_ += fmt::format("- and {} more\n", count - most);
    out_ += "\n</details>\n";
  }

  const FilteredReport& filtered_;
  const verify::Report& report_;
  const trace::Run& run_;
  std::string out_;
};

bool is_word(char c) {
  return is_letter(c) || is_digit(c) || static_cast<unsigned char>(c) >= 0x80;
}

// Whether text[i] means nothing to CommonMark, HTML and GitHub where it stands. What is not listed
// here has a meaning somewhere.
bool is_plain(std::string_view text, std::size_t i) {
  const char c = text[i];
  if (is_word(c) || std::string_view(" ,;/'\"()%?!").find(c) != kNpos) return true;
  const std::string_view before = text.substr(0, i);
  const std::string_view after = text.substr(i + 1);
  switch (c) {
    case '_':  // emphasis at a word's edge only: all_reduce, but not _this_
      return !before.empty() && !after.empty() && is_word(before.back()) && is_word(after.front());
    case '.': {  // "www." makes a link, "1." a list
      const bool www =
          before.size() >= 3 && (before.substr(i - 3) == "www" || before.substr(i - 3) == "WWW");
      return !www && !std::all_of(before.begin(), before.end(), is_digit);
    }
    case ':':  // "https://" makes a link, ":tada:" a picture, and so do these two numbers
      if (after.starts_with("100:") || after.starts_with("1234:")) return false;
      return after.empty() || after.front() == ' ' || is_digit(after.front());
    case '-':  // a list, a heading
    case '+':
    case '=':
    case '[':  // a task, or what a link refers to
      return !before.empty() && (c != '[' || after.empty() || after.front() != '^');
    case ']':
      return after.empty() || std::string_view("([:").find(after.front()) == kNpos;
    default:
      return false;
  }
}

}  // namespace

// A character reference is text, never structure, to CommonMark and to HTML. It is used only where
// the character would have a meaning, so that the source can be read as well. GitHub looks for
// "@name" and "#1" in the rendered text, so a zero-width space keeps them from becoming mentions.
std::string markdown_text(std::string_view text) {
  const std::string safe = printable(text);
  std::string out;
  for (std::size_t i = 0; i < safe.size(); ++i) {
    if (is_plain(safe, i))
      out += safe[i];
    else if (safe[i] == '<')
      out += "&lt;";
    else if (safe[i] == '>')
      out += "&gt;";
    else
      out += fmt::format("&#{};", static_cast<int>(safe[i]));
    if (safe[i] == '@' || safe[i] == '#') out += "&#8203;";
  }
  return out;
}

std::string markdown_code(std::string_view text) {
  return fmt::format("<code>{}</code>", markdown_text(text));
}

std::string markdown_report(const FilteredReport& filtered, const trace::Run& run) {
  return MarkdownWriter(filtered, run).str();
}

}  // namespace lockstep::reports
