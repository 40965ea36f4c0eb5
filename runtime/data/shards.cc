#include "runtime/data/shards.h"

#include <charconv>
#include <string_view>

#include "base/text.h"

namespace lockstep {
namespace {

constexpr const char* kFix = "write a group as {000..007} or {a,b}";

// A whole number of at most nine digits; -1 where it is none.
int number(std::string_view digits) {
  int value = -1;
  if (digits.empty() || digits.size() > 9 ||
      digits.find_first_not_of("0123456789") != std::string_view::npos) {
    return -1;
  }
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

Result<std::vector<std::string>> alternatives(std::string_view group) {
  std::vector<std::string> out;
  const std::size_t dots = group.find("..");
  if (dots == std::string_view::npos) {
    while (true) {
      const std::size_t comma = group.find(',');
      out.emplace_back(group.substr(0, comma));
      if (comma == std::string_view::npos) return out;
      group.remove_prefix(comma + 1);
    }
  }
  const std::string_view low = group.substr(0, dots);
  const int first = number(low);
  const int last = number(group.substr(dots + 2));
  if (first < 0 || last < first || static_cast<std::size_t>(last - first) >= kMostShards) {
    return Error{"{" + printable(group) + "} is not a range of shards", {}, kFix};
  }
  for (int value = first; value <= last; ++value) {
    std::string text = std::to_string(value);
    if (text.size() < low.size()) text.insert(0, low.size() - text.size(), '0');
    out.push_back(std::move(text));
  }
  return out;
}

}  // namespace

Result<std::vector<std::string>> expand_braces(const std::string& pattern) {
  std::vector<std::string> out = {""};
  std::string_view rest = pattern;
  while (true) {
    const std::size_t open = rest.find('{');
    for (std::string& name : out) name += rest.substr(0, open);
    if (open == std::string_view::npos) return out;
    const std::size_t close = rest.find('}', open);
    if (close == std::string_view::npos) {
      return Error{"a brace that is not closed", {pattern}, kFix};
    }
    const auto group = alternatives(rest.substr(open + 1, close - open - 1));
    if (!group) return group.error();
    if (group->size() > kMostShards / out.size()) {
      return Error{"more than " + std::to_string(kMostShards) + " shards", {pattern}, kFix};
    }
    std::vector<std::string> longer;
    for (const std::string& name : out) {
      for (const std::string& middle : *group) longer.push_back(name + middle);
    }
    out = std::move(longer);
    rest.remove_prefix(close + 1);
  }
}

}  // namespace lockstep
