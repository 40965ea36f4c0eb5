#include "base/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/folded_ranges.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;

TEST(ContainsAny, OneOfThePartsIsEnough) {
  EXPECT_TRUE(contains_any("out of memory", {"lost", "memory"}));
  EXPECT_FALSE(contains_any("out of memory", {"lost", "Memory"}));
  EXPECT_FALSE(contains_any("out of memory", {}));
}

TEST(TakeUntil, TakesOnePartAfterTheOther) {
  std::string_view rest = "a\n\nb";
  EXPECT_EQ(take_until(rest, '\n'), "a");
  EXPECT_EQ(take_until(rest, '\n'), "");
  EXPECT_EQ(take_until(rest, '\n'), "b");
  EXPECT_EQ(rest, "");
  EXPECT_EQ(take_until(rest, '\n'), "");
}

TEST(Split, KeepsEmptyParts) {
  EXPECT_THAT(split("a,,b", ','), ElementsAre("a", "", "b"));
  EXPECT_THAT(split("a,", ','), ElementsAre("a", ""));
  EXPECT_THAT(split("", ','), ElementsAre(""));
}

TEST(EditDistance, CountsInsertionsDeletionsAndSubstitutions) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("ranks", "rank"), 1U);
}

TEST(Nearest, FindsWhatWasMeantOrNothing) {
  const std::vector<std::string> keys = {"ranks", "backend", "strategy", "id"};
  EXPECT_EQ(nearest("rnaks", keys), "ranks");
  EXPECT_EQ(nearest("stratgey", keys), "strategy");
  EXPECT_EQ(nearest("colour", keys), "");
  EXPECT_EQ(nearest("zz", keys), "");  // as far from "id" as it is long
  EXPECT_EQ(nearest("ranks", {}), "");
}

TEST(JoinAnd, NamesAllOrTheFirstFew) {
  const std::vector<std::string> three = {"a", "b", "c"};
  EXPECT_EQ(join_and({}), "");
  EXPECT_EQ(join_and(std::vector<std::string>{"a"}), "a");
  EXPECT_EQ(join_and(three), "a, b and c");
  EXPECT_EQ(join_and(three, 3), "a, b and c");
  EXPECT_EQ(join_and(three, 2), "a, b and 1 more");
  EXPECT_EQ(join_and(three, 1), "a and 2 more");
}

TEST(Ranges, RunsOfThreeAndMoreAreShortened) {
  const auto of = [](std::vector<std::int32_t> ranks) { return ranges(ranks); };
  EXPECT_EQ(of({}), "");
  EXPECT_EQ(of({7}), "7");
  EXPECT_EQ(of({0, 1}), "0,1");
  EXPECT_EQ(of({0, 1, 2, 3, 7}), "0-3,7");
}

TEST(FoldedRanges, WhatRepeatsIsFolded) {
  const auto every = [](std::int32_t first, std::int32_t step, int count, int size = 1) {
    std::vector<std::int32_t> out;
    for (int i = 0; i < count; ++i)
      for (int k = 0; k < size; ++k) out.push_back(first + i * step + k);
    return out;
  };
  EXPECT_EQ(folded_ranges(every(5, 8, 128)), "5,13,...,1021 (every 8th)");
  EXPECT_EQ(folded_ranges(every(0, 2, 5)), "0,2,...,8 (every 2nd)");
  EXPECT_EQ(folded_ranges(every(0, 13, 6)), "0,13,...,65 (every 13th)");
  EXPECT_EQ(folded_ranges(every(0, 64, 16, 8)), "0-7,64-71,...,960-967 (8 of every 64)");
  EXPECT_EQ(folded_ranges(every(0, 1, 1024)), "0-1023");
  EXPECT_EQ(folded_ranges(every(0, 8, 4)), "0,8,16,24") << "a list as short as its fold stays";
  EXPECT_EQ(folded_ranges({}), "");
  EXPECT_EQ(folded_ranges(std::vector<std::int32_t>{0, 1, 2, 3, 7, 8}), "0-3,7,8");
  // Those who wait for one of them.
  std::vector<std::int32_t> gap = every(5, 8, 128);
  gap.erase(gap.begin() + 62);
  EXPECT_EQ(folded_ranges(gap), "5,13,...,1021 (every 8th but 501)");
  gap.erase(gap.begin() + 1);
  EXPECT_EQ(folded_ranges(gap), "5,21,29,...,1021 (every 8th but 501)");
  gap = every(0, 16, 8, 4);
  gap.erase(gap.begin() + 16, gap.begin() + 20);
  EXPECT_EQ(folded_ranges(gap), "0-3,16-19,...,112-115 (4 of every 16 but 64-67)");
  // More are not worth their names.
  gap = every(0, 4, 20);
  for (const int hole : {15, 12, 9}) gap.erase(gap.begin() + hole);
  EXPECT_EQ(folded_ranges(gap), "0,4,...,56 (every 4th but 36 and 48),64,68,72,76");
  // As many ranks as the largest int: distances do not overflow.
  EXPECT_EQ(folded_ranges(std::vector<std::int32_t>{INT32_MIN, -5, INT32_MAX}),
            "-2147483648,-5,2147483647");
}

