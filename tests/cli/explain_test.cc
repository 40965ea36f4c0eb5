#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/cli/run_lockstep.h"
#include "verify/rules/rules.h"

namespace lockstep::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Explain, WithoutARuleListsEveryRule) {
  const Outcome rules = run_lockstep({"explain"});
  EXPECT_EQ(rules.status, 0);
  for (const verify::Rule& rule : verify::all_rules())
    EXPECT_THAT(rules.out, HasSubstr("\n  " + std::string(rule.name) + " "));
  expect_fits_a_terminal(rules.out);
}

TEST(Explain, AsJsonLeavesNothingOut) {
  const Outcome rules = run_lockstep({"explain", "--json"});
  EXPECT_EQ(rules.status, 0);
  const auto json = nlohmann::json::parse(rules.out);
  ASSERT_EQ(json.size(), verify::all_rules().size());
  for (const auto& rule : json) {
    for (const char* key : {"id", "family", "severity", "summary", "explanation", "decision",
                            "limits", "fix", "how_to_fix", "example"})
      EXPECT_FALSE(rule.at(key).get<std::string>().empty()) << rule["id"] << " has no " << key;
    EXPECT_FALSE(rule.at("certainties").empty()) << rule["id"];
    EXPECT_GE(rule["explanation"].get<std::string>().size(), 60U) << rule["id"];
  }
  const auto one = nlohmann::json::parse(run_lockstep({"explain", "overlap", "--json"}).out);
  ASSERT_EQ(one.size(), 1U);
  EXPECT_EQ(one[0]["id"], "overlap");
}

TEST(Explain, PrintsEverySectionOfEveryRule) {
  for (const verify::Rule& rule : verify::all_rules()) {
    const Outcome explained = run_lockstep({"explain", std::string(rule.name)});
    EXPECT_EQ(explained.status, 0);
    EXPECT_TRUE(explained.out.starts_with(std::string(rule.name) + " (")) << explained.out;
    for (const char* heading : {"What it means", "How certain a finding is", "How it is decided",
                                "What it cannot see", "How to fix it", "Example"})
      EXPECT_THAT(explained.out, HasSubstr("\n" + std::string(heading) + "\n")) << rule.name;
    EXPECT_THAT(explained.out, Not(HasSubstr("```"))) << rule.name;
    expect_fits_a_terminal(explained.out);
  }
}

TEST(Explain, SaysHowCertainAFindingMayBe) {
  EXPECT_THAT(run_lockstep({"explain", "host-stall"}).out,
              HasSubstr("How certain a finding is\n"
                        "  proven    no schedule lets these ranks continue, or the recorded values "
                        "differ\n"
                        "  observed  seen in this run\n\nHow it is decided"));
}

TEST(Explain, SuggestsTheNearestRule) {
  const Outcome explained = run_lockstep({"explain", "modality-divergance"});
  EXPECT_EQ(explained.status, 2);
  EXPECT_EQ(explained.out, "");
  EXPECT_EQ(explained.err,
            "lockstep: error: no rule \"modality-divergance\"\n"
            "  fix: did you mean modality-divergence? `lockstep explain` lists them\n");
}

TEST(Explain, SuggestsAllRulesThatContainAPartOfAName) {
  EXPECT_THAT(run_lockstep({"explain", "mismatch"}).err,
              HasSubstr("did you mean op-mismatch, size-mismatch, "));
  EXPECT_THAT(run_lockstep({"explain", "lifecycle"}).err, HasSubstr("never-waited"));
  EXPECT_THAT(run_lockstep({"explain", std::string(100'000, 'x')}).err,
              HasSubstr("`lockstep explain` lists them"));
}

}  // namespace
}  // namespace lockstep::cli
