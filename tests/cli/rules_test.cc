#include "verify/rules.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/cli/run_lockstep.h"
#include "verify/rule_examples.h"

namespace lockstep::cli {
namespace {

using testing::HasSubstr;

TEST(Rules, ListsEveryRuleInEightyColumns) {
  const Outcome rules = run_lockstep({"rules"});
  EXPECT_EQ(rules.status, 0);
  for (const verify::Rule& rule : verify::all_rules())
    EXPECT_THAT(rules.out, HasSubstr(std::string(rule.name)));
  expect_fits_a_terminal(rules.out);
}

TEST(Rules, AsJsonLeaveNothingOut) {
  const Outcome rules = run_lockstep({"rules", "--json"});
  EXPECT_EQ(rules.status, 0);
  const auto json = nlohmann::json::parse(rules.out);
  ASSERT_EQ(json.size(), verify::all_rules().size());
  for (const auto& rule : json) {
    for (const char* key : {"id", "family", "severity", "summary", "explanation", "fix", "example"})
      EXPECT_FALSE(rule.at(key).get<std::string>().empty()) << rule["id"] << " has no " << key;
    EXPECT_FALSE(rule.at("certainties").empty()) << rule["id"];
    EXPECT_GE(rule["explanation"].get<std::string>().size(), 60U) << rule["id"];
  }
}

TEST(Explain, ExplainsEveryRuleWithAnExample) {
  for (const verify::Rule& rule : verify::all_rules()) {
    const Outcome explained = run_lockstep({"explain", std::string(rule.name)});
    EXPECT_EQ(explained.status, 0);
    EXPECT_THAT(explained.out, HasSubstr("What to do"));
    EXPECT_FALSE(verify::rule_example(rule.id).empty()) << rule.name;
    expect_fits_a_terminal(explained.out);
  }
}

TEST(Explain, SaysHowCertainAFindingMayBe) {
  EXPECT_THAT(run_lockstep({"explain", "host-stall"}).out,
              HasSubstr("How certain a finding is\n"
                        "  proven    no schedule lets these ranks go on, or the recorded values "
                        "differ\n"
                        "  observed  seen in this run\n\nWhat to do"));
}

TEST(Explain, SuggestsTheNearestRule) {
  const Outcome explained = run_lockstep({"explain", "modality-divergance"});
  EXPECT_EQ(explained.status, 2);
  EXPECT_EQ(explained.out, "");
  EXPECT_EQ(explained.err,
            "lockstep: error: no rule \"modality-divergance\"\n"
            "  fix: did you mean modality-divergence? `lockstep explain` lists them\n");
}

TEST(Explain, OfAPartOfANameAllThatHoldItAreSuggested) {
  EXPECT_THAT(run_lockstep({"explain", "mismatch"}).err,
              HasSubstr("did you mean op-mismatch, size-mismatch, "));
  EXPECT_THAT(run_lockstep({"explain", "lifecycle"}).err, HasSubstr("never-waited"));
  EXPECT_THAT(run_lockstep({"explain", std::string(100'000, 'x')}).err,
              HasSubstr("`lockstep explain` lists them"));
}

}  // namespace
}  // namespace lockstep::cli
