// WordSearch: whether one of several words is in a text.
//
//   static const WordSearch search({"Traceback (most", "NCCL WARN "});
//   if (search.occurs_in(line)) …
//
// One pass, however many words there are, which skips most of the text (Wu and Manber, 1994): it
// looks at two bytes, and as far as these can only stand in the front of a word, it goes on behind
// them. So the longer the shortest word, the faster.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace lockstep {

class WordSearch {
 public:
  // At least one word, each of two bytes or more; they must outlive the search.
  explicit WordSearch(std::vector<std::string_view> words);

  bool occurs_in(std::string_view text) const;

 private:
  static constexpr std::size_t kPairs = 4096;
  // The place of a pair of bytes; a few pairs share one, which costs time alone.
  static std::size_t place_of(char a, char b) {
    const auto high = static_cast<unsigned char>(a);
    const auto low = static_cast<unsigned char>(b);
    return (std::size_t{high} << 5U ^ low) % kPairs;
  }
  bool begins_at(std::string_view text, std::size_t place) const;

  std::vector<std::string_view> words_;
  std::size_t shortest_ = 0;
  // By pair of bytes: how far the end of the shortest word is at least, of those cut to its length.
  std::array<std::uint8_t, kPairs> skip_{};
  // By pair: the first of the words that end in it there, plus 1; by word: the next one.
  std::array<std::uint16_t, kPairs> first_{};
  std::vector<std::uint16_t> next_;
};

}  // namespace lockstep
