#include "runtime/derive/torch/broadcasts.h"

#include <charconv>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "base/files/read_file.h"
#include "base/files/write_file.h"

namespace lockstep::runtime {
namespace {

constexpr std::string_view kFirstLine = "lockstep broadcasts 1\n";
constexpr std::size_t kMax = std::size_t{1} << 30U;

// The number that `text` begins with, up to a blank or the line's end, which are taken off.
std::optional<std::uint64_t> take_number(std::string_view& text) {
  std::uint64_t out = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (failed != std::errc() || end == text.data() + text.size()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()) + 1);
  return out;
}

std::optional<std::string> take_bytes(std::string_view& text, std::uint64_t count) {
  if (count > text.size()) return std::nullopt;
  std::string out(text.substr(0, count));
  text.remove_prefix(count);
  return out;
}

}  // namespace

Result<Broadcasts> Broadcasts::read(const std::string& file) {
  const Result<std::string> text = read_file(file, kMax);
  if (!text) return text.error();
  const auto damaged = [&] {
    return Error{"this is not a complete file of broadcasts", {file}, "derive rank 0 first"};
  };
  std::string_view rest = *text;
  if (!rest.starts_with(kFirstLine)) return damaged();
  rest.remove_prefix(kFirstLine.size());
  Broadcasts out;
  // "<bytes of the name> <index> <bytes>\n" and both.
  while (!rest.empty()) {
    const auto name_bytes = take_number(rest);
    const auto nth = name_bytes ? take_number(rest) : std::nullopt;
    const auto bytes = nth ? take_number(rest) : std::nullopt;
    auto name = bytes ? take_bytes(rest, *name_bytes) : std::nullopt;
    auto value = name ? take_bytes(rest, *bytes) : std::nullopt;
    if (!value) return damaged();
    out.keep({std::move(*name), *nth}, std::move(*value));
  }
  return out;
}

Status Broadcasts::write(const std::string& file) const {
  std::string text(kFirstLine);
  for (const auto& [key, bytes] : kept_) {
    text +=
        fmt::format("{} {} {}\n{}{}", key.first.size(), key.second, bytes.size(), key.first, bytes);
  }
  return write_file(file, text);
}

const std::string* Broadcasts::find(const Key& key) const {
  const auto found = kept_.find(key);
  return found == kept_.end() ? nullptr : &found->second;
}

}  // namespace lockstep::runtime
