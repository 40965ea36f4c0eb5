// What is in the files that a user names, unpacked, and how much memory that may take.
#include "trace/trace_files.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files/gzip.h"
#include "tests/support/temp_dir.h"
#include "trace/formats/ring/reader.h"
#include "trace/formats/ring/writer.h"

namespace lockstep::trace {
namespace {

using testing::ElementsAre;
using testing::StartsWith;

namespace fs = std::filesystem;

constexpr std::size_t kHead = FileBuffer::kHead;

class TraceFilesTest : public testing::Test {
 protected:
  // All contents of that file; in an error its message and fix.
  std::vector<std::string> contents(const std::string& path) {
    std::vector<std::string> out;
    const Status opened = for_each_content(
        path, buffer_,
        {.wants = wants_, .use = [&](const Content& content) { out.emplace_back(content.bytes); }});
    if (!opened) out = {opened.error().message, opened.error().fix};
    return out;
  }

  TempDir dir_;
  FileBuffer buffer_;
  std::function<bool(std::string_view)> wants_ = [](std::string_view) { return true; };
};

TEST_F(TraceFilesTest, PlainAndPacked) {
  EXPECT_THAT(contents(dir_.write("a", "text")), ElementsAre("text"));
  EXPECT_THAT(contents(dir_.write("a.gz", gzip("text"))), ElementsAre("text"));
  EXPECT_THAT(contents(dir_.write("b", "")), ElementsAre(""));
}

TEST_F(TraceFilesTest, OfAFileThatNobodyWantsTheHeadIsRead) {
  wants_ = [](std::string_view) { return false; };
  const std::string path = dir_.write("checkpoint", "weights");
  fs::resize_file(path, std::uintmax_t{1} << 40U);
  const std::vector<std::string> read = contents(path);
  ASSERT_EQ(read.size(), 1U);
  EXPECT_EQ(read[0].size(), kHead);
  EXPECT_THAT(contents(dir_.write("a.gz", gzip("text"))), ElementsAre("text")) << "not asked";
}

TEST_F(TraceFilesTest, AFileThatIsTruncatedWhileItIsReadIsShort) {
  const std::string path = dir_.write("rank_0", std::string(4 * kHead, 'x'));
  wants_ = [&](std::string_view) {
    fs::resize_file(path, 10);
    return true;
  };
  const std::vector<std::string> read = contents(path);
  ASSERT_EQ(read.size(), 1U);
  EXPECT_TRUE(read[0] == std::string(kHead, 'x'));
}

TEST_F(TraceFilesTest, AFileThatIsTruncatedWhileItIsParsedStaysWhole) {
  const std::string path = dir_.write("rank_0", std::string(kHead, 'x'));
  const Status opened =
      for_each_content(path, buffer_, {.wants = wants_, .use = [&](const Content& content) {
                                         fs::resize_file(path, 0);
                                         EXPECT_TRUE(content.bytes == std::string(kHead, 'x'));
                                       }});
  EXPECT_TRUE(opened);
}

// A reader needs to see what a running job writes: the stamps of its records.
TEST_F(TraceFilesTest, ARingFileIsSeenAsItIsAtEachLook) {
  RingWriter::Options options;
  options.path = dir_.file("rank_0.ring");
  options.world_size = 1;
  options.capacity = 64;
  const auto writer = RingWriter::create(options);
  ASSERT_TRUE(writer);
  const Status opened =
      for_each_content(options.path, buffer_, {.wants = wants_, .use = [&](const Content& content) {
                                                 (*writer)->step(0, 0, 0);
                                                 Tables tables;
                                                 const auto trace = read_ring_trace(
                                                     content.bytes, content.name, tables);
                                                 ASSERT_TRUE(trace);
                                                 EXPECT_EQ(trace->events.size(), 1U);
                                               }});
  EXPECT_TRUE(opened);
}

TEST_F(TraceFilesTest, ASmallFileMayUnpackTo256MiB) {
  const std::string packed = gzip(std::string(std::size_t{1} << 20U, ' '));
  std::string members;
  for (int i = 0; i < 256; ++i) members += packed;
  const std::vector<std::string> whole = contents(dir_.write("a.gz", members));
  ASSERT_EQ(whole.size(), 1U);
  EXPECT_EQ(whole[0].size(), std::size_t{256} << 20U);
  EXPECT_THAT(
      contents(dir_.write("a.gz", members + gzip(" "))),
      ElementsAre("unpacks to more than 256 MiB", StartsWith("unpack it yourself if that is")));
}

}  // namespace
}  // namespace lockstep::trace
