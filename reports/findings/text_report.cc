#include "reports/findings/text_report.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/tables.h"
#include "base/terminal.h"
#include "base/text.h"
#include "reports/findings/figures/lanes.h"
#include "reports/findings/finding_words.h"

namespace lockstep::reports {
namespace {

constexpr std::size_t kNamesShown = 4;
constexpr std::size_t kAlsoShown = 8;
constexpr std::size_t kEvidenceShown = 4;
constexpr std::size_t kConsequencesShown = 3;
constexpr std::size_t kConsequenceLines = 3;  // about, of each
constexpr std::size_t kUnknownShown = 8;
constexpr std::size_t kSetAsideShown = 8;
constexpr std::size_t kIndent = 2;
constexpr std::size_t kKey = 7;  // width of "where  "

std::string count_of(const verify::Report& report, verify::Severity severity) {
  const auto n = static_cast<std::uint64_t>(
      std::count_if(report.findings.begin(), report.findings.end(),
                    [&](const verify::Finding& finding) { return finding.severity == severity; }));
  return n == 0 ? "" : plural(n, verify::to_string(severity));
}

class TextReportWriter {
 public:
  TextReportWriter(const FilteredReport& filtered, const trace::Run& run,
                   const TextOptions& options)
      : filtered_(filtered),
        report_(filtered.report),
        run_(run),
        options_(options),
        paint_{options.color} {}

  std::string str() {
    headline();
    verdict();
    std::size_t shown = 0;
    std::size_t left_out = 0;
    for (const verify::Finding& finding : report_.findings) {
      if (finding.severity == verify::Severity::note) {
        note(finding);
        // Findings are sorted, worst first: the first ones are shown in full. Notes are short and
        // always shown.
      } else if (shown < options_.max_findings) {
        ++shown;
        full(finding);
      } else {
        ++left_out;
      }
    }
    if (left_out > 0)
      out_ += "\nand " + plural(left_out, "more finding") + "; --output json=PATH has them all\n";
    set_aside();
    listed("not known from these traces", report_.unknown, kUnknownShown);
    listed("about the filter", filtered_.notes, kUnknownShown);
    return std::move(out_);
  }

 private:
  // Who stopped, where, and what to run next: above everything else.
  void headline() {
    const verify::Finding* const first = headline_of(report_);
    if (first == nullptr) return;
    out_ += paint_.bold(wrap(printable(first->headline), options_.width)) + "\n";
    // Not wrapped: to be copied.
    if (!first->next.empty()) out_ += "  next: " + printable(first->next) + "\n";
    out_ += "\n";
  }

  void verdict() {
    std::string line;
    const std::string size =
        plural(report_.ranks_read.size(), "rank") + ", " + grouped(report_.events) + " events";
    switch (report_.verdict) {
      case verify::Verdict::clean:
        line = paint_.green("CLEAN") + ": nothing " +
               (filtered_.set_aside.empty() ? "wrong" : "else wrong") + " in " + size;
        break;
      case verify::Verdict::findings:
        line = paint_.red("FINDINGS") + ": " + counts() + " in " + size;
        break;
      case verify::Verdict::inconclusive:
        line =
            paint_.yellow("INCONCLUSIVE") + ": no error seen in " + size + ", but not all is known";
        break;
    }
    out_ += line + "\n";
    if (!report_.ranks_missing.empty())
      paragraph("no trace of " + rank_label(report_.ranks_missing, 40) + ": " +
                std::to_string(report_.ranks_read.size()) + " of " +
                std::to_string(report_.ranks_expected) + " ranks were read");
    if (!report_.ranks_damaged.empty())
      paragraph("damaged trace of " + rank_label(report_.ranks_damaged, 40));
    if (!report_.sources.empty()) paragraph(report_.sources);
  }

  std::string counts() const {
    std::vector<std::string> parts;
    for (const verify::Severity severity :
         {verify::Severity::error, verify::Severity::warning, verify::Severity::note})
      if (const std::string count = count_of(report_, severity); !count.empty())
        parts.push_back(count);
    return join_and(parts);
  }

