#include "reports/ci/locations.h"

#include <gmock/gmock.h>

#include "tests/reports/inline_run.h"

namespace lockstep::reports {
namespace {

// "file|line|column", or "none".
std::string taken_apart(std::string_view at) {
  const auto location = source_location(at);
  if (!location) return "none";
  return location->file + "|" + std::to_string(location->line) + "|" +
         (location->column ? std::to_string(*location->column) : "");
}

TEST(SourceLocation, IsAFileAndALine) {
  EXPECT_EQ(taken_apart("trainer.cc:120"), "trainer.cc|120|");
  EXPECT_EQ(taken_apart("./src/a.py:7:3"), "./src/a.py|7|3");
  EXPECT_EQ(taken_apart("C:\\job\\a.py:9"), "C:/job/a.py|9|");
  EXPECT_EQ(taken_apart("a b:c.py:2147483647"), "a b:c.py|2147483647|");
}

TEST(SourceLocation, IsNothingWithoutALine) {
  for (const char* at : {"", ":", ":5", "trainer.cc", "trainer.cc:", "trainer.cc:0", "a:-1", "a:1x",
                         "a:2147483648", "a:99999999999999999999", "in train() of a.py"})
    EXPECT_EQ(taken_apart(at), "none") << at;
}

TEST(SourceLocation, IsSafeToPrint) { EXPECT_EQ(taken_apart("a\n\xff.py:1"), "a/x0a\uFFFD.py|1|"); }

TEST(Repository, PathsAreRelativeToIt) {
  Repository job{"/job", "/job", {}, {}};
  EXPECT_EQ(job.path_of("/job/src/a.py"), "src/a.py");
  EXPECT_EQ(job.path_of("./src//b/../a.py"), "src/a.py");
  EXPECT_EQ(job.path_of("../a.py"), "a.py") << "nothing leaves the repository";
  EXPECT_EQ(job.path_of("/jobs/a.py"), "jobs/a.py") << "a look-alike";
  EXPECT_EQ(job.path_of("C:/x/a.py"), "C:/x/a.py");
  EXPECT_EQ(Repository({"/job//", "", {}, {}}).path_of("/job/a.py"), "a.py");
  EXPECT_EQ(Repository().path_of("/job/a.py"), "job/a.py");
}

TEST(Repository, MapsSayWhereTheJobsFilesAre) {
  const Repository job{"/work", "/work", {{"/app", "."}, {"/opt/lib/", "third_party/lib"}}, {}};
  EXPECT_EQ(job.path_of("/app/train.py"), "train.py");
  EXPECT_EQ(job.path_of("/opt/lib/a.py"), "third_party/lib/a.py");
  EXPECT_EQ(job.path_of("/application/a.py"), "application/a.py");
}

// A container has the repository elsewhere; its files are still the same.
TEST(Repository, TheLongestEndOfAPathThatItHasIsTheFile) {
  const auto has = [](const std::string& path) {
    return path == "megatron/core/mlp.py" || path == "core/mlp.py" || path == "train.py" ||
           path == "__init__.py";
  };
  const Repository job{"/work", "/work", {}, has};
  EXPECT_EQ(job.path_of("/app/megatron/core/mlp.py"), "megatron/core/mlp.py");
  EXPECT_EQ(job.path_of("/app/train.py"), "train.py");
  EXPECT_EQ(job.path_of("/usr/lib/torch/__init__.py"), "usr/lib/torch/__init__.py");
}

TEST(PathMap, IsTwoFolders) {
  const auto map = parse_path_map("/app=.");
  ASSERT_TRUE(map);
  EXPECT_EQ(map->from, "/app");
  EXPECT_EQ(map->to, ".");
  for (const char* bad : {"", "=", "/app", "/app=", "=."}) EXPECT_FALSE(parse_path_map(bad)) << bad;
}

TEST(Locator, TheLineIsTheCulpritsOrElseAnybodys) {
  verify::Finding finding;
  finding.evidence = {{trace::Rank(0), 1, "a.py:1", ""}, {trace::Rank(1), 1, "b.py:2", ""}};
  const Locator locator;
  EXPECT_EQ(locator.of(finding).file, "a.py");
  finding.culprits = ranks_of({1});
  EXPECT_EQ(locator.of(finding).file, "b.py");
  EXPECT_EQ(locator.of(finding).line, 2U);
  finding.culprits = ranks_of({7});
  EXPECT_EQ(locator.of(finding).file, "a.py");
}

TEST(Locator, WithoutASourceLineItIsTheTraceOrTheScenario) {
  trace::Run run = inline_run({kHung, kClean});
  run.ranks[0].source = "traces/rank_0.trace.jsonl";
  run.ranks[1].source = "/work/traces/rank_1.trace.jsonl";
  verify::Finding finding;
  const Repository work{"/work", "/work/ci", {}, {}};
  EXPECT_EQ(Locator(work, &run).of(finding).file, "ci/traces/rank_0.trace.jsonl");
  finding.culprits = ranks_of({1});
  finding.evidence = {{trace::Rank(1), 1, "in train()", ""}};
  EXPECT_EQ(Locator(work, &run).of(finding).file, "traces/rank_1.trace.jsonl");
  EXPECT_EQ(Locator(work, &run).of(finding).line, 1U);
  EXPECT_EQ(Locator(work).of(finding).file, "unknown");
  // A run of a scenario: what is wrong stands in the scenario, not in the worker that ran it.
  finding.evidence = {{trace::Rank(1), 1, "trainer.cc:120", ""}};
  const SourceLocation line{"job.yaml", 7, std::nullopt};
  EXPECT_EQ(Locator(work, &run, line).of(finding).file, "ci/job.yaml");
  EXPECT_EQ(Locator(work, &run, line).of(finding).line, 7U);
}

}  // namespace
}  // namespace lockstep::reports