TEST(Plural, OneAndMany) {
  EXPECT_EQ(plural(1, "rank"), "1 rank");
  EXPECT_EQ(plural(0, "rank"), "0 ranks");
  EXPECT_EQ(plural(2, "entry", "entries"), "2 entries");
  EXPECT_EQ(plural(1023, "rank"), "1,023 ranks");
}

TEST(Hex, SixteenDigits) { EXPECT_EQ(hex(255), "00000000000000ff"); }

TEST(Printable, KeepsTextAndDisarmsTheRest) {
  EXPECT_EQ(printable("a.weight é 漢 😀"), "a.weight é 漢 😀");
  EXPECT_EQ(printable("\x1b[31mred\n"), "\\x1b[31mred\\x0a");
  EXPECT_EQ(printable("\x7f"), "\\x7f");
  EXPECT_EQ(printable("\xc2\x9b"), "\\x9b");                   // a C1 control
  EXPECT_EQ(printable("\xff"), "\uFFFD");                      // no lead byte
  EXPECT_EQ(printable("\xc3"), "\uFFFD");                      // cut off
  EXPECT_EQ(printable("\xc0\x80"), "\uFFFD\uFFFD");            // overlong
  EXPECT_EQ(printable("\xed\xa0\x80"), "\uFFFD\uFFFD\uFFFD");  // a surrogate
  EXPECT_EQ(printable(std::string_view("\0", 1)), "\\x00");
}

TEST(OneLine, JoinsLinesAsInASentence) {
  EXPECT_EQ(one_line("one"), "one");
  EXPECT_EQ(one_line("a piece is missing\r\n  fix: name it\n\n"),
            "a piece is missing; fix: name it");
  EXPECT_EQ(one_line("Expected this:\n\tthat.\nThen"), "Expected this: that. Then");
  EXPECT_EQ(one_line(" \n\t\n"), "");
}

TEST(ToUtf8, ReplacesOnlyWhatIsNoText) {
  EXPECT_EQ(to_utf8("a\x1b é\n"), "a\x1b é\n");
  EXPECT_EQ(to_utf8("a\xff\xc3z"), "a\uFFFD\uFFFDz");
  EXPECT_EQ(to_utf8(""), "");
}

TEST(IsUtf8, TellsTextFromOtherBytes) {
  EXPECT_TRUE(is_utf8("a\x1b é 漢 😀\n"));
  EXPECT_TRUE(is_utf8(""));
  EXPECT_FALSE(is_utf8("a\xc3"));
  EXPECT_EQ(utf8_length("é\xffz"), 2U);
  EXPECT_FALSE(is_utf8("\xed\xa0\x80"));
}

TEST(Wrap, BreaksAtBlanksAndIndentsWhatFollows) {
  EXPECT_EQ(wrap("", 10), "");
  EXPECT_EQ(wrap("one two three", 20), "one two three");
  EXPECT_EQ(wrap("one two three", 8), "one two\nthree");
  EXPECT_EQ(wrap("one two three", 9, 2), "one two\n  three");
  EXPECT_EQ(wrap("incomprehensibilities", 5), "incomprehensibilities");
  EXPECT_EQ(wrap("ééé ééé", 7), "ééé ééé");  // columns, not bytes
}

}  // namespace
}  // namespace lockstep
