#include "base/files/read_file.h"

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kHead = FileBuffer::kHead;

std::string text_of(std::size_t bytes, char first = 'a') {
  std::string out(bytes, first);
  for (std::size_t i = 0; i < bytes; ++i)
    out[i] = static_cast<char>(first + static_cast<int>(i % 23));
  return out;
}

class ReadFileTest : public testing::Test {
 protected:
  // What `buffer_` holds of that file; in an error its message.
  std::string read(const std::string& path, std::size_t limit = kLargestFile,
                   const FileBuffer::Wanted& wanted = nullptr) {
    const Result<std::string_view> bytes = buffer_.read(path, limit, wanted);
    if (bytes) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bytes->data()) % alignof(std::max_align_t), 0U);
      return std::string(*bytes);
    }
    EXPECT_EQ(bytes.error().location.file, path);
    EXPECT_FALSE(bytes.error().fix.empty());
    return "error: " + bytes.error().message;
  }

  TempDir dir_;
  FileBuffer buffer_;
};

TEST_F(ReadFileTest, ReadsSeveralFilesInTurn) {
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, std::size_t{65535}, std::size_t{65536}, kHead - 1, kHead,
        kHead + 1, std::size_t{20} << 20U, std::size_t{3}}) {
    const std::string text = text_of(size);
    const std::string path = dir_.write("f", text);
    EXPECT_TRUE(read(path) == text) << size;
    EXPECT_TRUE(read(path, kLargestFile, [](std::string_view) { return true; }) == text) << size;
    EXPECT_TRUE(*read_file(path, size) == text) << size;
  }
}

TEST_F(ReadFileTest, ReadsFilesWithoutASize) {
  EXPECT_NE(read("/proc/self/status").find("VmPeak"), std::string::npos);
  EXPECT_EQ(read("/proc/self/status", 10), "error: the file is larger than 10 B");
}

TEST_F(ReadFileTest, OnlyTheHeadIsReadOfWhatIsNotWanted) {
  const std::string text = text_of(kHead + 1000);
  const std::string path = dir_.write("f", text);
  std::size_t seen = 0;
  const auto refuse = [&](std::string_view head) {
    seen = head.size();
    return false;
  };
  EXPECT_TRUE(read(path, kLargestFile, refuse) == text.substr(0, kHead));
  EXPECT_EQ(seen, kHead);
  fs::resize_file(path, std::uintmax_t{1} << 40U);  // sparse: nothing of it is there
  EXPECT_TRUE(read(path, kLargestFile, refuse).size() == kHead);
  EXPECT_EQ(read(dir_.write("g", "abc"), kLargestFile, refuse), "abc");
  EXPECT_EQ(seen, 3U);
}

TEST_F(ReadFileTest, WhatIsTooLargeIsAnError) {
  const std::string path = dir_.write("f", "12345");
  EXPECT_EQ(read(path, 5), "12345");
  EXPECT_EQ(read(path, 4), "error: the file is larger than 4 B");
  fs::resize_file(path, std::uintmax_t{1} << 40U);
  EXPECT_EQ(read(path), "error: the file is larger than 16 GiB");
  EXPECT_EQ(read(path, SIZE_MAX), "error: the file is larger than 16 GiB");
  EXPECT_EQ(read(path, kLargestFile, [](std::string_view) { return true; }),
            "error: the file is larger than 16 GiB");
}

// The callback runs between two reads of the file: as if another process had done it.
TEST_F(ReadFileTest, AFileThatShrinksMeanwhileIsShort) {
  const std::string text = text_of(3 * kHead);
  const std::string path = dir_.write("f", text);
  const std::string got = read(path, kLargestFile, [&](std::string_view head) {
    fs::resize_file(path, 1000);
    return head.size() == kHead;
  });
  EXPECT_TRUE(got == text.substr(0, kHead));
}

TEST_F(ReadFileTest, AFileThatGrowsMeanwhileIsReadToItsEnd) {
  const std::string text = text_of(kHead);
  const std::string more = text_of(5 * kHead, 'A');
  const std::string path = dir_.write("f", text);
  const auto grow = [&](std::string_view) {
    std::ofstream(path, std::ios::binary | std::ios::app) << more;
    return true;
  };
  EXPECT_TRUE(read(path, kLargestFile, grow) == text + more);
  EXPECT_EQ(read(dir_.write("f", text), kHead + 7, grow), "error: the file is larger than 2 MiB");
}

TEST_F(ReadFileTest, WhatIsNoFileIsAnErrorThatNamesIt) {
  EXPECT_EQ(read(dir_.file("absent")), "error: cannot open the file: No such file or directory");
  EXPECT_EQ(read(dir_.path()), "error: this is a folder, and a file is needed");
  EXPECT_EQ(read("/dev/zero"), "error: not a regular file");
  ASSERT_EQ(::mkfifo(dir_.file("fifo").c_str(), 0600), 0);
  EXPECT_EQ(read(dir_.file("fifo")), "error: not a regular file");
  EXPECT_FALSE(read_file(dir_.path(), 10));
  EXPECT_FALSE(read_file_end(dir_.path(), 10));
}

TEST_F(ReadFileTest, TheEndOfAFile) {
  const std::string path = dir_.write("f", "0123456789");
  EXPECT_EQ(*read_file_end(path, 3), "789");
  EXPECT_EQ(*read_file_end(path, 10), "0123456789");
  EXPECT_EQ(*read_file_end(path, 100), "0123456789");
  EXPECT_EQ(*read_file_end(dir_.write("g", ""), 100), "");
}

TEST(MappedFile, GivesTheBytesOfAFile) {
  const TempDir dir;
  Result<MappedFile> file = MappedFile::open(dir.write("a", "hello"));
  ASSERT_TRUE(file);
  EXPECT_EQ(file->bytes(), "hello");
  const MappedFile moved = std::move(*file);
  EXPECT_EQ(moved.bytes(), "hello");
}

TEST(MappedFile, AnEmptyFileIsAnEmptyView) {
  const TempDir dir;
  const Result<MappedFile> file = MappedFile::open(dir.write("a", ""));
  ASSERT_TRUE(file);
  EXPECT_EQ(file->bytes(), "");
}

TEST(MappedFile, WhatIsNoFileIsAnErrorThatNamesIt) {
  const TempDir dir;
  const Result<MappedFile> absent = MappedFile::open(dir.file("absent"));
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().location.file, dir.file("absent"));
  const Result<MappedFile> folder = MappedFile::open(dir.path());
  ASSERT_FALSE(folder);
  EXPECT_EQ(folder.error().message, "this is a folder, and a file is needed");
}

}  // namespace
}  // namespace lockstep
