// Text in UTF-16, as PowerShell's redirections write it.
#include "trace/utf16.h"

#include <string>

#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"
#include "trace/load.h"

namespace lockstep::trace {
namespace {

std::string utf16(std::u16string_view text, bool big_endian) {
  std::string out;
  for (const char16_t unit : text) {
    const auto high = static_cast<char>(unit >> 8U);
    const auto low = static_cast<char>(unit & 0xFFU);
    out += big_endian ? high : low;
    out += big_endian ? low : high;
  }
  return out;
}

TEST(Utf16, BecomesUtf8) {
  const std::u16string_view text = u"\uFEFFstep 3: loss 2,1 € 😀\r\n";
  for (const bool big_endian : {false, true})
    EXPECT_EQ(utf8_of_utf16(utf16(text, big_endian)), "step 3: loss 2,1 € 😀\r\n");
  EXPECT_EQ(utf8_of_utf16("\xFF\xFE"), "");
  EXPECT_EQ(utf8_of_utf16("step 3\n"), std::nullopt);
  EXPECT_EQ(utf8_of_utf16("\xFF"), std::nullopt);
}

TEST(Utf16, WhatIsNoCharacterIsReplaced) {
  const std::u16string alone{u'\uFEFF', u'a', char16_t{0xDC00}, u'b'};
  EXPECT_EQ(utf8_of_utf16(utf16(alone, false)), "a\uFFFDb");
  const std::u16string cut{u'\uFEFF', u'a', char16_t{0xD83D}};
  EXPECT_EQ(utf8_of_utf16(utf16(cut, false)), "a") << "the other half is missing";
  EXPECT_EQ(utf8_of_utf16(utf16(u"\uFEFFab", false) + "c"), "ab");
}

TEST(Utf16, LogsAreReadAsAnyOther) {
  TempDir dir;
  dir.write("rank_1.log", utf16(u"\uFEFFstep 1\r\nTraceback (most recent call last):\r\n"
                                u"  File \"t.py\", line 1, in f\r\nValueError: no more\r\n",
                                false));
  LoadOptions options;
  options.evidence = true;
  const Result<trace::Run> run = load_run({dir.path()}, options);
  ASSERT_TRUE(run) << run.error().str();
  ASSERT_EQ(run->notes.size(), 1U);
  EXPECT_EQ(run->notes[0].text, "ValueError: no more");
  EXPECT_EQ(run->notes[0].rank, Rank(1));
}

}  // namespace
}  // namespace lockstep::trace
