// What is in the files that a user names, unpacked, and how much memory that may take.
#include "trace/trace_files.h"

#include <archive.h>
#include <archive_entry.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <utility>
#include <vector>

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

using Members = std::vector<std::pair<std::string, std::string>>;  // names and contents

// An archive of these, made by libarchive. `filter`: ARCHIVE_FILTER_ZSTD, … `written`: when all
// were, in seconds since 1970.
std::string archive_of(const Members& members, int format, int filter = ARCHIVE_FILTER_NONE,
                       std::int64_t written = 0) {
  archive* writer = archive_write_new();
  archive_write_set_format(writer, format);
  archive_write_add_filter(writer, filter);
  std::string out(std::size_t{1} << 20U, '\0');
  std::size_t used = 0;
  archive_write_set_bytes_in_last_block(writer, 1);
  EXPECT_EQ(archive_write_open_memory(writer, out.data(), out.size(), &used), ARCHIVE_OK);
  for (const auto& [name, text] : members) {
    archive_entry* entry = archive_entry_new();
    archive_entry_set_pathname(entry, name.c_str());
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_entry_set_perm(entry, 0644);
    if (written != 0) archive_entry_set_mtime(entry, written, 0);
    archive_entry_set_size(entry, static_cast<la_int64_t>(text.size()));
    EXPECT_EQ(archive_write_header(writer, entry), ARCHIVE_OK);
    archive_write_data(writer, text.data(), text.size());
    archive_entry_free(entry);
  }
  EXPECT_EQ(archive_write_close(writer), ARCHIVE_OK) << archive_error_string(writer);
  archive_write_free(writer);
  out.resize(used);
  return out;
}

std::string zip_of(const Members& members) { return archive_of(members, ARCHIVE_FORMAT_ZIP); }

std::string tar_of(const Members& members, int filter) {
  return archive_of(members, ARCHIVE_FORMAT_TAR_USTAR, filter);
}

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

