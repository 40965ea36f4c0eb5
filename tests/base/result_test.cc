#include "base/result.h"

#include <cerrno>
#include <memory>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Location, LeavesOutWhatIsUnknown) {
  EXPECT_EQ((Location{"a.yaml", 3, 7}.str()), "a.yaml:3:7");
  EXPECT_EQ((Location{"a.yaml", 3}.str()), "a.yaml:3");
  EXPECT_EQ((Location{"a.yaml"}.str()), "a.yaml");
  EXPECT_EQ((Location{"", 3}.str()), "line 3");
  EXPECT_EQ(Location{}.str(), "");
}

TEST(Error, MayNameItsFileAsPeopleDo) {
  const auto names = [](const std::string& path) {
    return path == "/tmp/kept.yaml" ? std::string("standard input") : path;
  };
  EXPECT_EQ(renamed({"bad", {"/tmp/kept.yaml", 3, 7}, ""}, names).str(),
            "standard input:3:7: error: bad");
  EXPECT_EQ(renamed({"bad", {"job.yaml", 3, 7}, ""}, names).str(), "job.yaml:3:7: error: bad");
  EXPECT_EQ(renamed({"bad", {}, ""}, names).str(), "error: bad");
}

TEST(Error, SaysWhereWhatAndHowToFixIt) {
  EXPECT_EQ((Error{"no such file", {"a"}, "name another"}.str()),
            "a: error: no such file\n  fix: name another");
  EXPECT_EQ((Error{"no traces", {}, ""}.str()), "error: no traces");
}

TEST(Error, IsSafeToPrintWhateverTheFileIsCalled) {
  const Error error{"not a trace", {"a\x1b[2J\n\xff"}, "name \x1b another\nor two"};
  EXPECT_EQ(error.str(),
            "a\\x1b[2J\\x0a\uFFFD: error: not a trace\n  fix: name \\x1b another\nor two");
  EXPECT_EQ(error.summary(), "a\\x1b[2J\\x0a\uFFFD: not a trace");
}

TEST(Error, AMessageKeepsItsLinesButInASummary) {
  const Error error{"no trace: it said\n    \x07 bell", {}, ""};
  EXPECT_EQ(error.str(), "error: no trace: it said\n    \\x07 bell");
  EXPECT_EQ(error.summary(), "no trace: it said\\x0a    \\x07 bell");
}

TEST(Result, HoldsAValueOrAnError) {
  Result<std::unique_ptr<int>> value(std::make_unique<int>(7));
  ASSERT_TRUE(value);
  EXPECT_EQ(**value, 7);
  const std::unique_ptr<int> taken = std::move(*value);
  EXPECT_EQ(*taken, 7);

  const Result<int> error(Error{"bad", {"f", 1}, ""});
  ASSERT_FALSE(error);
  EXPECT_EQ(error.error().message, "bad");
}

TEST(Result, StatusIsAResultOfNothing) {
  EXPECT_TRUE(Status::ok());
  EXPECT_FALSE(Status(Error{"bad", {}, ""}));
}

TEST(ResultDeathTest, TakingWhatIsNotThereIsOurOwnBug) {
  const Result<int> error(Error{"bad", {}, ""});
  EXPECT_DEATH(static_cast<void>(*error), "check failed: .*holds an error");
}

TEST(SystemError, SaysWhatWasTriedWhyItFailedAndWhatToDo) {
  EXPECT_EQ(system_error("cannot open the file", ENOENT, "a/b").str(),
            "a/b: error: cannot open the file: No such file or directory\n"
            "  fix: check how the path is written");
  EXPECT_EQ(system_error("cannot write", ENOSPC, "").str(),
            "error: cannot write: No space left on device\n  fix: free some space");
}

TEST(SystemError, NeverWithoutAFix) {
  for (int code = 0; code < 140; ++code) EXPECT_FALSE(system_error("", code, "").fix.empty());
  EXPECT_FALSE(system_error("", -1, "").fix.empty());
}

}  // namespace
}  // namespace lockstep
