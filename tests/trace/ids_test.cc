#include "trace/ids.h"

#include <string>
#include <utility>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using WordId = StrongId<struct WordTag, std::uint32_t>;

TEST(Interner, EqualValuesShareAnId) {
  Interner<std::string, WordId> words;
  const WordId world = words.intern("world");
  EXPECT_EQ(words.intern("world"), world);
  EXPECT_NE(words.intern("other"), world);
  EXPECT_EQ(words[world], "world");
  EXPECT_EQ(words.size(), 3U);
}

TEST(Interner, IdZeroIsTheEmptyValue) {
  Interner<std::string, WordId> words;
  EXPECT_EQ(words.intern(""), WordId{});
  EXPECT_EQ(words[WordId{}], "");
}

TEST(Interner, StringsAreUtf8) {
  Interner<std::string, WordId> words;
  const WordId broken = words.intern("a\xebk");
  EXPECT_EQ(words[broken], "a\uFFFDk");
  EXPECT_EQ(words.intern("a\xebk"), broken);
  EXPECT_EQ(words.intern("a\uFFFDk"), broken);
  EXPECT_NE(words.intern("a\u00ebk"), broken);
}

TEST(Interner, ReferencesOutliveGrowthAndMoves) {
  Interner<std::string, WordId> words;
  const WordId first = words.intern("first");
  const std::string& text = words[first];
  for (int i = 0; i < 10000; ++i) words.intern(std::to_string(i));
  Interner<std::string, WordId> moved = std::move(words);
  EXPECT_EQ(&moved[first], &text);
  EXPECT_EQ(moved.intern("9999"), WordId(10001));
}

}  // namespace
}  // namespace lockstep
