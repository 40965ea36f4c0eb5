#include "verify/checker/statements.h"

#include <algorithm>
#include <charconv>
#include <climits>

#include "base/sha256.h"
#include "base/text.h"

namespace lockstep::verify::checked {

Statements::Statements(std::string_view text, std::string file)
    : file_(std::move(file)), text_(text) {
  if (!text.empty() && text.back() == '\n') {
    const std::string_view body = text.substr(0, text.size() - 1);
    const std::size_t before = body.rfind('\n');
    const std::size_t last = before == std::string_view::npos ? 0 : before + 1;
    seal_ = "end " + sha256(text.substr(0, last));
    if (body.substr(last) == seal_) return;
  }
  number_ = std::count(text.begin(), text.end(), '\n') + 1;
  refuse("the last line is not the digest of what stands above it");
}

std::string_view Statements::peek() const {
  return at_ < text_.size() ? text_.substr(at_, text_.find('\n', at_) - at_) : std::string_view();
}

void Statements::skip() {
  if (at_ >= text_.size()) return;
  at_ = std::min(text_.find('\n', at_), text_.size() - 1) + 1;
  ++number_;
}

void Statements::expect(const std::string& line) {
  if (refused()) return;
  const std::string_view said = peek();
  skip();
  if (said != line) {
    refuse("it says \"" + printable(said.substr(0, 200)) + "\" where the folder says \"" +
           printable(std::string_view(line).substr(0, 200)) + "\"");
  }
}

void Statements::expect_end() {
  expect(seal_);
  if (at_ != text_.size()) refuse("something follows the end");
}

void Statements::refuse(const std::string& why) {
  if (refused()) return;
  error_ = Error{"refused: " + why,
                 {file_, static_cast<int>(std::min<std::int64_t>(number_, INT_MAX)), 0},
                 "record or derive again, and write the certificate anew"};
}

std::optional<std::array<std::string_view, 4>> four_words(std::string_view line) {
  std::array<std::string_view, 4> out;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t end = std::min(line.find(' '), line.size());
    out[i] = line.substr(0, end);
    if (out[i].empty() || (i + 1 < out.size()) != (end < line.size())) return std::nullopt;
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return out;
}

std::optional<std::uint32_t> plain_number(std::string_view text) {
  std::uint32_t out = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), out);
  const bool whole = failed == std::errc() && end == text.data() + text.size();
  if (!whole || (text.size() > 1 && text.front() == '0')) return std::nullopt;
  return out;
}

}  // namespace lockstep::verify::checked
