#include <cerrno>

#include <gtest/gtest.h>

#include "base/result.h"

namespace lockstep {
namespace {

TEST(SystemErrorTest, SaysWhatWasTriedWhyItFailedAndWhatToDo) {
  EXPECT_EQ(system_error("cannot open the file", ENOENT, "a/b").str(),
            "a/b: error: cannot open the file: No such file or directory\n"
            "  fix: check how the path is written");
  EXPECT_EQ(system_error("cannot write", ENOSPC, "").str(),
            "error: cannot write: No space left on device\n  fix: free some space");
}

TEST(SystemErrorTest, NeverWithoutAFix) {
  for (int code = 0; code < 140; ++code) EXPECT_FALSE(system_error("", code, "").fix.empty());
  EXPECT_FALSE(system_error("", -1, "").fix.empty());
}

}  // namespace
}  // namespace lockstep
