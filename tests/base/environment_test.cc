#include "base/environment.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "base/files/write_file.h"
#include "tests/support/temp_dir.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

TEST(FindProgram, TakesTheFirstFolderThatHasIt) {
  const TempDir folder;
  for (const char* name : {"no", "first", "second"}) fs::create_directory(folder.file(name));
  for (const char* name : {"no/tool", "first/tool", "second/tool"})
    ASSERT_TRUE(write_file(folder.file(name), "#!/bin/sh\n"));
  for (const char* name : {"first/tool", "second/tool"})
    fs::permissions(folder.file(name), fs::perms::owner_exec, fs::perm_options::add);
  const std::string path =
      "/nowhere::" + folder.file("no") + ":" + folder.file("first") + ":" + folder.file("second");
  EXPECT_EQ(find_program("tool", path), folder.file("first/tool"));
  EXPECT_EQ(find_program("other", path), "");
  EXPECT_EQ(find_program("tool", ""), "");
}

TEST(FindProgram, TakesANameWithASlashForAFile) {
  EXPECT_EQ(find_program("/bin/sh", ""), "/bin/sh");
  EXPECT_EQ(find_program("./no-such-program", "/bin"), "");
  EXPECT_EQ(find_program("/bin", "/bin"), "") << "a folder is not a program";
}

}  // namespace
}  // namespace lockstep
