#include "trace/formats/log_lines.h"

#include <algorithm>
#include <charconv>

#include "base/text.h"
#include "trace/trace_builder.h"

namespace lockstep::trace {

namespace {

// Of LogSample.
constexpr std::size_t kHead = std::size_t{64} << 10U;
constexpr std::size_t kTail = std::size_t{1} << 20U;

}  // namespace

std::optional<std::string_view> LogLines::next() {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (number_ == 0 && rest_.starts_with(kByteOrderMark)) rest_.remove_prefix(kByteOrderMark.size());
  if (rest_.empty()) return std::nullopt;
  // Two searches for one byte are faster than one for either.
  std::size_t length = std::min(rest_.find('\n'), rest_.size());
  length = std::min(rest_.substr(0, length).find('\r'), length);
  const std::string_view line = rest_.substr(0, std::min(length, kLongestLine));
  const bool windows = rest_.substr(length).starts_with("\r\n");
  rest_.remove_prefix(std::min(length + (windows ? 2 : 1), rest_.size()));
  if (number_ < INT32_MAX) ++number_;
  return line;
}

std::optional<Rank> rank_in_prefix(std::string_view line) {
  constexpr std::string_view kKey = "[rank";
  for (std::size_t at = line.find(kKey); at != kNpos; at = line.find(kKey, at + 1)) {
    const std::string_view number = line.substr(at + kKey.size());
    std::int32_t value = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
    if (error != std::errc()) continue;
    const auto length = static_cast<std::size_t>(end - number.data());
    if (!number.substr(length).starts_with("]:")) continue;
    if (is_possible_rank(value, kMaxWorldSize)) return Rank(value);
  }
  return std::nullopt;
}

std::optional<Rank> rank_of_file(const TraceFile& file) {
  std::string_view name = file.name;
  name.remove_prefix(name.find_last_of("/:") + 1);  // nothing where there is neither
  return name.find("rank") == kNpos ? std::nullopt : file.rank;
}

std::optional<std::int64_t> number_after(std::string_view text, std::string_view key, int base) {
  for (std::size_t at = text.find(key); at != kNpos; at = text.find(key, at + 1)) {
    std::string_view number = text.substr(at + key.size());
    if (base == 16 && number.starts_with("0x")) number.remove_prefix(2);
    std::int64_t value = 0;
    const auto [end, error] =
        std::from_chars(number.data(), number.data() + number.size(), value, base);
    if (error == std::errc()) return value;
  }
  return std::nullopt;
}

std::string_view word_after(std::string_view text, std::string_view key) {
  const std::size_t at = text.find(key);
  if (at == kNpos) return {};
  text.remove_prefix(at + key.size());
  return text.substr(0, text.find_first_of(" ,;)]\t"));
}

LogSample sample_of(std::string_view bytes) {
  const std::string_view head = bytes.substr(0, kHead);
  const std::size_t rest = bytes.size() - head.size();
  return {head, bytes.substr(bytes.size() - std::min(rest, kTail))};
}

}  // namespace lockstep::trace
