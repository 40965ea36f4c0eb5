#include "runtime/data/wordpiece.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"
#include "base/files/read_file.h"
#include "base/text.h"
#include "runtime/data/unicode.h"

namespace lockstep::runtime {
namespace {

constexpr std::size_t kLongestWord = 100;  // code points

struct SpecialInText {
  std::size_t at = std::string_view::npos;
  std::string_view piece;
};

// The first special piece at or after `from`.
SpecialInText find_special(std::string_view text, std::size_t from) {
  for (std::size_t at = text.find('[', from); at != std::string_view::npos;
       at = text.find('[', at + 1)) {
    for (const std::string_view piece : kSpecialPieces) {
      if (text.substr(at).starts_with(piece)) return {at, piece};
    }
  }
  return {};
}

}  // namespace

std::vector<TokenId> WordPiece::encode(std::string_view text, std::size_t max_length) const {
  LOCKSTEP_CHECK(max_length >= 2, "room for [CLS] and [SEP]");
  const std::size_t most = max_length - 1;
  std::vector<TokenId> ids = {vocabulary_.special().start};
  std::size_t from = 0;
  while (from < text.size() && ids.size() < most) {
    const SpecialInText special = find_special(text, from);
    encode_plain(text.substr(from, special.at - from), most, ids);
    if (special.piece.empty()) break;
    ids.push_back(*vocabulary_.starting(special.piece));
    from = special.at + special.piece.size();
  }
  ids.resize(std::min(ids.size(), most));
  ids.push_back(vocabulary_.special().end);
  return ids;
}

void WordPiece::encode_plain(std::string_view text, std::size_t most,
                             std::vector<TokenId>& ids) const {
  const CodePoints normal = bert_normalized(decode_utf8(text));
  const std::u32string_view all = normal;
  std::size_t at = 0;
  while (at < all.size() && ids.size() < most) {
    if (is_space(all[at])) {
      ++at;
    } else if (is_punctuation(all[at])) {
      encode_word(all.substr(at, 1), ids);
      ++at;
    } else {
      const std::size_t start = at;
      while (at < all.size() && !is_space(all[at]) && !is_punctuation(all[at])) ++at;
      encode_word(all.substr(start, at - start), ids);
    }
  }
}

void WordPiece::encode_word(std::u32string_view word, std::vector<TokenId>& ids) const {
  const std::size_t before = ids.size();
  const auto unknown = [&] {
    ids.resize(before);
    ids.push_back(vocabulary_.special().unknown);
  };
  if (word.size() > kLongestWord) return unknown();
  std::string bytes;
  for (const char32_t c : word) append_utf8(c, bytes);
  const std::string_view all = bytes;
  for (std::size_t start = 0; start < all.size();) {
    std::size_t end = std::min(all.size(), start + vocabulary_.longest());
    std::optional<TokenId> id;
    for (; end > start; --end) {
      // Only where a character ends.
      if (end < all.size() && (static_cast<unsigned char>(all[end]) & 0xc0U) == 0x80U) continue;
      const std::string_view piece = all.substr(start, end - start);
      id = start == 0 ? vocabulary_.starting(piece) : vocabulary_.continuing(piece);
      if (id) break;
    }
    if (!id) return unknown();
    ids.push_back(*id);
    start = end;
  }
}

namespace {

constexpr std::size_t kLargestVocabulary = std::size_t{256} << 20U;
constexpr std::string_view kContinues = "##";

std::optional<TokenId> found(const std::unordered_map<std::string_view, TokenId>& ids,
                             std::string_view piece) {
  const auto at = ids.find(piece);
  if (at == ids.end()) return std::nullopt;
  return at->second;
}

}  // namespace

std::optional<TokenId> Vocabulary::starting(std::string_view piece) const {
  return found(starting_, piece);
}

std::optional<TokenId> Vocabulary::continuing(std::string_view piece) const {
  return found(continuing_, piece);
}

Result<Vocabulary> Vocabulary::open(const std::string& path) {
  Result<std::string> text = read_file(path, kLargestVocabulary);
  if (!text) return text.error();
  return parse(std::move(*text), path);
}

Result<Vocabulary> Vocabulary::parse(std::string text, const std::string& file) {
  const auto bad = [&](const std::string& message, std::size_t line) {
    return Error{message,
                 {file, static_cast<int>(line)},
                 "name the vocab.txt of a BERT model: one piece a line, each once"};
  };
  Vocabulary out;
  out.text_ = std::make_unique<const std::string>(std::move(text));
  std::string_view rest = *out.text_;
  while (!rest.empty()) {
    std::string_view piece = take_until(rest, '\n');
    if (piece.ends_with('\r')) piece.remove_suffix(1);
    const std::size_t line = out.pieces_.size() + 1;
    if (piece.empty()) return bad("an empty line where a piece was expected", line);
    if (!is_utf8(piece)) return bad("this line is not UTF-8", line);
    const auto id = static_cast<TokenId>(out.pieces_.size());
    const auto [first, is_new] = out.starting_.emplace(piece, id);
    if (!is_new) {
      return bad(fmt::format("the piece \"{}\" is on line {} already", printable(piece),
                             first->second + 1),
                 line);
    }
    if (piece.starts_with(kContinues)) {
      out.continuing_.emplace(piece.substr(kContinues.size()), id);
    }
    out.pieces_.push_back(piece);
    out.longest_ = std::max(out.longest_, piece.size());
  }
  const std::array<TokenId*, kSpecialPieces.size()> ids = {&out.special_.pad, &out.special_.unknown,
                                                           &out.special_.start, &out.special_.end,
                                                           &out.special_.mask};
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::optional<TokenId> id = out.starting(kSpecialPieces[i]);
    if (!id) return bad(fmt::format("the piece {} is missing", kSpecialPieces[i]), 0);
    *ids[i] = *id;
  }
  return out;
}

}  // namespace lockstep::runtime
