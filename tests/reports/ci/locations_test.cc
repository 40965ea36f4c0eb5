#include <gtest/gtest.h>

#include "reports/findings/finding_words.h"
#include "tests/reports/inline_run.h"

namespace lockstep::reports {
namespace {

// "file|line|column", or "none".
std::string taken_apart(std::string_view at, std::string_view root = {}) {
  const auto location = source_location(at, root);
  if (!location) return "none";
  return location->file + "|" + std::to_string(location->line) + "|" +
         (location->column ? std::to_string(*location->column) : "");
}

TEST(SourceLocation, IsAFileAndALine) {
  EXPECT_EQ(taken_apart("trainer.cc:120"), "trainer.cc|120|");
  EXPECT_EQ(taken_apart("./src/a.py:7:3"), "src/a.py|7|3");
  EXPECT_EQ(taken_apart("C:\\job\\a.py:9"), "C:/job/a.py|9|");
  EXPECT_EQ(taken_apart("a b:c.py:2147483647"), "a b:c.py|2147483647|");
}

TEST(SourceLocation, IsNothingWithoutALine) {
  for (const char* at : {"", ":", ":5", "trainer.cc", "trainer.cc:", "trainer.cc:0", "a:-1", "a:1x",
                         "a:2147483648", "a:99999999999999999999", "in train() of a.py"})
    EXPECT_EQ(taken_apart(at), "none") << at;
}

TEST(SourceLocation, IsRelativeInsideOfTheRootOnly) {
  EXPECT_EQ(taken_apart("/job/src/a.py:1", "/job"), "src/a.py|1|");
  EXPECT_EQ(taken_apart("/job/src/a.py:1", "/job//"), "src/a.py|1|");
  EXPECT_EQ(taken_apart("/jobs/a.py:1", "/job"), "/jobs/a.py|1|") << "a look-alike";
  EXPECT_EQ(taken_apart("/job/a.py:1", ""), "/job/a.py|1|");
  EXPECT_EQ(taken_apart("/a.py:1", "/"), "/a.py|1|");
}

TEST(SourceLocation, IsSafeToPrint) { EXPECT_EQ(taken_apart("a\n\xff.py:1"), "a/x0a\uFFFD.py|1|"); }

TEST(LocationOf, IsTheCulpritsOrElseAnybodys) {
  verify::Finding finding;
  finding.evidence = {{trace::Rank(0), 1, "a.py:1", ""}, {trace::Rank(1), 1, "b.py:2", ""}};
  EXPECT_EQ(location_of(finding)->file, "a.py");
  finding.culprits = ranks_of({1});
  EXPECT_EQ(location_of(finding)->file, "b.py");
  finding.culprits = ranks_of({7});
  EXPECT_EQ(location_of(finding)->file, "a.py");
  finding.evidence.clear();
  EXPECT_FALSE(location_of(finding));
}

}  // namespace
}  // namespace lockstep::reports
