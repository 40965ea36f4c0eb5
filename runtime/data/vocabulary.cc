#include "runtime/data/vocabulary.h"

#include <algorithm>

#include "base/files/read_file.h"
#include "base/text.h"

namespace lockstep {
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
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view piece = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (piece.ends_with('\r')) piece.remove_suffix(1);
    const std::size_t line = out.pieces_.size() + 1;
    if (piece.empty()) return bad("an empty line where a piece was expected", line);
    if (to_utf8(piece) != piece) return bad("this line is not UTF-8", line);
    const auto id = static_cast<TokenId>(out.pieces_.size());
    const auto [first, is_new] = out.starting_.emplace(piece, id);
    if (!is_new) {
      return bad("the piece \"" + printable(piece) + "\" stands on line " +
                     std::to_string(first->second + 1) + " already",
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
    if (!id) return bad("the piece " + std::string(kSpecialPieces[i]) + " is missing", 0);
    *ids[i] = *id;
  }
  return out;
}

}  // namespace lockstep
