#include <cstddef>
#include <utility>
#include <vector>

#include "base/documents/xml_text.h"
#include "base/tables.h"
#include "reports/ci/ci_reports.h"
#include "reports/findings/finding_words.h"

namespace lockstep::reports {
namespace {

// ` name="value"`.
std::string junit_attribute(std::string_view name, std::string_view value) {
  return " " + std::string(name) + "=\"" + xml_attribute(value) + "\"";
}

std::string junit_attribute(std::string_view name, std::size_t value) {
  return junit_attribute(name, std::to_string(value));
}

// The finding as text, for the log of a failed test.
std::string details(const verify::Finding& finding) {
  std::string out = finding.message + "\n";
  const auto add = [&](std::string_view key, const std::string& text) {
    if (!text.empty()) out += "\n" + std::string(key) + ": " + text;
  };
  add("who", who_in_words(finding));
  add("where", where_in_words(finding));
  std::string names;
  for (const std::string& name : finding.what) names += (names.empty() ? "" : ", ") + name;
  add("what", names);
  add("why", finding.why);
  for (const verify::Evidence& evidence : finding.evidence)
    add("seen", "rank " + std::to_string(evidence.rank.value) +
                    (evidence.at.empty() ? "" : " at " + evidence.at) + ": " + evidence.text);
  for (const verify::Finding& consequence : finding.consequences)
    add("so", consequence.message + " (" + std::string(verify::rule(consequence.rule).name) + ")");
  add("do", finding.fix);
  return out + "\n";
}

class Suite {
 public:
  void add(const verify::Finding& finding) {
    if (finding.severity == verify::Severity::note)
      return add_case(finding, "<system-out>" + xml_text(details(finding)) + "</system-out>");
    ++failures_;
    add_case(finding, "<failure" + junit_attribute("message", finding.message) +
                          junit_attribute("type", verify::to_string(finding.severity)) + ">" +
                          xml_text(details(finding)) + "</failure>");
  }

  void add(const SetAside& one) {
    ++skipped_;
    std::string message(to_string(one.why));
    if (!one.reason.empty()) message += ": " + one.reason;
    if (!one.expires.empty()) message += " (until " + one.expires + ")";
    add_case(one.finding, "<skipped" + junit_attribute("message", message) + "/>");
  }

  // A test case that is always there, so that a clean run shows a test that passes.
  void add_verdict(const verify::Report& report) {
    std::string inside;
    if (report.verdict == verify::Verdict::inconclusive) {
      ++errors_;
      inside = "<error" + junit_attribute("message", verdict_in_words(report)) +
               junit_attribute("type", "inconclusive") + "/>";
    }
    write_case("lockstep", "verdict", inside);
  }

  std::string str(const FilteredReport& filtered) const {
    std::string out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite" +
                      junit_attribute("name", std::string_view("lockstep")) +
                      junit_attribute("tests", tests_) + junit_attribute("failures", failures_) +
                      junit_attribute("errors", errors_) + junit_attribute("skipped", skipped_) +
                      ">\n" + cases_;
    std::string said = std::string(verify::to_string(filtered.report.verdict)) + ": " +
                       verdict_in_words(filtered.report) + "\n";
    for (const std::string& unknown : filtered.report.unknown)
      said += "not known: " + unknown + "\n";
    for (const std::string& note : filtered.notes) said += note + "\n";
    return out + "    <system-out>" + xml_text(said) +
           "</system-out>\n  </testsuite>\n</testsuites>\n";
  }

 private:
  void add_case(const verify::Finding& finding, const std::string& inside) {
    const verify::Rule& found = verify::rule(finding.rule);
    std::string name(found.name);
    if (!finding.group.empty()) name += " in " + group_in_words(finding);
    // Services match test cases of two runs by name: the fingerprint makes it unique and stable.
    name += " [" + fingerprints_.next(finding) + "]";
    write_case("lockstep." + std::string(found.family), name, inside);
  }

  void write_case(std::string_view class_name, std::string_view name, const std::string& inside) {
    ++tests_;
    cases_ += "    <testcase" + junit_attribute("name", name) +
              junit_attribute("classname", class_name) +
              (inside.empty() ? "/>\n" : ">" + inside + "</testcase>\n");
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
