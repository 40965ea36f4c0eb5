// The report as text, for a terminal: the headline, then each finding with a picture of the calls
// around it.
#include <algorithm>
#include <iterator>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/quantities.h"
#include "base/tables.h"
#include "base/terminal.h"
#include "base/text.h"
#include "reports/findings/figures/lanes.h"
#include "reports/findings/finding_words.h"
#include "reports/findings/reports.h"

namespace lockstep::reports {
namespace {

// A finding and its picture must fit on a screen of 40 lines. So each list shows this many entries,
// and how many more there are. The JSON report and the page have all of them.
constexpr std::size_t kNamesShown = 4;
constexpr std::size_t kAlsoShown = 8;
constexpr std::size_t kEvidenceShown = 4;
constexpr std::size_t kConsequencesShown = 3;
constexpr std::size_t kConsequenceLines = 5;  // about, of each
constexpr std::size_t kUnknownShown = 8;
constexpr std::size_t kSetAsideShown = 8;
constexpr std::size_t kIndent = 2;
constexpr std::size_t kKey = 7;  // width of "where  "

// The source locations of the findings that are shown with them.
std::vector<std::string> shown_locations(const verify::Report& report) {
  std::vector<std::string> out;
  for (const verify::Finding& finding : report.findings) {
    if (!is_about_calls(finding) && finding.headline.empty()) continue;
    for (const verify::Evidence& evidence : finding.evidence) out.push_back(printable(evidence.at));
  }
  return out;
}

class TextReportWriter {
 public:
  TextReportWriter(const FilteredReport& filtered, const trace::Run& run,
                   const TextOptions& options)
      : filtered_(filtered),
        report_(filtered.report),
        run_(run),
        options_(options),
        paint_{options.color},
        folder_(common_folder(shown_locations(report_))) {}

  std::string str() {
    headline();
    verdict();
    std::size_t shown = 0;
    std::size_t left_out = 0;
    for (const verify::Finding& finding : report_.findings) {
      // Notes are short and always shown. The other findings are sorted, worst first, and the first
      // ones are shown in full.
      if (!is_about_calls(finding)) {
        note(finding);
      } else if (shown < options_.max_findings) {
        ++shown;
        full(finding);
      } else {
        ++left_out;
      }
    }
    if (left_out > 0)
      out_ += fmt::format("\nand {}; --output json=PATH has them all\n",
                          plural(left_out, "more finding"));
    set_aside();
    listed("not known from these traces", report_.unknown, kUnknownShown);
    listed("about the filter", filtered_.notes, kUnknownShown);
    return std::move(out_);
  }

 private:
  // Who stopped, where, and what to run next. Comes first in the report.
  void headline() {
    const verify::Finding* const first = headline_of(report_);
    if (first == nullptr) return;
    out_ += fmt::format("{}\n", paint_.bold(wrap(printable(first->headline), options_.width)));
    // Not wrapped: to be copied.
    if (!first->next.empty()) out_ += fmt::format("  next: {}\n", printable(first->next));
    out_ += "\n";
  }

  void verdict() {
    std::string line, painted;
    const std::string size = fmt::format("{}, {}", plural(report_.ranks_read.size(), "rank"),
                                         plural(report_.events, "event"));
    switch (report_.verdict) {
      case verify::Verdict::clean:
        painted = paint_.green("CLEAN");
        line = fmt::format("CLEAN: nothing {} in {}",
                           filtered_.set_aside.empty() ? "wrong" : "else wrong", size);
        break;
      case verify::Verdict::findings:
        painted = paint_.red("FINDINGS");
        line = fmt::format("FINDINGS: {} in {}", counts_in_words(report_), size);
        break;
      case verify::Verdict::inconclusive:
        painted = paint_.yellow("INCONCLUSIVE");
        line = fmt::format("INCONCLUSIVE: no error seen in {}, but not all is known", size);
        break;
    }
    // The first word is coloured after wrapping, because colours take no columns.
    line = wrap(line, options_.width, kIndent);
    out_.append(painted).append(line.substr(line.find(':'))).append("\n");
    if (!report_.ranks_missing.empty())
      paragraph(fmt::format("no trace of {}: {} of {} ranks were read",
                            rank_label(report_.ranks_missing, 40),
                            grouped(report_.ranks_read.size()), grouped(report_.ranks_expected)));
    if (!report_.ranks_damaged.empty())
      paragraph(fmt::format("damaged trace of {}", rank_label(report_.ranks_damaged, 40)));
    if (!report_.sources.empty()) paragraph(report_.sources);
    if (!folder_.empty()) out_ += fmt::format("  source files are in {}\n", folder_);
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
    std::string out = fmt::format("{} {}", colored, paint_.bold(name));
    // Notes (a damaged file) need no certainty.
    if (finding.severity != verify::Severity::note)
      out += fmt::format(" ({})", verify::to_string(finding.certainty));
    return out;
  }

