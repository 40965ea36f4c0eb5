// Every rule has a page with all sections, and no page is without a rule.
#include "verify/rules/page.h"

#include <algorithm>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/tables.h"

namespace lockstep::verify {
namespace {

using ::testing::HasSubstr;

TEST(RulePage, EveryRuleHasOneAndEveryPageHasARule) {
  std::set<std::string> expected, found;
  for (const Rule& rule : all_rules())
    expected.insert("verify/rules/" + std::string(rule.name) + ".md");
  for (const EmbeddedFile& file : rule_files()) found.insert(std::string(file.path));
  EXPECT_EQ(found, expected);
}

TEST(RulePage, EverySectionSaysSomething) {
  for (const Rule& rule : all_rules()) {
    const RulePage& page = rule_page(rule.id);
    EXPECT_LE(rule.name.size() + 2 + page.summary.size(), 100U) << rule.name;
    for (const std::string* text : {&page.meaning, &page.decision, &page.limits}) {
      EXPECT_GT(text->size(), 40U) << rule.name;
      EXPECT_TRUE(text->ends_with('.')) << rule.name << ": " << *text;
    }
    EXPECT_GT(page.fix.size(), 15U) << rule.name;
    EXPECT_FALSE(page.fix.ends_with('.')) << rule.name;
    EXPECT_THAT(page.example, HasSubstr("```")) << rule.name;
  }
}

TEST(RulePage, FilesFitEightyColumns) {
  for (const EmbeddedFile& file : rule_files())
    for (std::string_view text = file.text; !text.empty();) {
      const std::string_view line = text.substr(0, text.find('\n'));
      EXPECT_LE(columns_of(line), 80U) << file.path << ": " << line;
      text.remove_prefix(std::min(line.size() + 1, text.size()));
    }
}

std::string page_text() {
  return "# r\n\nRanks do\nthis.\n\n## What it means\n\nOne\nline.\n\n- an item\n  of two\n- a b\n"
         "\nTwo.\n\n## How it is decided\n\nD.\n\n## What it cannot see\n\nL.\n\n"
         "## How to fix it\n\nNCCL needs\nthis.\n\n```\n# code\n```\n\n## Example\n\n"
         "So:\n\n```trace\na\n b\n\nc\n```\n";
}

std::string error_of(const std::string& text) {
  const Result<RulePage> page = parse_rule_page("r", text);
  return page ? "" : page.error().message;
}

std::string without(const std::string& part) {
  std::string out = page_text();
  return out.erase(out.find(part), part.size());
}

TEST(RulePage, ParagraphsAndItemsAreOneLineAndBlocksStay) {
  const Result<RulePage> page = parse_rule_page("r", page_text());
  ASSERT_TRUE(page) << page.error().str();
  EXPECT_EQ(page->summary, "ranks do this");
  EXPECT_EQ(page->meaning, "One line.\n\n- an item of two\n- a b\n\nTwo.");
  EXPECT_EQ(page->decision, "D.");
  EXPECT_EQ(page->limits, "L.");
  EXPECT_EQ(page->fix, "NCCL needs this");
  EXPECT_EQ(page->how_to_fix, "NCCL needs this.\n\n```\n# code\n```");
  EXPECT_EQ(page->example, "So:\n\n```trace\na\n b\n\nc\n```");
}

TEST(RulePage, WhatIsMissingOrMisplacedIsNamed) {
  EXPECT_EQ(error_of(page_text()), "");
  EXPECT_EQ(error_of("# another\n"), "the page of the rule r does not begin with its name");
  EXPECT_EQ(error_of(without("\n## Example\n\nSo:\n\n```trace\na\n b\n\nc\n```\n")),
            "the page of the rule r lacks \"Example\"");
  EXPECT_EQ(error_of(without("## What it means\n")),
            "the page of the rule r has a heading in the wrong place: ## How it is decided");
  EXPECT_EQ(error_of(page_text() + "## More\n"),
            "the page of the rule r has a heading in the wrong place: ## More");
  EXPECT_EQ(error_of(without("L.\n")), "the page of the rule r has an empty section");
  EXPECT_EQ(error_of(without("c\n```\n")),
            "the page of the rule r has a fenced block that does not end");
  EXPECT_EQ(error_of(without("Ranks do\nthis.\n")), "the page of the rule r has an empty section");
}

}  // namespace
}  // namespace lockstep::verify
