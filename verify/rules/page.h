// What a rule means, as its page says: verify/rules/<name>.md, which is part of the program.
// `lockstep explain`, docs/reference/rules.md and the reports take their texts from there.
//
//   # NAME
//
//   The summary: one sentence.
//
//   ## What it means           followed by these four headings, in this order:
//   ## How it is decided       which evidence, which heuristic; the cost where it matters
//   ## What it cannot see      where it is silent, and where the verdict is inconclusive
//   ## How to fix it           the first paragraph is one sentence: the "do" of a finding
//   ## Example                 a drawing in a fenced block, or
//                              ```trace    the lines of all ranks' traces, rank after rank
//                              ```report   what `lockstep verify` prints for them
//
// A line of a trace block that begins with a blank continues the line above it. Tests make the
// report blocks again and compare (tests/docs/reference.h).
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/embedded_file.h"
#include "base/result.h"
#include "verify/rules/rules.h"

namespace lockstep::verify {

// In the sections a paragraph or an item of a list ("- …") is one line, without line breaks; fenced
// blocks are as they stand in the page.
struct RulePage {
  std::string summary;     // part of a sentence: "ranks issue different operations"
  std::string meaning;     // "What it means"
  std::string decision;    // "How it is decided"
  std::string limits;      // "What it cannot see"
  std::string fix;         // the first sentence of "How to fix it", as part of one
  std::string how_to_fix;  // "How to fix it", all of it
  std::string example;     // "Example"
};

// The page of that rule.
const RulePage& rule_page(RuleId id);

// The text of the page of the rule `name`. Error: a heading or a text that is missing or in another
// place.
Result<RulePage> parse_rule_page(std::string_view name, std::string_view text);

// The pages as they stand in the repository; in no order.
std::span<const EmbeddedFile> rule_files();

// Whether a line of a page begins or ends a fenced block.
inline bool is_fence(std::string_view line) { return line.starts_with("```"); }

}  // namespace lockstep::verify
