#include "verify/rules/page.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "base/text.h"

namespace lockstep::verify {

namespace {

constexpr std::array<std::string_view, 5> kHeadings = {
    "What it means", "How it is decided", "What it cannot see", "How to fix it", "Example"};

// "ranks meet" of "Ranks meet.": what reports put after a colon. "NCCL …" keeps its capital.
std::string as_phrase(std::string_view sentence) {
  std::string out(sentence);
  if (out.ends_with('.')) out.pop_back();
  const auto is_upper = [](char c) { return c >= 'A' && c <= 'Z'; };
  if (out.size() > 1 && is_upper(out[0]) && !is_upper(out[1]))
    out[0] = static_cast<char>(out[0] - 'A' + 'a');
  return out;
}

// A section of a page, with paragraphs and items of lists each in one line.
std::string unwrapped(std::string_view section) {
  std::string out;
  bool fenced = false, open = false;  // `open`: the last line may go on
  while (!section.empty()) {
    const std::string_view line = take_until(section, '\n');
    if (is_fence(line)) fenced = !fenced;
    if (fenced || is_fence(line)) {
      out += fmt::format("{}\n", line);
      open = false;
      continue;
    }
    if (open && !line.empty() && !line.starts_with("- ")) {
      out.back() = ' ';
      out += fmt::format("{}\n", trimmed(line));
      continue;
    }
    out += fmt::format("{}\n", line);
    open = !line.empty();
  }
  const std::size_t begin = std::min(out.find_first_not_of('\n'), out.size());
  out.erase(0, begin);
  while (out.ends_with('\n')) out.pop_back();
  return out;
}

}  // namespace

Result<RulePage> parse_rule_page(std::string_view name, std::string_view text) {
  const auto wrong = [&](const std::string& what) {
    return Error{fmt::format("the page of the rule {} {}", name, what), {}, {}};
  };
  if (take_until(text, '\n') != fmt::format("# {}", name))
    return wrong("does not begin with its name");
  // What is above the first heading, and below each.
  std::array<std::string, kHeadings.size() + 1> parts;
  std::size_t part = 0;
  bool fenced = false;
  while (!text.empty()) {
    const std::string_view line = take_until(text, '\n');
    if (is_fence(line)) fenced = !fenced;
    if (fenced || !line.starts_with("#")) {
      parts[part] += fmt::format("{}\n", line);
      continue;
    }
    if (part == kHeadings.size() || line != fmt::format("## {}", kHeadings[part]))
      return wrong(fmt::format("has a heading in the wrong place: {}", line));
    ++part;
  }
  if (part < kHeadings.size()) return wrong(fmt::format("lacks \"{}\"", kHeadings[part]));
  if (fenced) return wrong("has a fenced block that does not end");
  for (std::string& section : parts) {
    section = unwrapped(section);
    if (section.empty()) return wrong("has an empty section");
  }
  if (contains_text(parts[0], "\n")) return wrong("has a summary of several paragraphs");
  RulePage out;
  out.summary = as_phrase(parts[0]);
  out.meaning = parts[1];
  out.decision = parts[2];
  out.limits = parts[3];
  out.fix = as_phrase(std::string_view(parts[4]).substr(0, parts[4].find('\n')));
  out.how_to_fix = parts[4];
  out.example = parts[5];
  return out;
}

const RulePage& rule_page(RuleId id) {
  static const std::vector<RulePage> pages = [] {
    std::vector<RulePage> out;
    for (const Rule& rule : all_rules()) {
      const std::string path = fmt::format("verify/rules/{}.md", rule.name);
      const auto files = rule_files();
      const auto file = std::find_if(files.begin(), files.end(),
                                     [&](const EmbeddedFile& f) { return f.path == path; });
      LOCKSTEP_CHECK(file != files.end(), fmt::format("{} is missing", path));
      Result<RulePage> page = parse_rule_page(rule.name, file->text);
      LOCKSTEP_CHECK(static_cast<bool>(page), page.error().str());
      out.push_back(std::move(*page));
    }
    return out;
  }();
  return pages[static_cast<std::size_t>(id)];
}

}  // namespace lockstep::verify
