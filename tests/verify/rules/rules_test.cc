// The rule table is complete.
#include "verify/rules/rules.h"

#include <set>

#include <gtest/gtest.h>

namespace lockstep::verify {
namespace {

TEST(Rules, NamesAreUniqueAndFoundAgain) {
  std::set<std::string_view> names;
  for (const Rule& r : all_rules()) {
    EXPECT_TRUE(names.insert(r.name).second) << r.name;
    EXPECT_EQ(rule_from_name(r.name), r.id);
    EXPECT_EQ(&rule(r.id), &r);
  }
  EXPECT_FALSE(rule_from_name("no-such-rule"));
}

TEST(Rules, EveryRuleMayBeCertainToSomeDegree) {
  for (const Rule& r : all_rules()) {
    const Certainties c = r.certainties;
    EXPECT_TRUE(c.proven || c.observed || c.possible) << r.name;
  }
}

}  // namespace
}  // namespace lockstep::verify
