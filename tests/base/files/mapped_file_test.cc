#include "base/files/mapped_file.h"

#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"

namespace lockstep {
namespace {

TEST(MappedFileTest, GivesTheBytesOfAFile) {
  const TempDir dir;
  Result<MappedFile> file = MappedFile::open(dir.write("a", "hello"));
  ASSERT_TRUE(file);
  EXPECT_EQ(file->bytes(), "hello");
  const MappedFile moved = std::move(*file);
  EXPECT_EQ(moved.bytes(), "hello");
}

TEST(MappedFileTest, AnEmptyFileIsAnEmptyView) {
  const TempDir dir;
  const Result<MappedFile> file = MappedFile::open(dir.write("a", ""));
  ASSERT_TRUE(file);
  EXPECT_EQ(file->bytes(), "");
}

TEST(MappedFileTest, WhatIsNoFileIsAnErrorThatNamesIt) {
  const TempDir dir;
  const Result<MappedFile> absent = MappedFile::open(dir.file("absent"));
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().place.file, dir.file("absent"));
  const Result<MappedFile> folder = MappedFile::open(dir.path());
  ASSERT_FALSE(folder);
  EXPECT_EQ(folder.error().message, "not a regular file");
}

}  // namespace
}  // namespace lockstep
