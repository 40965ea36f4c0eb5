#include "runtime/data/wordpiece.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/runtime/data/shared_data.h"

namespace lockstep::runtime {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

//                               0      1      2      3      4       5  6    7    8     9  10  11
constexpr const char* kPieces =
    "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ncafe\nun\n##aff\n##able\n!\n中\na\n";

WordPiece small() {
  Result<Vocabulary> vocabulary = Vocabulary::parse(kPieces, "vocab.txt");
  EXPECT_TRUE(vocabulary);
  return WordPiece(std::move(*vocabulary));
}

TEST(WordPiece, EqualsTheReferenceTokenizer) {
  const auto folder = shared_data("wordpiece");
  SKIP_WITHOUT(folder);
  Result<Vocabulary> vocabulary = Vocabulary::open((folder / "vocab.txt").string());
  ASSERT_TRUE(vocabulary) << vocabulary.error().str();
  const WordPiece tokenizer(std::move(*vocabulary));
  for (const std::string& line : file_lines(folder / "cases.jsonl")) {
    const auto wanted = nlohmann::json::parse(line);
    EXPECT_EQ(tokenizer.encode(wanted["text"].get<std::string>()),
              wanted["ids"].get<std::vector<TokenId>>())
        << line;
  }
}

TEST(WordPiece, TakesTheLongestPieces) {
  EXPECT_THAT(small().encode("unaffable"), ElementsAre(2, 6, 7, 8, 3));
}

TEST(WordPiece, AWordThatNoPiecesMakeIsOneUnknown) {
  EXPECT_THAT(small().encode("unaffected a"), ElementsAre(2, 1, 11, 3));
}

TEST(WordPiece, LowersAndStripsAccents) {
  EXPECT_THAT(small().encode("Café cafe\u0301 CAFÉ"), ElementsAre(2, 5, 5, 5, 3));
}

TEST(WordPiece, SplitsPunctuationAndIdeographs) {
  EXPECT_THAT(small().encode("a!中中"), ElementsAre(2, 11, 9, 10, 10, 3));
}

TEST(WordPiece, SpecialPiecesInTheTextAreThemselves) {
  EXPECT_THAT(small().encode("a[SEP]a [sep]"), ElementsAre(2, 11, 3, 11, 1, 1, 1, 3));
}

TEST(WordPiece, EmptyTextIsTwoTokens) {
  EXPECT_THAT(small().encode(""), ElementsAre(2, 3));
  EXPECT_THAT(small().encode(" \t\n"), ElementsAre(2, 3));
}

TEST(WordPiece, CutsToTheLength) {
  EXPECT_THAT(small().encode("a a a a unaffable", 5), ElementsAre(2, 11, 11, 11, 3));
  EXPECT_THAT(small().encode("a a unaffable", 5), ElementsAre(2, 11, 11, 6, 3));
  EXPECT_THAT(small().encode("a", 2), ElementsAre(2, 3));
}

TEST(WordPiece, InvalidBytesAreDropped) {
  EXPECT_THAT(small().encode("caf\xff"
                             "e \xc3"),
              ElementsAre(2, 5, 3));
  EXPECT_THAT(small().encode(std::string("a\0\x01\xed\xa0\x80", 6)), ElementsAre(2, 11, 3));
}

TEST(WordPiece, MarksThatTheReferenceDoesNotKnowAreLetters) {
  // U+0300 has always been a mark; U+1AC1 and the bracket U+2E55 came after Unicode 8.
  EXPECT_THAT(small().encode("a\u0300 a\u1ac1 a\u2e55"), ElementsAre(2, 11, 1, 1, 3));
}

TEST(WordPiece, AWordOfMoreThanAHundredCharactersIsUnknown) {
  EXPECT_THAT(small().encode(std::string(101, 'a')), ElementsAre(2, 1, 3));
}

TEST(WordPiece, ManyMarksTakeNoQuadraticTime) {
  std::string text = "a";
  for (int i = 0; i < 200'000; ++i) text += i % 2 == 0 ? "\u0301" : "\u0316";
  EXPECT_THAT(small().encode(text), ElementsAre(2, 11, 3));
}

TEST(Vocabulary, SaysWhatIsWrongAndWhere) {
  const auto error = [](const std::string& text) {
    const Result<Vocabulary> read = Vocabulary::parse(text, "vocab.txt");
    return read ? std::string() : read.error().str();
  };
  EXPECT_THAT(error("[PAD]\n[UNK]\n[PAD]\n"),
              HasSubstr("vocab.txt:3: error: the piece \"[PAD]\" is on line 1 already"));
  EXPECT_THAT(error("[PAD]\n\n[UNK]\n"), HasSubstr("vocab.txt:2:"));
  EXPECT_THAT(error("[PAD]\n[UNK]\n[CLS]\n[SEP]\n"), HasSubstr("[MASK] is missing"));
  EXPECT_THAT(error("a\xff\n"), HasSubstr("vocab.txt:1:"));
  EXPECT_THAT(error(""), HasSubstr("missing"));
}

TEST(Vocabulary, LinesMayEndInAnyWay) {
  std::string text = kPieces;
  text.pop_back();
  EXPECT_TRUE(Vocabulary::parse(text, "vocab.txt"));
  const Result<Vocabulary> dos =
      Vocabulary::parse("[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]\r\n[MASK]\r\n", "vocab.txt");
  ASSERT_TRUE(dos);
  EXPECT_EQ(dos->size(), 5U);
}

TEST(Vocabulary, CutAnywhereItIsReadOrRefused) {
  const std::string all = kPieces;
  for (std::size_t size = 0; size < all.size(); ++size) {
    const Result<Vocabulary> read = Vocabulary::parse(all.substr(0, size), "vocab.txt");
    EXPECT_TRUE(!read || read->size() >= 5U) << size;
  }
}

}  // namespace
}  // namespace lockstep::runtime