  std::string title(const verify::Finding& finding) const {
    std::string severity(verify::to_string(finding.severity));
    std::transform(severity.begin(), severity.end(), severity.begin(),
                   [](char c) { return static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c); });
    const std::string name(verify::rule(finding.rule).name);
    const std::string colored = finding.severity == verify::Severity::error ? paint_.red(severity)
                                : finding.severity == verify::Severity::warning
                                    ? paint_.yellow(severity)
                                    : severity;
    std::string out = colored + " " + paint_.bold(name);
    // Notes (a damaged file) need no certainty.
    if (finding.severity != verify::Severity::note)
      out += " (" + std::string(verify::to_string(finding.certainty)) + ")";
    return out;
  }

  void full(const verify::Finding& finding) {
    out_ += "\n" + title(finding) + "\n";
    paragraph(finding.message);
    if (const std::string picture =
            lanes(finding, run_, {.width = options_.width, .indent = kIndent, .paint = paint_});
        !picture.empty())
      out_ += "\n" + picture;
    out_ += "\n";
    who(finding);
    what(finding);
    where(finding);
    keyed("why", printable(finding.why));
    evidence(finding);
    consequences(finding);
    keyed("do", printable(finding.fix));
  }

  void note(const verify::Finding& finding) {
    out_ += "\n" + title(finding) + "\n";
    paragraph(finding.message);
    waiting(finding);
    keyed("do", printable(finding.fix));
  }

  // `text`, wrapped; each line after the first starts with `indent` blanks.
  std::string block(const std::string& text, std::size_t indent) const {
    std::string out;
    for (const char c : wrap(text, options_.width - indent)) {
      out += c;
      if (c == '\n') out.append(indent, ' ');
    }
    return out;
  }

  void paragraph(const std::string& text) {
    out_ += std::string(kIndent, ' ') + block(printable(text), kIndent) + "\n";
  }

  // "  key    text"; nothing for an empty text. An empty key continues the one above.
  void keyed(std::string_view key, const std::string& text) {
    if (text.empty()) return;
    out_ += std::string(kIndent, ' ') + paint_.bold(pad_right(key, kKey)) +
            block(text, kIndent + kKey) + "\n";
  }

  void who(const verify::Finding& finding) {
    const std::size_t width = options_.width - kIndent - kKey;
    std::vector<trace::Rank> others;
    std::set_difference(finding.ranks.begin(), finding.ranks.end(), finding.culprits.begin(),
                        finding.culprits.end(), std::back_inserter(others));
    std::string text;
    if (!finding.culprits.empty()) text = rank_label(finding.culprits, width / 2);
    if (finding.culprits.empty() && !finding.ranks.empty())
      text = rank_label(finding.ranks, width / 2) + "; none can be singled out";
    else if (!others.empty())
      text += (text.empty() ? "" : "; concerns ") + rank_label(others, width / 2) + " too";
    keyed("who", text);
    waiting(finding);
    const std::vector<std::string> also = also_in_words(finding);
    for (std::size_t i = 0; i < also.size(); ++i) {
      if (i == kAlsoShown && also.size() > kAlsoShown + 1) {
        keyed("", "and in " + std::to_string(also.size() - i) + " more groups");
        break;
      }
      keyed(i == 0 ? "also" : "", printable(also[i]));
    }
  }

  void waiting(const verify::Finding& finding) {
    if (finding.waiting.empty()) return;
    keyed("waits", rank_label(finding.waiting, options_.width / 2) + " directly");
  }

  void what(const verify::Finding& finding) {
    std::string text;
    for (std::size_t i = 0; i < std::min(kNamesShown, finding.what.size()); ++i)
      text += (i == 0 ? "" : ", ") +
              shorten_middle(printable(finding.what[i]), options_.width - kIndent - kKey - 2);
    if (finding.what.size() > kNamesShown)
      text += " and " + std::to_string(finding.what.size() - kNamesShown) + " more";
    keyed("what", text);
  }

