#include "base/text.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(EditDistanceTest, CountsInsertionsDeletionsAndSubstitutions) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("ranks", "rank"), 1U);
}

TEST(NearestTest, FindsWhatWasMeantOrNothing) {
  const std::vector<std::string> keys = {"ranks", "backend", "strategy", "id"};
  EXPECT_EQ(nearest("rnaks", keys), "ranks");
  EXPECT_EQ(nearest("stratgey", keys), "strategy");
  EXPECT_EQ(nearest("colour", keys), "");
  EXPECT_EQ(nearest("zz", keys), "");  // as far from "id" as it is long
  EXPECT_EQ(nearest("ranks", {}), "");
}

TEST(JoinAndTest, NamesAllOrTheFirstFew) {
  const std::vector<std::string> three = {"a", "b", "c"};
  EXPECT_EQ(join_and({}), "");
  EXPECT_EQ(join_and(std::vector<std::string>{"a"}), "a");
  EXPECT_EQ(join_and(three), "a, b and c");
  EXPECT_EQ(join_and(three, 3), "a, b and c");
  EXPECT_EQ(join_and(three, 2), "a, b and 1 more");
  EXPECT_EQ(join_and(three, 1), "a and 2 more");
}

TEST(RangesTest, RunsOfThreeAndMoreAreShortened) {
  const auto of = [](std::vector<std::int32_t> ranks) { return ranges(ranks); };
  EXPECT_EQ(of({}), "");
  EXPECT_EQ(of({7}), "7");
  EXPECT_EQ(of({0, 1}), "0,1");
  EXPECT_EQ(of({0, 1, 2, 3, 7}), "0-3,7");
}

TEST(PluralTest, OneAndMany) {
  EXPECT_EQ(plural(1, "rank"), "1 rank");
  EXPECT_EQ(plural(0, "rank"), "0 ranks");
  EXPECT_EQ(plural(2, "entry", "entries"), "2 entries");
}

TEST(BytesInWordsTest, NeverMoreThanThereAre) {
  EXPECT_EQ(bytes_in_words(0), "0 bytes");
  EXPECT_EQ(bytes_in_words(1), "1 byte");
  EXPECT_EQ(bytes_in_words(1023), "1023 bytes");
  EXPECT_EQ(bytes_in_words(1024), "1 KiB");
  EXPECT_EQ(bytes_in_words(1024 + 512), "1.5 KiB");
  EXPECT_EQ(bytes_in_words((1U << 20U) - 1), "1023.9 KiB");
  EXPECT_EQ(bytes_in_words(256U << 20U), "256 MiB");
  EXPECT_EQ(bytes_in_words(std::uint64_t{16} << 30U), "16 GiB");
  EXPECT_EQ(bytes_in_words(UINT64_MAX), "16777215.9 TiB");
}

TEST(HexTest, SixteenDigits) { EXPECT_EQ(hex(255), "00000000000000ff"); }

TEST(PrintableTest, KeepsTextAndDisarmsTheRest) {
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

TEST(ToUtf8Test, ReplacesOnlyWhatIsNoText) {
  EXPECT_EQ(to_utf8("a\x1b é\n"), "a\x1b é\n");
  EXPECT_EQ(to_utf8("a\xff\xc3z"), "a\uFFFD\uFFFDz");
  EXPECT_EQ(to_utf8(""), "");
}

TEST(WrapTest, BreaksAtBlanksAndIndentsWhatFollows) {
  EXPECT_EQ(wrap("", 10), "");
  EXPECT_EQ(wrap("one two three", 20), "one two three");
  EXPECT_EQ(wrap("one two three", 8), "one two\nthree");
  EXPECT_EQ(wrap("one two three", 9, 2), "one two\n  three");
  EXPECT_EQ(wrap("incomprehensibilities", 5), "incomprehensibilities");
  EXPECT_EQ(wrap("ééé ééé", 7), "ééé ééé");  // columns, not bytes
}

}  // namespace
}  // namespace lockstep
