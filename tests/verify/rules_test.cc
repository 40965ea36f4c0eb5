// The rule table is complete and every row can be printed.
#include "verify/rules.h"

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

TEST(Rules, EveryRowTellsWhatItMeansAndWhatToDo) {
  for (const Rule& r : all_rules()) {
    EXPECT_FALSE(r.summary.empty()) << r.name;
    EXPECT_GT(r.explanation.size(), 40U) << r.name;
    EXPECT_FALSE(r.fix.empty()) << r.name;
    const Certainties c = r.certainties;
    EXPECT_TRUE(c.proven || c.observed || c.possible) << r.name;
    EXPECT_LE(r.name.size() + 2 + r.summary.size(), 100U) << r.name;
  }
}

}  // namespace
}  // namespace lockstep::verify