  void where(const verify::Finding& finding) {
    std::vector<std::string> parts;
    if (finding.step) parts.push_back("step " + std::to_string(*finding.step));
    if (!finding.group.empty()) {
      std::string location = printable(group_in_words(finding));
      if (finding.seq) location += ", seq " + std::to_string(number_of(finding));
      parts.push_back(location);
    }
    std::vector<std::string> locations;
    for (const verify::Evidence& evidence : finding.evidence) {
      const std::string at = printable(evidence.at);
      if (!at.empty() && std::find(locations.begin(), locations.end(), at) == locations.end())
        locations.push_back(at);
    }
    if (!locations.empty()) parts.push_back(join_and(locations, 2));
    std::string text;
    for (const std::string& part : parts) text += (text.empty() ? "" : "; ") + part;
    keyed("where", text);
  }

  void evidence(const verify::Finding& finding) {
    const std::vector<FoldedEvidence> folded = fold_evidence(finding.evidence);
    for (std::size_t i = 0; i < folded.size(); ++i) {
      // "and 1 more" would take the line that the evidence itself needs.
      if (i == kEvidenceShown && folded.size() > kEvidenceShown + 1) {
        keyed("", "and " + std::to_string(folded.size() - i) + " more like these");
        break;
      }
      const verify::Evidence& one = *folded[i].one;
      std::string text = rank_label(folded[i].ranks, 30);
      if (!one.at.empty()) text += " at " + printable(one.at);
      // Ids are per rank: for several ranks there is none to show.
      if (one.id && folded[i].ranks.size() == 1) text += " (id " + std::to_string(*one.id) + ")";
      keyed(i == 0 ? "seen" : "", text + ": " + printable(one.text));
    }
  }

  void consequences(const verify::Finding& finding) {
    for (std::size_t i = 0; i < finding.consequences.size(); ++i) {
      if (i == kConsequencesShown && finding.consequences.size() > kConsequencesShown + 1) {
        keyed("", "and " + std::to_string(finding.consequences.size() - i) + " more like these");
        break;
      }
      const verify::Finding& one = finding.consequences[i];
      const std::size_t room = kConsequenceLines * (options_.width - kIndent - kKey);
      const std::string rule_name = " (" + std::string(verify::rule(one.rule).name) + ")";
      keyed(i == 0 ? "so" : "",
            shorten_end(printable(one.message), room - rule_name.size()) + rule_name);
    }
  }

  // Findings that do not count, and why.
  void set_aside() {
    std::vector<std::string> lines;
    for (const SetAside& one : filtered_.set_aside) {
      std::string line = std::string(to_string(one.why)) + ": " +
                         std::string(verify::to_string(one.finding.severity)) + " " +
                         std::string(verify::rule(one.finding.rule).name);
      if (!one.finding.group.empty()) line += " in " + group_in_words(one.finding);
      if (!one.reason.empty()) line += "; " + one.reason;
      if (!one.expires.empty()) line += " (until " + one.expires + ")";
      lines.push_back(std::move(line));
    }
    listed("found, but set aside", lines, kSetAsideShown);
  }

  void listed(std::string_view title, const std::vector<std::string>& lines, std::size_t most) {
    if (lines.empty()) return;
    out_ += "\n" + std::string(title) + "\n";
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (i == most) {
        out_ += "  and " + std::to_string(lines.size() - i) + " more\n";
        break;
      }
      out_ += "  - " + block(printable(lines[i]), 2 * kIndent) + "\n";
    }
  }

  const FilteredReport& filtered_;
  const verify::Report& report_;
  const trace::Run& run_;
  TextOptions options_;
  Paint paint_;
  std::string out_;
};

}  // namespace

std::string text_report(const FilteredReport& filtered, const trace::Run& run,
                        const TextOptions& options) {
  return TextReportWriter(filtered, run, options).str();
}

std::string text_report(const verify::Report& report, const trace::Run& run,
                        const TextOptions& options) {
  return text_report(FilteredReport(report), run, options);
}

}  // namespace lockstep::reports
