// WordPiece as `bert-base-uncased` does it: token for token what the Hugging Face tokenizers give.
//
// 1. Special pieces ([CLS], [SEP], …) that stand in the text literally are taken out.
// 2. The rest is normalized (unicode.h) and split at blanks; each punctuation mark is a word.
// 3. A word becomes the longest piece that it begins with, then the longest "##" piece that
//    continues it, and so on; [UNK] where that fails or where it has more than 100 characters.
// 4. [CLS] in front, [SEP] behind, cut to `max_length` tokens with both.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"

// The pieces of a WordPiece tokenizer and their ids, from a vocab.txt: one piece a line, the id is
// the line's number from 0. Pieces that continue a word begin with "##".

namespace lockstep::runtime {

using TokenId = std::int64_t;  // as the tensors that hold them

// The pieces that are no text. Their names, in this order: [PAD] [UNK] [CLS] [SEP] [MASK].
struct SpecialTokens {
  TokenId pad = 0;
  TokenId unknown = 0;
  TokenId start = 0;
  TokenId end = 0;
  TokenId mask = 0;
};
inline constexpr std::array<std::string_view, 5> kSpecialPieces = {"[PAD]", "[UNK]", "[CLS]",
                                                                   "[SEP]", "[MASK]"};

class Vocabulary {
 public:
  // At most 256 MiB. Errors: as reading a file; an empty line, a piece that stands there twice
  // (with both lines), bytes that are not UTF-8, a special piece that is missing.
  static Result<Vocabulary> open(const std::string& path);
  static Result<Vocabulary> parse(std::string text, const std::string& file);

  std::size_t size() const { return pieces_.size(); }
  const SpecialTokens& special() const { return special_; }

  // The id of a piece that begins a word, or (without its "##") that continues one. O(length).
  std::optional<TokenId> starting(std::string_view piece) const;
  std::optional<TokenId> continuing(std::string_view piece) const;
  // Bytes of the longest piece: no longer one need be looked up.
  std::size_t longest() const { return longest_; }

 private:
  using Ids = std::unordered_map<std::string_view, TokenId>;

  std::unique_ptr<const std::string> text_;  // what all views below look at
  std::vector<std::string_view> pieces_;
  Ids starting_;
  Ids continuing_;
  SpecialTokens special_;
  std::size_t longest_ = 0;
};

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

}  // namespace lockstep::runtime
