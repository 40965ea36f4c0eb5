// WordPiece as `bert-base-uncased` does it: token for token what the Hugging Face tokenizers give.
//
// 1. Special pieces ([CLS], [SEP], …) that stand in the text literally are taken out.
// 2. The rest is normalized (unicode.h) and split at blanks; each punctuation mark is a word.
// 3. A word becomes the longest piece that it begins with, then the longest "##" piece that
//    continues it, and so on; [UNK] where that fails or where it has more than 100 characters.
// 4. [CLS] in front, [SEP] behind, cut to `max_length` tokens with both.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "runtime/data/vocabulary.h"

namespace lockstep {

inline constexpr std::size_t kDefaultMaxLength = 128;  // tokens
inline constexpr std::size_t kMostMaxLength = 1U << 20U;

class WordPiece {
 public:
  explicit WordPiece(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}

  // Ids without padding. `max_length` >= 2, counted with [CLS] and [SEP]. Invalid UTF-8 is read as
  // U+FFFD, and dropped as that is. Any thread may call it. Cost: the text's length; at most 100
  // look-ups for each character of a word.
  std::vector<TokenId> encode(std::string_view text,
                              std::size_t max_length = kDefaultMaxLength) const;

  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  // Appends the ids of text without special pieces, until `ids` has `most`.
  void encode_plain(std::string_view text, std::size_t most, std::vector<TokenId>& ids) const;
  void encode_word(std::u32string_view word, std::vector<TokenId>& ids) const;

  Vocabulary vocabulary_;
};

}  // namespace lockstep
