#include "base/files/write_file.h"

#include <stdlib.h>

#include <filesystem>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

#include "base/environment.h"
#include "tests/support/temp_dir.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

TEST(WriteFile, ReplacesAFileAndLeavesNoOther) {
  const TempDir folder;
  const std::string path = folder.file("report.json");
  ASSERT_TRUE(write_file(path, "old"));
  ASSERT_TRUE(write_file(path, "new"));
  EXPECT_EQ(TempDir::read(path), "new");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);
}

TEST(WriteFile, FollowsALink) {
  const TempDir folder;
  ASSERT_TRUE(write_file(folder.file("target"), "old"));
  fs::create_symlink(folder.file("target"), folder.file("link"));
  ASSERT_TRUE(write_file(folder.file("link"), "new"));
  EXPECT_TRUE(fs::is_symlink(folder.file("link")));
  EXPECT_EQ(TempDir::read(folder.file("target")), "new");
}

TEST(WorkFolder, ErrorsNameTheUsersFileNotItsCopy) {
  const WorkFolder temporary("", "lockstep-test-");
  const auto said = [](const WorkFolder& folder, const std::string& file) {
    return folder.for_user({"bad", {file, 3, 7}, "mend it"}, "job.yaml").str();
  };
  EXPECT_EQ(said(temporary, temporary.path() + "/deep/scenario.yaml"),
            "job.yaml: error: bad\n  fix: mend it");
  EXPECT_EQ(said(temporary, "data/captions.csv"),
            "data/captions.csv:3:7: error: bad\n  fix: mend it");
  EXPECT_EQ(said(temporary, temporary.path() + "2/other.yaml"),
            temporary.path() + "2/other.yaml:3:7: error: bad\n  fix: mend it");
  // What was made in the user's own folder is still there; whoever mends the copy of a scenario
  // there gets the same error again.
  const TempDir parent;
  const WorkFolder kept(parent.file("kept"), "");
  EXPECT_EQ(said(kept, kept.path() + "/scenario.yaml"), "job.yaml: error: bad\n  fix: mend it");
  EXPECT_EQ(said(kept, kept.path() + "/rank_0.jsonl"),
            kept.path() + "/rank_0.jsonl:3:7: error: bad\n  fix: mend it");
}

TEST(WorkFolder, SaysWhereItCannotBeMade) {
  const std::string before = environment_variable("TMPDIR");
  setenv("TMPDIR", "/nowhere", 1);
  const WorkFolder folder("", "lockstep-test-");
  if (before.empty())
    unsetenv("TMPDIR");
  else
    setenv("TMPDIR", before.c_str(), 1);
  EXPECT_FALSE(folder.usable());
  EXPECT_TRUE(folder.path().starts_with("/nowhere/lockstep-test-")) << folder.path();
}

TEST(WriteFile, WritesToADeviceInPlace) {
  EXPECT_TRUE(write_file("/dev/null", "gone"));
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST(WriteFile, SaysWhyItCannot) {
  const TempDir folder;
  const Status status = write_file(folder.file("no/such/folder"), "x");
  ASSERT_FALSE(status);
  EXPECT_EQ(
      status.error().str(),
      folder.file("no/such/folder") +
          ": error: cannot write: No such file or directory\n  fix: make its folder first, or "
          "check how the path is written");
  const Status no_file = write_file(folder.path(), "x");
  ASSERT_FALSE(no_file);
  EXPECT_EQ(no_file.error().fix, "name a file, for instance one in this folder");
}

// Asked beforehand, it says the same, and leaves nothing behind.
TEST(WriteFile, IsAskedBeforehand) {
  const TempDir folder;
  for (const std::string& path : {folder.file("no/such/folder"), folder.path()}) {
    const Status asked = check_writable(path), tried = write_file(path, "x");
    ASSERT_FALSE(asked) << path;
    EXPECT_EQ(asked.error().str(), tried.error().str());
  }
  EXPECT_TRUE(check_writable(folder.file("new")));
  EXPECT_FALSE(fs::exists(folder.file("new")));
  folder.write("old", "kept");
  fs::create_symlink(folder.file("old"), folder.file("link"));
  for (const char* name : {"old", "link"}) EXPECT_TRUE(check_writable(folder.file(name))) << name;
  EXPECT_EQ(TempDir::read(folder.file("old")), "kept");
  EXPECT_TRUE(check_writable("/dev/null"));
  EXPECT_TRUE(check_writable("in_the_current_folder"));
}

}  // namespace
}  // namespace lockstep
