// lockstep compare: exit statuses, and what is said.
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/run_lockstep.h"
#include "tests/support/temp_dir.h"
#include "tests/support/trace_lines.h"

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;

class Compare : public testing::Test {
 protected:
  // A run of one rank: a gradient's norm in step 0, and a loss.
  std::string run(const std::string& name, const std::string& hash, double norm, double loss) {
    const std::string folder = dir_.path() + "/" + name;
    std::filesystem::create_directory(folder);
    std::ofstream(folder + "/rank_0.trace.jsonl")
        << header_line(0, 1)
        << json_line({{"ev", "state"},
                      {"n", 0},
                      {"name", "w"},
                      {"kind", "grad"},
                      {"when", "synced"},
                      {"hash", hash},
                      {"norm", norm}})
        << json_line({{"ev", "step"}, {"n", 0}, {"loss", loss}}) << end_line("clean");
    return folder;
  }

  TempDir dir_;
};

TEST_F(Compare, TheSame) {
  const Outcome same = run_lockstep({"compare", run("a", "1", 2, 0.5), run("b", "1", 2, 0.5)});
  EXPECT_EQ(same.status, 0);
  EXPECT_THAT(same.out, HasSubstr("THE SAME up to rounding: 1 value compared"));
}

TEST_F(Compare, RunsDiffer) {
  const Outcome different =
      run_lockstep({"compare", run("a", "1", 4, 0.5), run("b", "2", 2, 0.25)});
  EXPECT_EQ(different.status, 1);
  EXPECT_THAT(different.out,
              HasSubstr("FIRST DIFFERENCE in step 0: gradient of w differs by at least 100.0 %"));
  expect_fits_a_terminal(different.out);
  EXPECT_EQ(
      run_lockstep({"compare", dir_.path() + "/a", dir_.path() + "/b", "--tolerance", "2"}).status,
      0);
}

TEST_F(Compare, WritesWhatItFound) {
  const std::string json = dir_.file("c.json"), page = dir_.file("c.html");
  const Outcome ran = run_lockstep({"compare", run("a", "1", 4, 0.5), run("b", "2", 2, 0.25), "-o",
                                    json, "-o", page, "--quiet"});
  EXPECT_EQ(ran.status, 1);
  EXPECT_EQ(ran.out, "");
  const nlohmann::json written = nlohmann::json::parse(TempDir::read(json));
  EXPECT_EQ(written["first_difference"]["tensor"], "w");
  EXPECT_EQ(written["steps"][0]["loss_1"], 0.5);
  EXPECT_FALSE(written["same"]);
  EXPECT_THAT(TempDir::read(page), HasSubstr("FIRST DIFFERENCE in step 0"));
}

TEST_F(Compare, NothingInCommonIsInconclusive) {
  const std::string b = run("b", "1", 2, 0.5);
  std::ofstream(b + "/rank_0.trace.jsonl") << header_line(0, 1);
  EXPECT_EQ(run_lockstep({"compare", run("a", "1", 2, 0.5), b}).status, 3);
}

TEST_F(Compare, AFileThatIsNotThere) {
  EXPECT_EQ(run_lockstep({"compare", run("a", "1", 2, 0.5), dir_.path() + "/none"}).status, 2);
}

}  // namespace
}  // namespace lockstep::cli
