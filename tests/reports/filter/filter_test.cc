#include "reports/filter/filter.h"

#include <gmock/gmock.h>

#include "tests/reports/samples.h"

namespace lockstep::reports {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const auto kToday = *parse_date("2026-06-15");

Suppression suppression_of(verify::RuleId id) {
  Suppression out;
  out.rule = id;
  out.reason = "accepted";
  out.location = {"s.yaml", 3, 1};
  return out;
}

FilteredReport apply(std::vector<verify::Finding> findings, const Filter& filter) {
  const trace::Run run = inline_run({all_reduce(0, "w", 8), all_reduce(0, "w", 8)});
  return filtered(report_of(std::move(findings)).report, run, filter, kToday);
}

TEST(Glob, StarAndQuestionMark) {
  EXPECT_TRUE(glob_matches("image.*", "image.proj.weight"));
  EXPECT_TRUE(glob_matches("*/sync.py:*", "/job/sync.py:41"));
  EXPECT_TRUE(glob_matches("a*b*c", "a_b_b_c"));
  EXPECT_TRUE(glob_matches("layer.?.w", "layer.3.w"));
  EXPECT_TRUE(glob_matches("*", ""));
  EXPECT_TRUE(glob_matches("", ""));
  EXPECT_FALSE(glob_matches("image.*", "my.image.x")) << "all of the text";
  EXPECT_FALSE(glob_matches("layer.?.w", "layer.12.w"));
  EXPECT_FALSE(glob_matches("", "a"));
  EXPECT_FALSE(glob_matches("a*b", "abc"));
  EXPECT_FALSE(glob_matches("[a]", "a")) << "brackets stand for themselves";
}

TEST(Glob, ManyStarsDoNotHang) {
  std::string pattern;
  for (int i = 0; i < 200; ++i) pattern += "*a";
  EXPECT_FALSE(glob_matches(pattern + "b", std::string(20'000, 'a')));
}

TEST(Filter, NothingGivenChangesNothing) {
  const FilteredReport out = apply({full_finding()}, {});
  EXPECT_EQ(out.report.findings.size(), 1U);
  EXPECT_EQ(out.report.verdict, verify::Verdict::findings);
  EXPECT_THAT(out.set_aside, IsEmpty());
  EXPECT_THAT(out.notes, IsEmpty());
}

TEST(Filter, OnlyAndDisableChooseRules) {
  const std::vector<verify::Finding> two = {
      full_finding(), finding_of(verify::RuleId::never_waited, verify::Severity::warning)};
  const FilteredReport only = apply(two, {.only = {verify::RuleId::never_waited}});
  ASSERT_EQ(only.report.findings.size(), 1U);
  EXPECT_EQ(only.report.findings[0].rule, verify::RuleId::never_waited);
  EXPECT_THAT(only.notes, ElementsAre(HasSubstr("1 finding of rules that were not asked for is")));
  const FilteredReport none =
      apply(two, {.disable = {verify::RuleId::never_waited, verify::RuleId::missing_collective}});
  EXPECT_EQ(none.report.verdict, verify::Verdict::clean);
  EXPECT_THAT(none.set_aside, IsEmpty());
}

TEST(Filter, NotesAloneAreClean) {
  Filter filter;
  filter.suppressions = {suppression_of(verify::RuleId::missing_collective)};
  const FilteredReport out = apply(
      {full_finding(), finding_of(verify::RuleId::damaged_trace, verify::Severity::note)}, filter);
  EXPECT_EQ(out.report.verdict, verify::Verdict::clean);
  EXPECT_EQ(out.report.findings.size(), 1U);
}

TEST(Filter, NeverMakesABlindRunClean) {
  const trace::Run run = inline_run({all_reduce(0, "w", 8)});
  verify::Report report = report_of({full_finding()}).report;
  report.ranks_missing = ranks_of({1});
  const Filter filter = {.disable = {verify::RuleId::missing_collective}};
  EXPECT_EQ(filtered(report, run, filter, kToday).report.verdict, verify::Verdict::inconclusive);
  report.ranks_missing.clear();
  EXPECT_EQ(filtered(report, run, filter, kToday).report.verdict, verify::Verdict::clean);
  trace::Run with_unreadable_file = inline_run({all_reduce(0, "w", 8)});
  with_unreadable_file.unreadable.emplace_back();
  EXPECT_EQ(filtered(report, with_unreadable_file, filter, kToday).report.verdict,
            verify::Verdict::inconclusive);
  report.findings.clear();
  report.verdict = verify::Verdict::inconclusive;
  EXPECT_EQ(filtered(report, run, filter, kToday).report.verdict, verify::Verdict::inconclusive);
}

TEST(Suppressions, SetAsideWithTheirReason) {
  Filter filter;
  filter.suppressions = {suppression_of(verify::RuleId::missing_collective)};
  filter.suppressions[0].last_day = parse_date("2026-06-15");
  const FilteredReport out = apply({full_finding()}, filter);
  EXPECT_EQ(out.report.verdict, verify::Verdict::clean);
  ASSERT_EQ(out.set_aside.size(), 1U);
  EXPECT_EQ(out.set_aside[0].why, SetAside::Why::suppressed);
  EXPECT_EQ(out.set_aside[0].reason, "accepted");
  EXPECT_EQ(out.set_aside[0].expires, "2026-06-15") << "today is still good";
  EXPECT_THAT(out.notes, IsEmpty());
}

TEST(Suppressions, ExpireTheDayAfter) {
  Filter filter;
  filter.suppressions = {suppression_of(verify::RuleId::missing_collective)};
  filter.suppressions[0].last_day = parse_date("2026-06-14");
  const FilteredReport out = apply({full_finding()}, filter);
  EXPECT_EQ(out.report.verdict, verify::Verdict::findings);
  EXPECT_THAT(out.notes, ElementsAre("s.yaml:3:1: the suppression of missing-collective expired on "
                                     "2026-06-14 and no longer holds; its reason was: accepted"));
  // Another entry for the same finding still holds.
  filter.suppressions.push_back(suppression_of(verify::RuleId::missing_collective));
  EXPECT_EQ(apply({full_finding()}, filter).report.verdict, verify::Verdict::clean);
}

TEST(Suppressions, ThatMatchNothingAreMentioned) {
  Filter filter;
  filter.suppressions = {suppression_of(verify::RuleId::order_swap)};
  EXPECT_THAT(apply({full_finding()}, filter).notes,
              ElementsAre("s.yaml:3:1: the suppression of order-swap matches no finding: remove it "
                          "if the defect is fixed"));
}

TEST(Suppressions, AllConditionsMustHold) {
  const verify::Finding finding = full_finding();
  const auto holds = [&](auto change) {
    Suppression one = suppression_of(verify::RuleId::missing_collective);
    change(one);
    return matches(one, finding);
  };
  EXPECT_TRUE(holds([](Suppression&) {}));
  EXPECT_FALSE(holds([](Suppression& s) { s.rule = verify::RuleId::extra_collective; }));
  EXPECT_TRUE(holds([](Suppression& s) { s.group = "world"; }));
  EXPECT_FALSE(holds([](Suppression& s) { s.group = "dp0"; }));
  EXPECT_TRUE(holds([](Suppression& s) { s.what = {"image.proj.*"}; }));
  EXPECT_TRUE(holds([](Suppression& s) { s.what = {"*.weight", "*.bias"}; }));
  EXPECT_FALSE(holds([](Suppression& s) { s.what = {"*.weight"}; })) << "every parameter";
  EXPECT_TRUE(holds([](Suppression& s) { s.at = {"src/skip.cc:*"}; }));
  EXPECT_FALSE(holds([](Suppression& s) { s.at = {"skip.cc:*"}; }));
  EXPECT_TRUE(holds([](Suppression& s) { s.ranks = ranks_of({1, 2}); }));
  EXPECT_FALSE(holds([](Suppression& s) { s.ranks = ranks_of({0, 1}); }));
}

TEST(Suppressions, OfWhatIsNotRecordedDoNotMatch) {
  verify::Finding bare = finding_of(verify::RuleId::missing_collective, verify::Severity::error);
  Suppression one = suppression_of(verify::RuleId::missing_collective);
  EXPECT_TRUE(matches(one, bare));
  one.what = {"*"};
  EXPECT_FALSE(matches(one, bare)) << "no parameter is named";
  one.what.clear();
  one.at = {"*"};
  EXPECT_FALSE(matches(one, bare)) << "no evidence";
  one.at.clear();
  one.ranks = ranks_of({0});
  EXPECT_FALSE(matches(one, bare)) << "no rank is named";
  bare.ranks = ranks_of({0, 1});
  EXPECT_FALSE(matches(one, bare));
  one.ranks = ranks_of({0, 1, 2});
  EXPECT_TRUE(matches(one, bare)) << "without culprits, all that are concerned";
}

TEST(Baseline, KnownFindingsDoNotCountAndNewOnesDo) {
  Filter filter;
  filter.baseline = {{"00c0ffee00c0ffee"}};
  const FilteredReport known = apply({full_finding()}, filter);
  EXPECT_EQ(known.report.verdict, verify::Verdict::clean);
  ASSERT_EQ(known.set_aside.size(), 1U);
  EXPECT_EQ(known.set_aside[0].why, SetAside::Why::known);
  EXPECT_TRUE(known.compared);
  const FilteredReport fresh = apply(
      {full_finding(), finding_of(verify::RuleId::order_swap, verify::Severity::error)}, filter);
  EXPECT_EQ(fresh.report.verdict, verify::Verdict::findings);
  EXPECT_EQ(fresh.report.findings.size(), 1U);
}

TEST(Baseline, AnEmptyOneKnowsNothing) {
  Filter filter;
  filter.baseline.emplace();
  verify::Finding without = full_finding();
  without.fingerprint.clear();
  EXPECT_EQ(apply({full_finding(), without}, filter).report.findings.size(), 2U);
}

TEST(Dates, AreThoseOfTheCalendar) {
  EXPECT_EQ(date_text(*parse_date("2024-02-29")), "2024-02-29");
  for (const char* bad : {"", "2026-2-1", "2023-02-29", "2026-13-01", "2026-00-10", "2026-01-32",
                          "26-01-01", "2026/01/01", "2026-01-01T00", "+026-01-01", "2026-01- 1"})
    EXPECT_FALSE(parse_date(bad)) << bad;
}

}  // namespace
}  // namespace lockstep::reports
