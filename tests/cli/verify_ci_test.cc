// `lockstep verify --ci`: what it judges, and which reports it leaves.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "reports/ci/ci_reports.h"
#include "tests/cli/run_lockstep.h"
#include "tests/support/temp_dir.h"
#include "tests/support/trace_lines.h"

namespace lockstep::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(CiService, IsKnownByItsVariables) {
  EXPECT_EQ(reports::ci_service({"true", "", ""}), reports::CiService::github);
  EXPECT_EQ(reports::ci_service({"", "true", ""}), reports::CiService::gitlab);
  EXPECT_EQ(reports::ci_service({"", "", ""}), reports::CiService::junit);
  EXPECT_EQ(reports::ci_service({"false", "no", ""}), reports::CiService::junit);
  EXPECT_FALSE(reports::ci_service_named("jenkins"));
}

TEST(CiService, EachGetsTheReportsThatItShows) {
  EXPECT_THAT(reports::ci_outputs(reports::CiService::github, {"true", "", "/sum=mary"}),
              ElementsAre("sarif=lockstep.sarif", "github=-", "markdown=/sum=mary"));
  EXPECT_THAT(reports::ci_outputs(reports::CiService::github, {}),
              ElementsAre("sarif=lockstep.sarif", "github=-"));
  EXPECT_THAT(reports::ci_outputs(reports::CiService::gitlab, {}),
              ElementsAre("junit=lockstep.xml", "gitlab=lockstep.codequality.json"));
  EXPECT_THAT(reports::ci_outputs(reports::CiService::junit, {}),
              ElementsAre("junit=lockstep.xml"));
}

// Runs in a folder of its own, since reports go where the command runs.
class VerifyCi : public ::testing::Test {
 protected:
  VerifyCi() : before_(std::filesystem::current_path()) {
    std::filesystem::current_path(folder_.path());
    for (const char* name : {"GITHUB_ACTIONS", "GITLAB_CI", "GITHUB_STEP_SUMMARY"})
      ::unsetenv(name);
  }
  ~VerifyCi() override { std::filesystem::current_path(before_); }

  // Two ranks whose second call is of so many elements on rank 1, and of 8 on rank 0. Without an
  // end mark rank 1 may have been killed.
  void record(int elements, const std::string& end = end_line("clean")) {
    std::filesystem::create_directories("traces");
    for (int rank = 0; rank < 2; ++rank) {
      folder_.write(
          fmt::format("traces/rank_{}.trace.jsonl", rank),
          header_line(rank, 2) +
              issue_line(0, "world", "all_reduce", {{"in", {{rank == 0 ? 8 : elements}}}}) + end);
    }
  }
  // A program of two ranks that make one call in each step, after the first under these conditions.
  void derive(const std::vector<std::string>& steps) {
    std::filesystem::create_directories("derived/first");
    std::string calls;
    for (int n = 0; n <= static_cast<int>(steps.size()); ++n) {
      calls += issue_line(n, "world", "all_reduce", {{"in", {{8}}}, {"step", n}});
    }
    for (const int rank : {0, 1}) {
      folder_.write(fmt::format("derived/first/rank_{}.trace.jsonl", rank),
                    header_line(rank, 2) + world_line(2) + calls + end_line("clean"));
    }
    folder_.write("derived/product.json", R"({"product":1,"program":"p","world_size":2,
"assumptions":[],"conditions":[{"name":"all","has":[]}],"choice":"free",
"histories":[{"first":"all","folder":"first"}],"steps":)" +
                                              LineKeys(steps).dump() + "}");
  }
  bool exists(const std::string& name) { return std::filesystem::exists(folder_.file(name)); }

  TempDir folder_;

 private:
  std::filesystem::path before_;
};

TEST_F(VerifyCi, FailsOnWarningsInTracesAndLeavesJunit) {
  record(8);
  EXPECT_EQ(run_lockstep({"verify", "--ci", "traces"}).status, 0);
  record(9);
  const Outcome bad = run_lockstep({"verify", "--ci", "traces"});
  EXPECT_EQ(bad.status, 1);
  EXPECT_THAT(bad.out, HasSubstr("size-mismatch"));
  EXPECT_THAT(TempDir::read(folder_.file("lockstep.xml")), HasSubstr("<failure"));
  EXPECT_EQ(run_lockstep({"verify", "--ci", "traces", "--fail-on", "never", "-q"}).status, 0);
}

TEST_F(VerifyCi, WhatCannotBeJudgedDoesNotPass) {
  record(8);
  std::filesystem::remove("traces/rank_1.trace.jsonl");
  EXPECT_EQ(run_lockstep({"verify", "--ci", "traces"}).status, 3);
  EXPECT_EQ(run_lockstep({"verify", "--ci", "nothing-here"}).status, 2);
}

TEST_F(VerifyCi, TheServiceIsTheEnvironmentsUnlessNamed) {
  record(9);
  ::setenv("GITLAB_CI", "true", 1);
  EXPECT_EQ(run_lockstep({"verify", "--ci", "traces"}).status, 1);
  EXPECT_TRUE(exists("lockstep.codequality.json"));
  const Outcome github = run_lockstep({"verify", "--ci=github", "traces"});
  ::unsetenv("GITLAB_CI");
  EXPECT_THAT(github.out, ::testing::StartsWith("::error"));
  EXPECT_TRUE(exists("lockstep.sarif"));
}

TEST_F(VerifyCi, FurtherReportsAndFiltersAreThoseOfVerify) {
  record(9);
  EXPECT_EQ(run_lockstep({"verify", "--ci", "traces", "-q", "-o", "json=r.json", "--disable",
                          "size-mismatch"})
                .status,
            0);
  EXPECT_EQ(nlohmann::json::parse(TempDir::read(folder_.file("r.json")))["verdict"], "clean");
  EXPECT_EQ(run_lockstep({"verify", "--ci", "traces", "-o", "xml=r"}).status, 2);
}

TEST_F(VerifyCi, DecidesAllMixesOfADerivation) {
  derive({"all", "all"});
  const Outcome outcome = run_lockstep({"verify", "--ci", "derived"});
  EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("SAFE: p, 2 ranks"));
  EXPECT_THAT(TempDir::read(folder_.file("lockstep.xml")), HasSubstr("<testsuite"));
  EXPECT_THAT(run_lockstep({"verify", "--ci", "derived", "derived"}).err,
              HasSubstr("judged by itself"));
  EXPECT_THAT(run_lockstep({"verify", "--ci", "derived", "--only", "overlap"}).err,
              HasSubstr("only findings of recorded runs are filtered"));
}

TEST_F(VerifyCi, ADerivationThatDoesNotDecideDoesNotPass) {
  derive({"all"});
  EXPECT_EQ(run_lockstep({"verify", "--ci", "derived"}).status, 3);
  EXPECT_THAT(TempDir::read(folder_.file("lockstep.xml")), HasSubstr("inconclusive"));
}

TEST_F(VerifyCi, AScenarioIsDerivedAndItsErrorsHaveLocations) {
  folder_.write("job.yaml", "lockstep: 1\nname: x\nranks: many\n");
  const Outcome outcome = run_lockstep({"verify", "--ci", "job.yaml"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("job.yaml:3"));
}

}  // namespace
}  // namespace lockstep::cli
