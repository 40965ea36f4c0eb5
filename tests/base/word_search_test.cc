#include "base/word_search.h"

#include <array>
#include <cstring>
#include <random>
#include <string>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(WordSearch, FindsAnyOfTheWords) {
  const WordSearch search({"Traceback (most", "NCCL WARN ", "exitcode "});
  for (const char* text : {"exitcode ", "the exitcode -9", "NCCL NCCL WARN  x", "exexitcode 1",
                           "Traceback (mosTraceback (most", "a\0exitcode "})
    EXPECT_TRUE(search.occurs_in(std::string_view(text, text[0] == 'a' ? 11 : std::strlen(text))))
        << text;
  for (const char* text : {"", "e", "exitcode", "NCCL WARN", "Traceback (mos", "nccl warn "})
    EXPECT_FALSE(search.occurs_in(text)) << text;
}

// The words have few letters, so that they begin, end and overlap everywhere.
TEST(WordSearch, AgreesWithOneSearchForEachWord) {
  const std::array<std::string_view, 5> words = {"abab", "bbaab",
                                                 "aabb\xff"
                                                 "a",
                                                 "cab", "\xff\xff\xff"};
  const WordSearch search({words[0], words[1], words[2], words[3], words[4]});
  std::mt19937 random(7);
  for (int round = 0; round < 20'000; ++round) {
    std::string text;
    for (auto length = random() % 12; length > 0; --length)
      text += "abc\xff"[random() % (round % 2 == 0 ? 4 : 2)];
    bool any = false;
    for (const std::string_view word : words) any |= text.find(word) != std::string::npos;
    ASSERT_EQ(search.occurs_in(text), any) << text;
  }
}

}  // namespace
}  // namespace lockstep
