#include "trace/formats/json_scan.h"

#include <algorithm>
#include <cstring>

#include "base/text.h"

namespace lockstep::trace {

namespace {

bool is_json_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// One past the string whose opening quote is text[at].
std::size_t string_end(std::string_view text, std::size_t at) {
  std::size_t from = at + 1;
  while (from < text.size()) {
    const void* found = std::memchr(text.data() + from, '"', text.size() - from);
    if (found == nullptr) return kNpos;
    const auto quote = static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
    // A quote is escaped if an odd number of backslashes precedes it: \" is, \\" is not.
    std::size_t backslashes = 0;
    while (quote - backslashes > from && text[quote - backslashes - 1] == '\\') ++backslashes;
    if (backslashes % 2 == 0) return quote + 1;
    from = quote + 1;
  }
  return kNpos;
}

}  // namespace

std::size_t json_value_end(std::string_view text, std::size_t at, std::size_t limit) {
  if (limit < text.size() && at < text.size() - limit) text = text.substr(0, at + limit);
  std::size_t depth = 0;
  while (at < text.size()) {
    const char c = text[at];
    if (c == '"') {
      at = string_end(text, at);
      if (at == kNpos || depth == 0) return at;  // cut off, or the value is this string
      continue;
    }
    if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      if (depth == 0) return at;  // closes the container that the value is in: `1` in {"a":1}
      if (--depth == 0) return at + 1;
    } else if (depth == 0 && (c == ',' || is_json_space(c))) {
      return at;
    }
    ++at;
  }
  return kNpos;
}

std::size_t json_skip_blanks(std::string_view text, std::size_t at) {
  while (at < text.size() && is_json_space(text[at])) ++at;
  return at;
}

JsonMembers::JsonMembers(std::string_view text) : text_(text), at_(0) {
  if (text_.starts_with("\xEF\xBB\xBF")) at_ = 3;
  at_ = json_skip_blanks(text_, at_);
  failed_ = at_ >= text_.size() || text_[at_] != '{';
  ++at_;
}

std::optional<std::string_view> JsonElements::next() {
  if (ended_ || at_ >= text_.size()) return std::nullopt;
  if (!begun_ && text_[at_] != '[') return std::nullopt;
  if (!begun_) ++at_;
  begun_ = true;
  at_ = json_skip_blanks(text_, at_);
  while (at_ < text_.size() && text_[at_] == ',') at_ = json_skip_blanks(text_, at_ + 1);
  if (at_ >= text_.size()) return std::nullopt;
  if (text_[at_] == ']') {
    ended_ = true;
    ++at_;
    return std::nullopt;
  }
  const std::size_t end = json_value_end(text_, at_, longest_);
  if (end == kNpos || end == at_) return std::nullopt;
  const std::string_view out = text_.substr(at_, end - at_);
  at_ = end;
  return out;
}

std::optional<JsonMembers::Member> JsonMembers::next() {
  if (failed_ || ended_) return std::nullopt;
  if (in_value_ && at_ < text_.size()) {
    const std::size_t value = at_;
    at_ = json_value_end(text_, value);
    // No value at all (`{"a": :`): skip a byte, or this would never end.
    if (at_ == value && text_[at_] != '}' && text_[at_] != ',') ++at_;
  }
  in_value_ = false;
  failed_ = true;  // until a whole key has been read
  if (at_ >= text_.size()) return std::nullopt;
  at_ = json_skip_blanks(text_, at_);
  if (at_ < text_.size() && text_[at_] == ',') at_ = json_skip_blanks(text_, at_ + 1);
  if (at_ >= text_.size()) return std::nullopt;
  if (text_[at_] == '}') {
    ended_ = true;
    return std::nullopt;
  }
  if (text_[at_] != '"') return std::nullopt;
  const std::size_t key_end = string_end(text_, at_);
  if (key_end == kNpos) return std::nullopt;
  Member member{text_.substr(at_ + 1, key_end - at_ - 2), 0};
  at_ = json_skip_blanks(text_, key_end);
  if (at_ >= text_.size() || text_[at_] != ':') return std::nullopt;
  at_ = json_skip_blanks(text_, at_ + 1);
  member.begin = at_;
  in_value_ = true;
  failed_ = false;
  return member;
}

std::string json_without_bare_words(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  std::size_t at = 0;
  while (at < text.size()) {
    const char c = text[at];
    if (c == '"') {
      const std::size_t end = std::min(string_end(text, at), text.size());
      out.append(text.substr(at, end - at));
      at = end;
    } else if (c >= '0' && c <= '9') {  // a whole number: the "e" of 1e5 is not a word
      const std::size_t end = std::min(text.find_first_not_of("0123456789.eE+-", at), text.size());
      out.append(text.substr(at, end - at));
      at = end;
    } else if (is_letter(c)) {
      std::size_t end = at;
      while (end < text.size() && is_letter(text[end])) ++end;
      const std::string_view word = text.substr(at, end - at);
      const bool json = word == "true" || word == "false" || word == "null";
      if (!json && out.ends_with('-')) out.pop_back();  // -inf
      out.append(json ? word : std::string_view("null"));
      at = end;
    } else {
      out.push_back(c);
      ++at;
    }
  }
  return out;
}

}  // namespace lockstep::trace
