// scripts/release in a repository of its own: the commit and the tag, and what it refuses.
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include <gmock/gmock.h>

#include "tests/support/temp_dir.h"

namespace lockstep {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class Release : public ::testing::Test {
 protected:
  void SetUp() override {
    if (shell("git --version") != 0) GTEST_SKIP() << "NOT TESTED: there is no git";
    std::filesystem::create_directories(folder_.file("scripts/lib"));
    for (const char* const file : {"scripts/release", "scripts/lib/common.sh"})
      std::filesystem::copy_file(std::string(LOCKSTEP_SOURCE_DIR "/") + file, folder_.file(file));
    folder_.write("CMakeLists.txt", "project(lockstep VERSION 0.1.0 LANGUAGES CXX)\n");
    folder_.write("CHANGELOG.md", "# Changelog\n\n## [0.2.0] - Unreleased\n\n- New.\n");
    ASSERT_EQ(shell("git init --quiet . && git config user.name x && git config user.email x@y && "
                    "git add -A && git commit --quiet -m first"),
              0)
        << said_;
  }

  int shell(const std::string& command) {
    const std::string out = outside_.file("out");
    const int status = std::system(
        ("cd '" + folder_.path() + "' && { " + command + "; } >'" + out + "' 2>&1").c_str());
    said_ = TempDir::read(out);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  TempDir folder_, outside_;
  std::string said_;
};

TEST_F(Release, WritesTheVersionAndItsDateAndTagsThem) {
  ASSERT_EQ(shell("scripts/release --prepare 0.2.0"), 0) << said_;
  EXPECT_THAT(said_, HasSubstr("git push origin HEAD v0.2.0"));
  EXPECT_THAT(TempDir::read(folder_.file("CMakeLists.txt")), HasSubstr("VERSION 0.2.0 LANGUAGES"));
  EXPECT_THAT(TempDir::read(folder_.file("CHANGELOG.md")),
              ContainsRegex("## .0\\.2\\.0. - 20[0-9][0-9]-[01][0-9]-[0-3][0-9]\n"));
  EXPECT_EQ(shell("git status --porcelain"), 0);
  EXPECT_EQ(said_, "");
  EXPECT_EQ(shell("git describe --exact-match"), 0);
  EXPECT_EQ(said_, "v0.2.0\n");
}

TEST_F(Release, RefusesWhatIsNotReady) {
  EXPECT_EQ(shell("scripts/release --prepare 0.3.0"), 2);
  EXPECT_THAT(said_, HasSubstr("no section '## [0.3.0] - Unreleased'"));
  EXPECT_EQ(shell("scripts/release --prepare v0.2.0"), 2);
  EXPECT_THAT(said_, HasSubstr("is not a version"));
  EXPECT_EQ(shell("scripts/release --prepare"), 2);
  EXPECT_EQ(shell("git tag v0.2.0 && scripts/release --prepare 0.2.0"), 2);
  EXPECT_THAT(said_, HasSubstr("git tag -d v0.2.0"));
  folder_.write("notes", "x");
  EXPECT_EQ(shell("scripts/release --prepare 0.2.0"), 2);
  EXPECT_THAT(said_, HasSubstr("not committed"));
  EXPECT_THAT(TempDir::read(folder_.file("CMakeLists.txt")), HasSubstr("0.1.0"));
}

}  // namespace
}  // namespace lockstep
