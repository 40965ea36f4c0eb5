// The examples of docs/ci: their shell parts, run against recorded traces, gate as they say. `pip`
// and the training script stand in for the user's; everything else is as it is in the files.
#include <sys/wait.h>

#include <cstdlib>
#include <regex>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>
#include <yaml-cpp/yaml.h>

#include "tests/support/temp_dir.h"
#include "tests/support/trace_lines.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

std::string example(const std::string& name) {
  return TempDir::read(LOCKSTEP_SOURCE_DIR "/docs/ci/" + name);
}

std::vector<std::string> github_steps() {
  std::vector<std::string> out;
  const YAML::Node workflow = YAML::Load(example("github-actions.yml"));
  for (const YAML::Node& step : workflow["jobs"]["verify"]["steps"])
    if (step["run"]) out.push_back(step["run"].as<std::string>());
  return out;
}

std::vector<std::string> gitlab_steps() {
  std::vector<std::string> out;
  const YAML::Node jobs = YAML::Load(example("gitlab-ci.yml"));
  for (const char* const job : {"train", "lockstep"}) {
    for (const char* const part : {"before_script", "script"})
      for (const YAML::Node& line : jobs[job][part]) out.push_back(line.as<std::string>());
  }
  return out;
}

std::vector<std::string> jenkins_steps() {
  std::vector<std::string> out;
  const std::string file = example("Jenkinsfile");
  const std::regex step("sh (?:'''([^]*?)'''|'([^']*)')");
  for (std::sregex_iterator m(file.begin(), file.end(), step), end; m != end; ++m)
    out.push_back((*m)[1].matched ? (*m)[1].str() : (*m)[2].str());
  return out;
}

class CiExamples : public ::testing::Test {
 protected:
  // What the job's checkout has: a training script whose ranks agree, or do not.
  void check_out(bool healthy) {
    const auto trace = [&](int rank, int numel) {
      return header_line(rank, 2) + issue_line(0, "world", "all_reduce", {{"in", {{numel}}}}) +
             end_line("clean");
    };
    executable("train_two_ranks.sh", "mkdir -p traces\ncat > traces/rank_0.trace.jsonl <<'E'\n" +
                                         trace(0, 8) +
                                         "E\ncat > traces/rank_1.trace.jsonl <<'E'\n" +
                                         trace(1, healthy ? 8 : 9) + "E\n");
    executable("pip", "test \"$1\" = install\n");
  }
  // Runs the steps in one folder, each as the services do, with the variables that they set; the
  // first failure ends the job.
  int run(const std::vector<std::string>& steps, const std::string& variables) {
    for (const std::string& step : steps) {
      const std::string script = folder_.write("step.sh", step);
      const std::string command = "cd " + folder_.path() + " && PATH=" + folder_.path() +
                                  ":" LOCKSTEP_PROGRAM_FOLDER
                                  ":$PATH env -u GITHUB_ACTIONS -u GITLAB_CI " +
                                  variables + " bash -eo pipefail " + script + " >> log 2>&1";
      const int status = std::system(command.c_str());
      if (status != 0) return WEXITSTATUS(status);
    }
    return 0;
  }
  std::string on_github() const {
    return "GITHUB_ACTIONS=true GITHUB_STEP_SUMMARY=" + folder_.file("summary.md");
  }
  std::string file(const std::string& name) { return TempDir::read(folder_.file(name)); }

 private:
  void executable(const std::string& name, const std::string& text) {
    const std::string path = folder_.write(name, "#!/usr/bin/env bash\nset -e\n" + text);
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  }
  TempDir folder_;
};

TEST_F(CiExamples, GitHubActions) {
  ASSERT_THAT(github_steps(), SizeIs(3));
  check_out(/*healthy=*/true);
  EXPECT_EQ(run(github_steps(), on_github()), 0) << file("log");
  check_out(/*healthy=*/false);
  EXPECT_EQ(run(github_steps(), on_github()), 1) << file("log");
  EXPECT_THAT(file("log"), HasSubstr("::error"));
  EXPECT_EQ(nlohmann::json::parse(file("lockstep.sarif"))["runs"][0]["results"][0]["ruleId"],
            "size-mismatch");
  EXPECT_THAT(file("summary.md"), HasSubstr("size-mismatch"));
}

TEST_F(CiExamples, GitLab) {
  ASSERT_THAT(gitlab_steps(), SizeIs(3));
  check_out(/*healthy=*/true);
  EXPECT_EQ(run(gitlab_steps(), "GITLAB_CI=true"), 0) << file("log");
  check_out(/*healthy=*/false);
  EXPECT_EQ(run(gitlab_steps(), "GITLAB_CI=true"), 1) << file("log");
  EXPECT_THAT(file("lockstep.xml"), HasSubstr("<failure"));
  EXPECT_EQ(nlohmann::json::parse(file("lockstep.codequality.json"))[0]["check_name"],
            "size-mismatch");
}

TEST_F(CiExamples, Jenkins) {
  ASSERT_THAT(jenkins_steps(), SizeIs(3));
  check_out(/*healthy=*/true);
  EXPECT_EQ(run(jenkins_steps(), ""), 0) << file("log");
  check_out(/*healthy=*/false);
  EXPECT_EQ(run(jenkins_steps(), ""), 1) << file("log");
  EXPECT_THAT(file("lockstep.xml"), HasSubstr("<failure"));
}

// What the workflow names, and the pages, are there.
TEST_F(CiExamples, WhatIsUploadedIsWhatIsWritten) {
  const YAML::Node steps = YAML::Load(example("github-actions.yml"))["jobs"]["verify"]["steps"];
  EXPECT_EQ(steps[steps.size() - 1]["with"]["sarif_file"].as<std::string>(), "lockstep.sarif");
  const YAML::Node reports =
      YAML::Load(example("gitlab-ci.yml"))["lockstep"]["artifacts"]["reports"];
  EXPECT_EQ(reports["junit"].as<std::string>(), "lockstep.xml");
  EXPECT_EQ(reports["codequality"].as<std::string>(), "lockstep.codequality.json");
  EXPECT_THAT(example("Jenkinsfile"), HasSubstr("junit 'lockstep.xml'"));
}

}  // namespace
}  // namespace lockstep