  void full(const verify::Finding& finding) {
    out_ += fmt::format("\n{}\n", title(finding));
    // The headline was printed at the top: do not repeat it.
    const bool in_headline =
        &finding == headline_of(report_) && finding.message == finding.headline;
    if (!in_headline) paragraph(finding.message);
    if (const std::string picture =
            lanes(finding, run_, {.width = options_.width, .indent = kIndent, .paint = paint_});
        !picture.empty())
      out_.append("\n").append(picture);
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
    out_ += fmt::format("\n{}\n", title(finding));
    paragraph(finding.message);
    waiting(finding);
    // A user who must copy a file again needs to know which, and where it is damaged.
    if (finding.rule == verify::RuleId::damaged_trace) evidence(finding);
    keyed("do", printable(finding.fix));
  }

  // Removes the folder of the source files, which the report names once.
  std::string without_folder(std::string text) const {
    if (folder_.empty()) return text;
    for (std::size_t at = 0; (at = text.find(folder_, at)) != kNpos;)
      text.erase(at, folder_.size());
    return text;
  }

  // `text`, wrapped; each line after the first starts with `indent` blanks.
  std::string block(const std::string& text, std::size_t indent) const {
    std::string out;
    for (const char c : wrap(without_folder(text), options_.width - indent)) {
      out += c;
      if (c == '\n') out.append(indent, ' ');
    }
    return out;
  }

  void paragraph(const std::string& text) {
    out_ += fmt::format("{:{}}{}\n", "", kIndent, block(printable(text), kIndent));
  }

  // "  key    text"; nothing for an empty text. An empty key continues the one above.
  void keyed(std::string_view key, const std::string& text) {
    if (text.empty()) return;
    out_ += fmt::format("{:{}}{}{}\n", "", kIndent, paint_.bold(pad_right(key, kKey)),
                        block(text, kIndent + kKey));
  }

  // A line below a keyed text, further in.
  void detail(const std::string& text) {
    constexpr std::size_t kDetail = kIndent + kKey + 2;
    out_ += fmt::format("{:{}}{}\n", "", kDetail, block(printable(text), kDetail));
  }

  void who(const verify::Finding& finding) {
    const std::size_t width = options_.width - kIndent - kKey;
    std::vector<trace::Rank> others;
    std::set_difference(finding.ranks.begin(), finding.ranks.end(), finding.culprits.begin(),
                        finding.culprits.end(), std::back_inserter(others));
    // Half of the line for the culprits, half for the others: both may be thousands of ranks.
    std::string text;
    if (!finding.culprits.empty()) text = rank_label(finding.culprits, width / 2);
    if (finding.culprits.empty() && !finding.ranks.empty())
      text = fmt::format("{}; none can be singled out", rank_label(finding.ranks, width / 2));
    else if (!others.empty())
      text +=
          fmt::format("{}{} too", text.empty() ? "" : "; concerns ", rank_label(others, width / 2));
    keyed("who", text);
    waiting(finding);
    const std::vector<std::string> also = also_in_words(finding);
    for (std::size_t i = 0; i < also.size(); ++i) {
      if (i == kAlsoShown && also.size() > kAlsoShown + 1) {
        keyed("", fmt::format("and in {} more groups", also.size() - i));
        break;
      }
      keyed(i == 0 ? "also" : "", printable(also[i]));
    }
  }

  void waiting(const verify::Finding& finding) {
    if (finding.waiting.empty()) return;
    keyed("waits", fmt::format("{} directly", rank_label(finding.waiting, options_.width / 2)));
  }

