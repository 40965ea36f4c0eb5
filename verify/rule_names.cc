#include "verify/rule_names.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/text.h"

namespace lockstep {
namespace {

constexpr std::size_t kSuggested = 4;
constexpr std::size_t kLongest = 100;  // no rule's id is so long; bounds the search

// The nearest id first; then those that hold the word, or are of a family of that name.
std::vector<std::string> suggestions(std::string_view word) {
  std::vector<std::string> names;
  for (const Rule& rule : all_rules()) names.emplace_back(rule.name);
  std::vector<std::string> out;
  if (const std::string near = nearest(word, names); !near.empty()) out.push_back(near);
  if (word.size() < 3) return out;
  for (const Rule& rule : all_rules()) {
    const bool related = rule.name.find(word) != std::string_view::npos || rule.family == word;
    const std::string name(rule.name);
    if (related && std::find(out.begin(), out.end(), name) == out.end()) out.push_back(name);
  }
  return out;
}

}  // namespace

Result<RuleId> rule_named(std::string_view name) {
  if (const std::optional<RuleId> id = rule_from_name(name)) return *id;
  std::vector<std::string> near = suggestions(name.substr(0, kLongest));
  std::string fix = "`lockstep rules` lists them";
  if (!near.empty()) {
    if (near.size() > kSuggested) near.resize(kSuggested);
    std::string list;
    for (std::size_t i = 0; i < near.size(); ++i)
      list += (i == 0 ? "" : i + 1 == near.size() ? " or " : ", ") + near[i];
    fix = "did you mean " + list + "? " + fix;
  }
  return Error{"no rule \"" + printable(name.substr(0, kLongest)) + "\"", {}, fix};
}

}  // namespace lockstep
