// Findings as JUnit XML: one test case per finding, and one for the verdict.
#include <cstddef>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "reports/ci/ci_reports.h"
#include "reports/findings/finding_words.h"
#include "reports/html/markup.h"

namespace lockstep::reports {
namespace {

using html::xml_attribute;
using html::xml_text;

// The finding as text, for the log of a failed test.
std::string details(const verify::Finding& finding) {
  std::string out;
  const auto add = [&](std::string_view key, const std::string& words) {
    if (!words.empty()) out += fmt::format("\n{}: {}", key, words);
  };
  for (const std::string& line : lines_of(finding))
    out.append(out.empty() ? "" : "\n").append(line);
  add("what", fmt::format("{}", fmt::join(finding.what, ", ")));
  add("why", finding.why);
  for (const verify::Evidence& evidence : finding.evidence)
    add("seen", evidence.sentence
                    ? evidence.text
                    : fmt::format("rank {}{}{}: {}", evidence.rank.value,
                                  evidence.at.empty() ? "" : " at ", evidence.at, evidence.text));
  for (const verify::Finding& consequence : finding.consequences)
    add("so", fmt::format("{} ({})", consequence.message, verify::rule(consequence.rule).name));
  return out + "\n";
}

class Suite {
 public:
  void add(const verify::Finding& finding) {
    if (finding.severity == verify::Severity::note)
      return add_case(finding,
                      fmt::format("<system-out>{}</system-out>", xml_text(details(finding))));
    ++failures_;
    add_case(finding, fmt::format("<failure message=\"{}\" type=\"{}\">{}</failure>",
                                  xml_attribute(summary_of(finding)),
                                  verify::to_string(finding.severity), xml_text(details(finding))));
  }

  void add(const SetAside& one) {
    ++skipped_;
    std::string message(to_string(one.why));
    if (!one.reason.empty()) message += fmt::format(": {}", one.reason);
    if (!one.expires.empty()) message += fmt::format(" (until {})", one.expires);
    add_case(one.finding, fmt::format("<skipped message=\"{}\"/>", xml_attribute(message)));
  }

  // A test case that is always there, so that a clean run shows a test that passes.
  void add_verdict(const verify::Report& report) {
    std::string inside;
    if (report.verdict == verify::Verdict::inconclusive) {
      ++errors_;
      inside = fmt::format("<error message=\"{}\" type=\"inconclusive\"/>",
                           xml_attribute(verdict_in_words(report)));
    }
    write_case("lockstep", "verdict", inside);
  }

  std::string str(const FilteredReport& filtered) const {
    std::string text = fmt::format("{}: {}\n", verify::to_string(filtered.report.verdict),
                                   verdict_in_words(filtered.report));
    for (const std::string& unknown : filtered.report.unknown)
      text += fmt::format("not known: {}\n", unknown);
    for (const std::string& note : filtered.notes) text += fmt::format("{}\n", note);
    return fmt::format(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n"
        "  <testsuite name=\"lockstep\" tests=\"{}\" failures=\"{}\" errors=\"{}\" "
        "skipped=\"{}\">\n{}    <system-out>{}</system-out>\n  </testsuite>\n</testsuites>\n",
        tests_, failures_, errors_, skipped_, cases_, xml_text(text));
  }

 private:
  void add_case(const verify::Finding& finding, const std::string& inside) {
    const verify::Rule& found = verify::rule(finding.rule);
    std::string name(found.name);
    if (!finding.group.empty()) name += fmt::format(" in {}", group_in_words(finding));
    // Services match test cases of two runs by name: the fingerprint makes it unique and stable.
    name += fmt::format(" [{}]", fingerprints_.next(finding));
    write_case(fmt::format("lockstep.{}", found.family), name, inside);
  }

  void write_case(std::string_view class_name, std::string_view name, const std::string& inside) {
    ++tests_;
    cases_ += fmt::format("    <testcase name=\"{}\" classname=\"{}\"", xml_attribute(name),
                          xml_attribute(class_name));
    cases_ += inside.empty() ? "/>\n" : fmt::format(">{}</testcase>\n", inside);
  }

  UniqueFingerprints fingerprints_;
  std::string cases_;
  std::size_t tests_ = 0;
  std::size_t failures_ = 0;
  std::size_t errors_ = 0;
  std::size_t skipped_ = 0;
};

}  // namespace

std::string junit_report(const FilteredReport& filtered) {
  Suite suite;
  suite.add_verdict(filtered.report);
  for (const verify::Finding& finding : filtered.report.findings) suite.add(finding);
  for (const SetAside& one : filtered.set_aside) suite.add(one);
  return suite.str(filtered);
}

}  // namespace lockstep::reports