  void what(const verify::Finding& finding) {
    std::string text;
    for (std::size_t i = 0; i < std::min(kNamesShown, finding.what.size()); ++i)
      text.append(i == 0 ? "" : ", ")
          .append(shorten_middle(printable(finding.what[i]), options_.width - kIndent - kKey - 2));
    if (finding.what.size() > kNamesShown)
      text += fmt::format(" and {} more", finding.what.size() - kNamesShown);
    keyed("what", text);
  }

  void where(const verify::Finding& finding) {
    std::vector<std::string> parts;
    if (finding.step) parts.push_back(fmt::format("step {}", *finding.step));
    if (!finding.group.empty()) {
      std::string location = printable(group_in_words(finding));
      if (finding.seq) location += fmt::format(", seq {}", number_of(finding));
      parts.push_back(location);
    }
    std::vector<std::string> locations;
    for (const verify::Evidence& evidence : finding.evidence) {
      const std::string at = printable(evidence.at);
      if (!at.empty() && std::find(locations.begin(), locations.end(), at) == locations.end())
        locations.push_back(at);
    }
    if (!locations.empty()) parts.push_back(join_and(locations, 2));
    keyed("where", fmt::format("{}", fmt::join(parts, "; ")));
  }

  void evidence(const verify::Finding& finding) {
    const std::vector<FoldedEvidence> folded = fold_evidence(finding.evidence);
    for (std::size_t i = 0; i < folded.size(); ++i) {
      // One entry more is shown instead of "and 1 more", which takes as much space.
      if (i == kEvidenceShown && folded.size() > kEvidenceShown + 1 && !options_.stacks) {
        keyed("", fmt::format("and {} more like these", folded.size() - i));
        break;
      }
      const verify::Evidence& one = *folded[i].one;
      std::string text = rank_label(folded[i].ranks, 30);
      if (!one.at.empty()) text += fmt::format(" at {}", printable(one.at));
      // Ids are per rank, so several ranks have none in common.
      if (one.id && folded[i].ranks.size() == 1) text += fmt::format(" (id {})", *one.id);
      keyed(i == 0 ? "seen" : "",
            one.sentence ? printable(one.text) : fmt::format("{}: {}", text, printable(one.text)));
      const trace::Call* const call = options_.stacks ? call_of(one, run_) : nullptr;
      if (call == nullptr) continue;
      detail(group_and_shapes(*call, run_.tables));
      for (const std::string& frame : stack_of(*call, run_.tables)) detail(frame);
    }
  }

  void consequences(const verify::Finding& finding) {
    for (std::size_t i = 0; i < finding.consequences.size(); ++i) {
      if (i == kConsequencesShown && finding.consequences.size() > kConsequencesShown + 1) {
        keyed("", fmt::format("and {} more like these", finding.consequences.size() - i));
        break;
      }
      const verify::Finding& one = finding.consequences[i];
      // A consequence of a thousand ranks must not push the cause off the screen.
      const std::size_t room = kConsequenceLines * (options_.width - kIndent - kKey);
      const std::string rule_name = fmt::format(" ({})", verify::rule(one.rule).name);
      keyed(
          i == 0 ? "so" : "",
          shorten_end(without_folder(printable(one.message)), room - rule_name.size()) + rule_name);
    }
  }

  // Findings that do not count, and why.
  void set_aside() {
    std::vector<std::string> lines;
    for (const SetAside& one : filtered_.set_aside) {
      std::string line =
          fmt::format("{}: {} {}", to_string(one.why), verify::to_string(one.finding.severity),
                      verify::rule(one.finding.rule).name);
      if (!one.finding.group.empty()) line += fmt::format(" in {}", group_in_words(one.finding));
      if (!one.reason.empty()) line += fmt::format("; {}", one.reason);
      if (!one.expires.empty()) line += fmt::format(" (until {})", one.expires);
      lines.push_back(std::move(line));
    }
    listed("found, but set aside", lines, kSetAsideShown);
  }

  void listed(std::string_view title, const std::vector<std::string>& lines, std::size_t most) {
    if (lines.empty()) return;
    out_ += fmt::format("\n{}\n", title);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (i == most) {
        out_ += fmt::format("  and {} more\n", lines.size() - i);
        break;
      }
      out_ += fmt::format("  - {}\n", block(printable(lines[i]), 2 * kIndent));
    }
  }

  const FilteredReport& filtered_;
  const verify::Report& report_;
  const trace::Run& run_;
  TextOptions options_;
  Paint paint_;
  std::string folder_;  // of the source files; empty: there is no common one
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
