#include "base/word_search.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace lockstep {

WordSearch::WordSearch(std::vector<std::string_view> words)
    : words_(std::move(words)), next_(words_.size()) {
  constexpr std::size_t kFarthest = 255;
  shortest_ = kFarthest + 1;
  for (const std::string_view word : words_) shortest_ = std::min(shortest_, word.size());
  LOCKSTEP_CHECK(!words_.empty() && shortest_ >= 2, "words of two bytes or more");
  skip_.fill(static_cast<std::uint8_t>(shortest_ - 1));
  for (std::size_t w = 0; w < words_.size(); ++w) {
    const std::string_view word = words_[w];
    for (std::size_t i = 1; i < shortest_; ++i) {
      std::uint8_t& skip = skip_[place_of(word[i - 1], word[i])];
      skip = std::min(skip, static_cast<std::uint8_t>(shortest_ - 1 - i));
    }
    std::uint16_t& first = first_[place_of(word[shortest_ - 2], word[shortest_ - 1])];
    next_[w] = first;
    first = static_cast<std::uint16_t>(w + 1);
  }
}

bool WordSearch::occurs_in(std::string_view text) const {
  for (std::size_t end = shortest_ - 1; end < text.size();) {
    const std::size_t place = place_of(text[end - 1], text[end]);
    if (const std::size_t skip = skip_[place]; skip > 0) {
      end += skip;
      continue;
    }
    if (begins_at(text.substr(end + 1 - shortest_), place)) return true;
    ++end;
  }
  return false;
}

bool WordSearch::begins_at(std::string_view text, std::size_t place) const {
  for (std::size_t w = first_[place]; w > 0; w = next_[w - 1])
    if (text.starts_with(words_[w - 1])) return true;
  return false;
}

}  // namespace lockstep