TEST_F(TraceFilesTest, OnlyTheHeadOfAFileThatNobodyWantsIsRead) {
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

TEST_F(TraceFilesTest, ArchivesOfEveryKindGiveTheirMembers) {
  const Members members = {{"node0/rank_0", "a"}, {"node1/rank_1", "b"}};
  EXPECT_THAT(contents(dir_.write("a.zip", zip_of(members))), ElementsAre("a", "b"));
  for (const int filter :
       {ARCHIVE_FILTER_NONE, ARCHIVE_FILTER_GZIP, ARCHIVE_FILTER_XZ, ARCHIVE_FILTER_ZSTD})
    EXPECT_THAT(contents(dir_.write("a.tar", tar_of(members, filter))), ElementsAre("a", "b"))
        << filter;
}

TEST_F(TraceFilesTest, TellsWhenFilesAndMembersWereWritten) {
  const auto written = [&](const std::string& path) {
    fs::last_write_time(path, std::chrono::file_clock::from_sys(
                                  std::chrono::sys_seconds(std::chrono::seconds(1'800'000'000))));
    std::vector<Nanos> out;
    const Status opened = for_each_content(
        path, buffer_,
        {.wants = wants_, .use = [&](const Content& content) { out.push_back(content.written); }});
    EXPECT_TRUE(opened);
    return out;
  };
  constexpr Nanos kSecond = 1'000'000'000;
  EXPECT_THAT(written(dir_.write("a", "text")), ElementsAre(1'800'000'000 * kSecond));
  EXPECT_THAT(written(dir_.write("a.gz", gzip("text"))), ElementsAre(1'800'000'000 * kSecond));
  const auto tar = [&](std::int64_t time) {
    return archive_of({{"rank_0.gz", gzip("a")}, {"rank_1", "b"}},
                      ARCHIVE_FORMAT_TAR_PAX_RESTRICTED, ARCHIVE_FILTER_GZIP, time);
  };
  EXPECT_THAT(written(dir_.write("a.tar", tar(1'700'000'000))),
              ElementsAre(1'700'000'000 * kSecond, 1'700'000'000 * kSecond));
  for (const std::int64_t none : {std::int64_t{0}, std::int64_t{-5}, INT64_MAX / 4})
    EXPECT_THAT(written(dir_.write("a.tar", tar(none))), ElementsAre(kNoTime, kNoTime)) << none;
  // A zip archive has local times, of a zone that it does not tell.
  EXPECT_THAT(written(dir_.write("a.zip", archive_of({{"rank_0", "a"}}, ARCHIVE_FORMAT_ZIP,
                                                     ARCHIVE_FILTER_NONE, 1'700'000'000))),
              ElementsAre(kNoTime));
}

// What a CI service offers for download: a zip file of what the job packed.
TEST_F(TraceFilesTest, PackedFilesInArchivesAreUnpacked) {
  const std::string inner =
      tar_of({{"rank_0.gz", gzip("a")}, {"rank_1", "b"}}, ARCHIVE_FILTER_ZSTD);
  EXPECT_THAT(contents(dir_.write("a.zip", zip_of({{"dumps.tar.zst", inner}}))),
              ElementsAre("a", "b"));
}

TEST_F(TraceFilesTest, ACheckpointIsNoArchive) {
  const std::string checkpoint = zip_of({{"model/data.pkl", "weights"}, {"model/data/0", "w"}});
  EXPECT_THAT(contents(dir_.write("model.pt", checkpoint)), ElementsAre(checkpoint));
}

// 64 files of 8 MiB in a few KiB: each fits the limit of 256 MiB, and all together do not.
TEST_F(TraceFilesTest, AllMembersTogetherUnpackToNoMoreThanOneFileMay) {
  std::string member;
  for (int i = 0; i < 8; ++i) member += gzip(std::string(std::size_t{1} << 20U, ' '));
  Members members;
  for (int i = 0; i < 64; ++i) members.emplace_back("rank_" + std::to_string(i) + ".gz", member);
  const std::string path = dir_.write("a.zip", zip_of(members));
  std::size_t total = 0;
  const Status opened = for_each_content(
      path, buffer_,
      {.wants = wants_, .use = [&](const Content& content) { total += content.bytes.size(); }});
  ASSERT_FALSE(opened);
  EXPECT_THAT(opened.error().message, StartsWith("unpacks to more than "));
  EXPECT_LE(total, std::size_t{256} << 20U);
}

TEST_F(TraceFilesTest, DamagedArchivesGiveWhatCameBefore) {
  const Members members = {{"rank_0", std::string(5000, 'a')}, {"rank_1", std::string(5000, 'b')}};
  for (const std::string& whole : {zip_of(members), tar_of(members, ARCHIVE_FILTER_XZ),
                                   tar_of(members, ARCHIVE_FILTER_ZSTD)}) {
    for (std::size_t cut = 0; cut < whole.size(); cut += 1 + whole.size() / 64)
      contents(dir_.write("cut", whole.substr(0, cut)));
    for (std::size_t at = 0; at < whole.size(); at += 1 + whole.size() / 64) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(~damaged[at]);
      for (const std::string& content : contents(dir_.write("damaged", damaged)))
        EXPECT_LE(content.size(), 10000U + 4096U);
    }
  }
  // The central directory is missing: the file was copied while it was written.
  const std::string zip = zip_of({{"rank_0", "a"}, {"rank_1", "b"}});
  EXPECT_EQ(contents(dir_.write("cut.zip", zip.substr(0, zip.find("PK\x01\x02")))).at(0), "a");
}

TEST(FindFiles, SearchesFoldersAsDeepAsAsked) {
  const TempDir dir;
  fs::create_directories(dir.file("node0/dumps/deep"));
  fs::create_directories(dir.file("attempt_0/node0"));
  fs::create_directory_symlink(dir.path(), dir.file("loop"));
  for (const char* name : {"a", "node0/b", "node0/dumps/c", "node0/dumps/deep/d", "attempt_0/e"})
    dir.write(name, "");
  const auto found = [&](int levels) {
    std::vector<std::string> out;
    const auto files = find_files({dir.path()}, {.levels = levels});
    for (const FoundFile& file : *files) out.push_back(fs::path(file.path).filename().string());
    return out;
  };
  EXPECT_THAT(found(0), ElementsAre("a"));
  EXPECT_THAT(found(1), ElementsAre("a", "b"));
  EXPECT_THAT(found(2), ElementsAre("a", "b", "c"));
}

}  // namespace
}  // namespace lockstep::trace
