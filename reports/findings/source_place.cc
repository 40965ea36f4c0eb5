#include "reports/findings/source_place.h"

#include <algorithm>
#include <charconv>
#include <cstddef>

#include "base/text.h"

namespace lockstep {
namespace {

// Takes ":<number>" off the end of `text`; a number from 1 that fits, else nothing is taken.
std::optional<std::uint32_t> take_number(std::string_view& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon + 1 == text.size()) return std::nullopt;
  std::int32_t value = 0;  // consumers hold lines as signed 32-bit numbers
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, value);
  if (error != std::errc{} || stop != end || value < 1) return std::nullopt;
  text = text.substr(0, colon);
  return static_cast<std::uint32_t>(value);
}

std::string relative_to(std::string file, std::string_view root) {
  while (root.ends_with('/')) root.remove_suffix(1);
  if (!root.empty() && file.size() > root.size() + 1 && file.starts_with(root) &&
      file[root.size()] == '/')
    return file.substr(root.size() + 1);
  while (file.starts_with("./") && file.size() > 2) file.erase(0, 2);
  return file;
}

}  // namespace

std::optional<SourcePlace> source_place(std::string_view at, std::string_view root) {
  const auto last = take_number(at);
  if (!last) return std::nullopt;
  SourcePlace out;
  std::string_view before = at;
  if (const auto line = take_number(before); line && !before.empty()) {
    at = before;
    out.line = *line;
    out.column = last;
  } else {
    out.line = *last;
  }
  if (at.empty()) return std::nullopt;
  std::string file = printable(at);
  std::replace(file.begin(), file.end(), '\\', '/');
  out.file = relative_to(std::move(file), root);
  return out;
}

std::optional<SourcePlace> place_of(const Finding& finding, std::string_view root) {
  std::optional<SourcePlace> first;
  for (const Evidence& evidence : finding.evidence) {
    std::optional<SourcePlace> place = source_place(evidence.at, root);
    if (!place) continue;
    if (std::binary_search(finding.culprits.begin(), finding.culprits.end(), evidence.rank))
      return place;
    if (!first) first = std::move(place);
  }
  return first;
}

}  // namespace lockstep
