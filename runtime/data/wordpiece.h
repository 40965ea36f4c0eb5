// WordPiece like `bert-base-uncased`: token for token the output of the Hugging Face tokenizers.
//
// 1. Special pieces ([CLS], [SEP], …) that are literally in the text are taken out.
// 2. The rest is normalised (unicode.h) and split at blanks; each punctuation mark is a word.
// 3. A word becomes the longest piece that it starts with, then the longest "##" piece that
//    continues it, and so on: "unaffable" → "una" "##ffa" "##ble". It becomes [UNK] if that fails
//    or if it has more than 100 characters.
// 4. [CLS] is put before, [SEP] after, and all is cut to `max_length` tokens including both.
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

namespace lockstep::runtime {

// The pieces of a WordPiece tokenizer and their ids, from a vocab.txt: one piece per line, the id
// is the line number from 0. Pieces that continue a word start with "##".

using TokenId = std::int64_t;  // as the tensors that hold them

// Special pieces. Their names, in this order: [PAD] [UNK] [CLS] [SEP] [MASK].
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
  // At most 256 MiB. Errors: those of reading a file; an empty line, a duplicate piece (with both
  // lines), invalid UTF-8, a missing special piece.
  static Result<Vocabulary> open(const std::string& path);
  static Result<Vocabulary> parse(std::string text, const std::string& file);

  std::size_t size() const { return pieces_.size(); }
  const SpecialTokens& special() const { return special_; }

  // The id of a piece that starts a word, or (without its "##") that continues one. O(length).
  std::optional<TokenId> starting(std::string_view piece) const;
  std::optional<TokenId> continuing(std::string_view piece) const;
  // Bytes of the longest piece: longer ones need not be looked up.
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
inline constexpr std::size_t kLargestMaxLength = 1U << 20U;

class WordPiece {
 public:
  explicit WordPiece(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}

  // Ids without padding. `max_length` >= 2 includes [CLS] and [SEP]. Invalid UTF-8 is read as
  // U+FFFD, which is dropped. Any thread may call it. Cost: the text's length; at most 100 look-ups
  // per character of a word.
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
