#include "base/files/gzip.h"

#include <gtest/gtest.h>

#include "base/files/read_file.h"

namespace lockstep {
namespace {

constexpr std::size_t kNoLimit = SIZE_MAX;

std::string sample() {
  std::string text;
  for (int i = 0; i < 20000; ++i) text += std::to_string(i * 7919) + "\n";
  return text;
}

TEST(Gzip, ThereAndBack) {
  for (const std::string& text : {std::string(), std::string("a"), sample()}) {
    const Result<Inflated> back = gunzip(gzip(text), "f", kNoLimit);
    ASSERT_TRUE(back);
    EXPECT_EQ(back->text, text);
    EXPECT_FALSE(back->truncated);
  }
}

TEST(Gzip, SeveralMembersAreOneText) {
  const Result<Inflated> back = gunzip(gzip("one ") + gzip("two"), "f", kNoLimit);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->text, "one two");
}

TEST(Gzip, WhatWasCutOffGivesWhatCameBefore) {
  const std::string text = sample();
  const std::string packed = gzip(text);
  for (std::size_t cut = 2; cut < packed.size(); cut += 101) {
    const Result<Inflated> back = gunzip(packed.substr(0, cut), "f", kNoLimit);
    ASSERT_TRUE(back) << cut;
    EXPECT_TRUE(back->truncated) << cut;
    EXPECT_TRUE(text.starts_with(back->text)) << cut;
  }
}

TEST(Gzip, DamageIsNoticed) {
  std::string packed = gzip(sample());
  packed[packed.size() / 2] = static_cast<char>(~packed[packed.size() / 2]);
  const Result<Inflated> back = gunzip(packed, "f", kNoLimit);
  ASSERT_TRUE(back);
  EXPECT_TRUE(back->truncated);
}

TEST(Gzip, ABombIsRefused) {
  const std::string bomb = gzip(std::string(10'000'000, 'a'));
  const Result<Inflated> back = gunzip(bomb, "f", 1'000'000);
  ASSERT_FALSE(back);
  EXPECT_EQ(back.error().message, "unpacks to more than 977 KiB");
  EXPECT_EQ(back.error().location.file, "f");
}

TEST(Gzip, TheLimitIsTheLastSizeThatIsTaken) {
  const std::string text = sample();
  EXPECT_TRUE(gunzip(gzip(text), "f", text.size()));
  EXPECT_FALSE(gunzip(gzip(text), "f", text.size() - 1));
}

TEST(Gzip, ALengthThatLiesTakesNoMemory) {
  const std::string text = sample();
  for (const char byte : {'\0', '\x01', '\xff'}) {
    std::string packed = gzip(text);
    packed[packed.size() - 2] = byte;  // of ISIZE, which zlib checks in the end
    const Result<Inflated> back = gunzip(packed, "f", 10 * text.size());
    ASSERT_TRUE(back);
    EXPECT_EQ(back->text, text);
    EXPECT_TRUE(back->truncated);
    EXPECT_LE(back->text.capacity(), 10 * text.size());
  }
}

TEST(Gzip, WhatAFileMayUnpackTo) {
  EXPECT_EQ(inflation_limit(0), std::size_t{256} << 20U);
  EXPECT_EQ(inflation_limit(1000), std::size_t{256} << 20U);
  EXPECT_EQ(inflation_limit(std::size_t{2} << 20U), std::size_t{400} << 20U);
  EXPECT_EQ(inflation_limit(SIZE_MAX), kLargestFile);
}

TEST(Gzip, OtherBytesAreNotGzip) {
  EXPECT_FALSE(looks_like_gzip(""));
  EXPECT_FALSE(looks_like_gzip("\x1f"));
  EXPECT_TRUE(looks_like_gzip("\x1f\x8b"));
  EXPECT_FALSE(gunzip("{\"header\":1}", "f", kNoLimit));
}

}  // namespace
}  // namespace lockstep
