#include <stdlib.h>

#include <gmock/gmock.h>

#include "reports/ci/ci_reports.h"
#include "reports/html/markup.h"
#include "tests/reports/samples.h"
#include "tests/support/temp_dir.h"

namespace lockstep::reports {
namespace {

using html::xml_attribute;
using html::xml_text;
using testing::HasSubstr;
using testing::Not;

TEST(XmlText, EscapesWhatHasAMeaning) {
  EXPECT_EQ(xml_text("a<b>&\"'\r]]>\n\t"), "a&lt;b&gt;&amp;&quot;&apos;&#13;]]&gt;\n\t");
  EXPECT_EQ(xml_attribute("a\n\tb"), "a&#10;&#9;b");
  EXPECT_EQ(xml_text("gr\xc3\xbcn \xf0\x9f\x98\x80"), "gr\xc3\xbcn \xf0\x9f\x98\x80");
}

TEST(XmlText, ReplacesWhatXmlCannotHold) {
  EXPECT_EQ(xml_text(std::string("\0\x01\x1b", 3)), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(xml_text("a\xff"), "a\uFFFD");
  EXPECT_EQ(xml_text("\xef\xbf\xbe|\xef\xbf\xbf|\xed\xa0\x80"), "\uFFFD|\uFFFD|\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(xml_text("\xef\xbf\xbd"), "\uFFFD") << "which is a character like any other";
}

TEST(JunitReport, ACleanRunIsATestThatPasses) {
  EXPECT_EQ(junit_report(report_of({})),
            R"(<?xml version="1.0" encoding="UTF-8"?>
<testsuites>
  <testsuite name="lockstep" tests="1" failures="0" errors="0" skipped="0">
    <testcase name="verdict" classname="lockstep"/>
    <system-out>clean: nothing wrong in 3 ranks, 1,234 events
</system-out>
  </testsuite>
</testsuites>
)");
}

TEST(JunitReport, AFindingIsAFailure) {
  const std::string xml = junit_report(report_of({full_finding()}));
  EXPECT_THAT(xml, HasSubstr(R"(tests="2" failures="1" errors="0" skipped="0")"));
  EXPECT_THAT(xml, HasSubstr(R"(<testcase name="missing-collective in group world )"
                             R"([00c0ffee00c0ffee]" classname="lockstep.matching"><failure )"
                             R"(message="rank 2 never issued all_reduce" type="error">)"));
  EXPECT_THAT(xml, HasSubstr("\nseen: rank 2 at src/skip.cc:57:9: barrier()\n"));
}

TEST(JunitReport, NotesPassAndWhatIsSetAsideIsSkipped) {
  const std::string xml = junit_report(crowded_report());
  EXPECT_THAT(xml, HasSubstr(R"(tests="7" failures="3" errors="0" skipped="2")"));
  EXPECT_THAT(xml, HasSubstr(R"(<skipped message="suppressed: TICKET-1 &lt;i&gt; (until 2026)"));
}

TEST(JunitReport, AnInconclusiveRunIsAnError) {
  const std::string xml = junit_report(inconclusive_report());
  EXPECT_THAT(xml, HasSubstr(R"(tests="1" failures="0" errors="1" skipped="0")"));
  EXPECT_THAT(xml, HasSubstr("<error message=\"no error seen in 3 ranks"));
}

// By libxml2 rather than by us, where it is installed.
TEST(JunitReport, IsValidWhateverIsInIt) {
  if (std::system("xmllint --version >/dev/null 2>&1") != 0)
    GTEST_SKIP() << "xmllint is not installed (libxml2-utils)";
  const TempDir folder;
  for (const FilteredReport& report :
       {report_of({}), report_of({full_finding()}), crowded_report(), inconclusive_report()}) {
    const std::string file = folder.write("report.xml", junit_report(report));
    const std::string command = "xmllint --noout --schema " LOCKSTEP_SOURCE_DIR
                                "/tests/reports/schemas/junit.xsd " +
                                file + " >" + folder.file("log") + " 2>&1";
    EXPECT_EQ(std::system(command.c_str()), 0) << TempDir::read(folder.file("log"));
  }
}

}  // namespace
}  // namespace lockstep::reports
