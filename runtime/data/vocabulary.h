// The pieces of a WordPiece tokenizer and their ids, from a vocab.txt: one piece a line, the id is
// the line's number from 0. Pieces that continue a word begin with "##".
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"

namespace lockstep {

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

}  // namespace lockstep
