#include "trace/pasted_text.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "base/text.h"
#include "base/word_search.h"
#include "trace/evidence/line_labels.h"
#include "trace/formats/log_lines.h"

namespace lockstep::trace {

namespace {

constexpr std::string_view kNoBreakSpace = "\xC2\xA0";

// What a page writes for these characters; the ampersand last, so that "&amp;gt;" becomes "&gt;".
constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kReplaced = {
    {{kNoBreakSpace, " "},
     {"&nbsp;", " "},
     {"&gt;", ">"},
     {"&lt;", "<"},
     {"&quot;", "\""},
     {"&#34;", "\""},
     {"&#39;", "'"},
     {"&#x27;", "'"},
     {"&amp;", "&"}}};

bool has_replaced(std::string_view text) {
  // "&amp;" alone may be an address that a program prints.
  static const WordSearch search(
      {kNoBreakSpace, "&nbsp;", "&gt;", "&lt;", "&quot;", "&#39;", "&#x27;"});
  return search.occurs_in(text);
}

void replace_into(std::string& out, std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t next = std::min(text.find_first_of("&\xC2", at), text.size());
    out += text.substr(at, next - at);
    if (next == text.size()) return;
    const std::string_view rest = text.substr(next);
    const auto known = std::find_if(kReplaced.begin(), kReplaced.end(),
                                    [&](const auto& r) { return rest.starts_with(r.first); });
    const bool is_known = known != kReplaced.end();
    out += is_known ? known->second : rest.substr(0, 1);
    at = next + (is_known ? known->first.size() : 1);
  }
}

// Whether the text has two lines in a row that begin as quoted ones do. Programs write single ones
// ("> building the data set").
bool has_quotes(std::string_view text) {
  constexpr int kInARow = 2;
  int in_a_row = 0;
  while (!text.empty()) {
    const std::string_view line = take_until(text, '\n');
    in_a_row = line.starts_with("> ") || line == ">" || line == ">\r" ? in_a_row + 1 : 0;
    if (in_a_row == kInARow) return true;
  }
  return false;
}

// The line without the marks of quotes, of which one may stand in another: "> > text".
std::string_view without_quotes(std::string_view line) {
  while (line.starts_with('>')) {
    if (line.starts_with("> "))
      line.remove_prefix(2);
    else if (line == ">" || line == ">\r" || line.starts_with(">>"))
      line.remove_prefix(1);
    else
      break;
  }
  return line;
}

// "**RuntimeError: x**": bold in a thread. Rows of asterisks are none.
bool is_bold(std::string_view line) {
  constexpr std::string_view kBold = "**";
  return line.starts_with(kBold) && line.size() > 2 && is_letter(line[2]);
}

bool has_bold(std::string_view text) {
  if (text.starts_with("**") && is_bold(text)) return true;
  for (std::size_t at = text.find("\n**"); at != kNpos; at = text.find("\n**", at + 1))
    if (is_bold(text.substr(at + 1))) return true;
  return false;
}

std::string_view without_bold(std::string_view line) {
  if (!is_bold(line)) return line;
  line.remove_prefix(2);
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (line.ends_with("**")) line.remove_suffix(2);
  return line;
}

}  // namespace

std::optional<std::string> without_wrapping(std::string_view bytes) {
  const LogSample sample = sample_of(bytes);
  if (contains_text(sample.head, std::string_view("\0", 1))) return std::nullopt;
  const bool coloured =
      sample.any([](std::string_view text) { return contains_text(text, "\x1b["); });
  const bool replaced = sample.any(has_replaced);
  std::string out;
  std::string plain;
  if (coloured) {
    plain = without_escapes(bytes);
    bytes = plain;
  }
  if (replaced) {
    out.reserve(bytes.size());
    replace_into(out, bytes);
    plain = std::exchange(out, {});
    bytes = plain;
  }
  const bool quoted = sample_of(bytes).any(has_quotes);
  if (!quoted && !sample_of(bytes).any(has_bold)) {
    if (!coloured && !replaced) return std::nullopt;
    return plain;
  }
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const bool ends = contains_text(bytes, "\n");
    const std::string_view line = take_until(bytes, '\n');
    out += without_bold(quoted ? without_quotes(line) : line);
    if (ends) out += '\n';
  }
  return out;
}

}  // namespace lockstep::trace
