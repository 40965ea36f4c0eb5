#include "reports/findings/figures/figures.h"

#include <random>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/reports/inline_run.h"
#include "verify/verify.h"

namespace lockstep::reports {
namespace {

using testing::ElementsAre;

// One call of world for each letter, all of one size.
std::string calls(const std::string& letters, const std::string& end = kHung) {
  std::string out;
  for (std::size_t i = 0; i < letters.size(); ++i) {
    const bool last = i + 1 == letters.size();
    out += all_reduce(static_cast<int>(i), letters.substr(i, 1), 8) +
           (last ? "" : complete(static_cast<int>(i)));
  }
  return out + end;
}

std::string letter(const trace::Run& run, const DiffSide& side, std::optional<std::uint32_t> call) {
  if (!call) return ".";
  return run.tables.names(run.ranks[side.rank_index].calls[*call].what).at(0);
}

// "ab" for a row with a on the usual side and b on the deviant's; equal rows in brackets.
std::vector<std::string> rows(const trace::Run& run, const SequenceDiff& diff) {
  std::vector<std::string> out;
  for (const DiffRow& row : diff.rows) {
    const std::string both =
        letter(run, diff.usual, row.usual) + letter(run, diff.deviant, row.deviant);
    out.push_back(row.same ? "(" + both + ")" : both);
  }
  return out;
}

verify::Finding finding_at(std::uint64_t seq, const std::vector<std::int32_t>& culprits) {
  verify::Finding finding;
  finding.group = "world";
  finding.seq = seq;
  finding.culprits = ranks_of(culprits);
  return finding;
}

std::optional<SequenceDiff> diff_at(const verify::Finding& finding, const trace::Run& run) {
  return sequence_diff(finding, run, verify::group_streams(run));
}

TEST(SequenceDiff, ShowsWhatOneSideLeftOut) {
  const trace::Run run = inline_run({calls("abcde"), calls("abde"), calls("abcde")});
  const auto diff = diff_at(finding_at(2, {1}), run);
  ASSERT_TRUE(diff);
  EXPECT_THAT(rows(run, *diff), ElementsAre("(aa)", "(bb)", "c.", "(dd)", "(ee)"));
  EXPECT_EQ(diff->usual.ranks, ranks_of({0, 2}));
  EXPECT_EQ(diff->deviant.ranks, ranks_of({1}));
  EXPECT_TRUE(diff->usual.ends);
  EXPECT_TRUE(diff->deviant.ends);
  EXPECT_EQ(diff->rows[3].usual_seq, 3U);
  EXPECT_EQ(diff->rows[3].deviant_seq, 2U);
}

TEST(SequenceDiff, ShowsWhatOneSideAddedOrExchanged) {
  const trace::Run added = inline_run({calls("abd"), calls("abxd"), calls("abd")});
  EXPECT_THAT(rows(added, *diff_at(finding_at(2, {1}), added)),
              ElementsAre("(aa)", "(bb)", ".x", "(dd)"));
  const trace::Run replaced = inline_run({calls("abcd"), calls("abxd"), calls("abcd")});
  EXPECT_THAT(rows(replaced, *diff_at(finding_at(2, {1}), replaced)),
              ElementsAre("(aa)", "(bb)", "cx", "(dd)"));
}

TEST(SequenceDiff, KeepsThreeEqualCallsAroundTheDifference) {
  const trace::Run run =
      inline_run({calls("abcdefgXhijklmn"), calls("abcdefgYhijklmn"), calls("abcdefgXhijklmn")});
  const auto diff = diff_at(finding_at(7, {1}), run);
  ASSERT_TRUE(diff);
  EXPECT_THAT(rows(run, *diff), ElementsAre("(ee)", "(ff)", "(gg)", "XY", "(hh)", "(ii)", "(jj)"));
  EXPECT_FALSE(diff->usual.ends) << "there is more";
}

TEST(SequenceDiff, AStreamThatEndsEarlyHasNothingThere) {
  const trace::Run run = inline_run({calls("abc"), calls("ab", kClean), calls("abc")});
  EXPECT_THAT(rows(run, *diff_at(finding_at(2, {1}), run)), ElementsAre("(aa)", "(bb)", "c."));
}

// Equal calls from two lines of the program, of which rank 1 left one out.
TEST(SequenceDiff, LocationsTellEqualCallsApart) {
  const auto program = [](const std::vector<int>& lines) {
    std::string out;
    int id = 0;
    for (const int line : lines)
      out += issue_line(
          id++, "world", "all_reduce",
          {{"in", {{8}}}, {"dtype", "float32"}, {"at", fmt::format("model.py:{}", line)}});
    return out + kHung;
  };
  const auto run = inline_run({program({1, 1, 2, 2}), program({1, 2, 2})});
  const auto diff = diff_at(finding_at(1, {1}), run);
  ASSERT_TRUE(diff);
  ASSERT_EQ(diff->rows.size(), 4U);
  EXPECT_TRUE(diff->rows[0].same);
  EXPECT_FALSE(diff->rows[1].deviant);
  EXPECT_EQ(diff->rows[1].usual_seq, 1U);
  EXPECT_TRUE(diff->rows[2].same);
  EXPECT_EQ(diff->rows[2].deviant_seq, 1U);
}

TEST(SequenceDiff, IsNothingWithoutTwoSides) {
  const trace::Run run = inline_run({calls("abc"), calls("abd")});
  EXPECT_FALSE(diff_at(finding_at(2, {}), run)) << "no culprit";
  EXPECT_FALSE(diff_at(finding_at(2, {0, 1}), run)) << "nobody else";
  EXPECT_FALSE(diff_at(finding_at(2, {7}), run)) << "the culprit left no trace";
  verify::Finding elsewhere = finding_at(2, {1});
  elsewhere.group = "dp";
  EXPECT_FALSE(diff_at(elsewhere, run)) << "no such group";
  elsewhere.group = "world";
  elsewhere.seq.reset();
  EXPECT_FALSE(diff_at(elsewhere, run)) << "no place";
  const trace::Run equal = inline_run({calls("abc"), calls("abc")});
  EXPECT_FALSE(diff_at(finding_at(2, {1}), equal)) << "no difference";
  EXPECT_TRUE(diff_at(finding_at(1'000'000, {1}), run).value_or(SequenceDiff{}).rows.empty())
      << "a column after all calls";
}

std::string state(int n, const std::string& name, const LineKeys& more) {
  LineKeys keys = {{"ev", "state"}, {"n", n}, {"name", name}};
  keys.update(more);
  return json_line(keys);
}
std::string step(int n, const LineKeys& loss) {
  return json_line({{"ev", "step"}, {"n", n}, {"loss", loss}});
}

std::vector<std::string> names(const std::vector<ValueCurves>& all) {
  std::vector<std::string> out;
  for (const ValueCurves& one : all) out.push_back(one.name);
  return out;
}

TEST(ValueCurves, TheLossIsTheMeanOverTheRanks) {
  const trace::Run run = inline_run({step(0, 1) + step(1, 0.5), step(0, 3), step(0, nullptr)});
  const auto all = value_curves({}, run, 6);
  ASSERT_EQ(all.size(), 1U);
  ASSERT_EQ(all[0].curves.size(), 1U);
  EXPECT_EQ(all[0].curves[0].ranks, ranks_of({0, 1}));
  ASSERT_EQ(all[0].curves[0].points.size(), 2U);
  EXPECT_EQ(all[0].curves[0].points[0].value, 2.0);
  EXPECT_EQ(all[0].curves[0].points[1].value, 0.5);
  EXPECT_TRUE(all[0].agreement.empty()) << "each rank has a batch of its own";
}

TEST(ValueCurves, EqualRanksShareACurveAndDifferencesAreDated) {
  const auto rank = [](int last) {
    return state(0, "w", {{"norm", 1}, {"hash", "a"}}) + state(1, "w", {{"norm", last}});
  };
  const trace::Run run = inline_run({rank(2), rank(3), rank(2)});
  const auto all = value_curves({}, run, 6);
  ASSERT_EQ(all.size(), 1U);
  ASSERT_EQ(all[0].curves.size(), 2U);
  EXPECT_EQ(all[0].curves[0].ranks, ranks_of({0, 2}));
  EXPECT_EQ(all[0].curves[1].ranks, ranks_of({1}));
  EXPECT_EQ(all[0].first_difference, 1);
  ASSERT_EQ(all[0].agreement.size(), 2U);
  EXPECT_TRUE(all[0].agreement[0].agree);
  EXPECT_FALSE(all[0].agreement[1].agree);
}

TEST(ValueCurves, WhatMayDifferIsNoDifference) {
  const auto rank = [](int norm) {
    return state(0, "local", {{"kind", "grad"}, {"when", "local"}, {"norm", norm}}) +
           state(0, "shard", {{"sharded", true}, {"norm", norm}});
  };
  for (const ValueCurves& one : value_curves({}, inline_run({rank(1), rank(2)}), 6)) {
    EXPECT_FALSE(one.first_difference) << one.name;
    EXPECT_TRUE(one.agreement.empty()) << one.name;
  }
}

TEST(ValueCurves, NamedTensorsComeFirstThenThoseThatDiffer) {
  const auto rank = [](int norm) {
    return state(0, "a", {{"norm", 1}}) + state(0, "b", {{"norm", norm}}) +
           state(0, "c", {{"norm", 1}});
  };
  const trace::Run run = inline_run({rank(1), rank(2)});
  verify::Report report;
  EXPECT_THAT(names(value_curves(report, run, 6)), ElementsAre("b", "a", "c"));
  EXPECT_THAT(names(value_curves(report, run, 1)), ElementsAre("b"));
  report.findings.emplace_back();
  report.findings[0].rule = verify::RuleId::param_divergence;
  report.findings[0].what = {"c"};
  EXPECT_THAT(names(value_curves(report, run, 6)), ElementsAre("c", "b", "a"));
}

// The fingerprint of w's gradient at step 0.
std::string gradient(const char* when, double norm, const std::vector<double>& sketch) {
  return state(0, "w", {{"kind", "grad"}, {"when", when}, {"norm", norm}, {"sketch", sketch}});
}

TEST(ValueCurves, AResultStandsBesideTheMeanThatItShouldBe) {
  // Gradients of norm 3 and 5 whose sum, 8, was not divided; the sketches have one direction.
  const auto rank = [](double own) {
    return gradient("local", own, {own}) + gradient("synced", 8, {8});
  };
  verify::Report report;
  report.findings.emplace_back();
  report.findings[0].rule = verify::RuleId::reduction_wrong;
  report.findings[0].what = {"w"};
  const auto all = value_curves(report, inline_run({rank(3), rank(5)}), 6);
  ASSERT_EQ(all.size(), 1U) << "not its two sides once more";
  ASSERT_EQ(all[0].curves.size(), 2U);
  EXPECT_EQ(all[0].curves[0].label, "mean of the ranks' own");
  EXPECT_EQ(all[0].curves[0].points.at(0).value, 4);
  EXPECT_EQ(all[0].curves[1].label, "result on ranks 0,1");
  EXPECT_EQ(all[0].curves[1].points.at(0).value, 8);
}

TEST(ValueCurves, SketchesThatDoNotCompareGiveNoMean) {
  const auto rank = [](const std::vector<double>& sketch) {
    return gradient("local", 1, sketch) + gradient("synced", 1, sketch);
  };
  verify::Report report;
  report.findings.emplace_back();
  report.findings[0].rule = verify::RuleId::reduction_wrong;
  report.findings[0].what = {"w"};
  for (const std::vector<double>& other : {std::vector{1.0}, std::vector{1e200, 1e200, 1e200}}) {
    for (const ValueCurves& figure :
         value_curves(report, inline_run({rank({1, 2, 3}), rank(other)}), 6)) {
      for (const Curve& curve : figure.curves) EXPECT_NE(curve.label, "mean of the ranks' own");
    }
  }
}

TEST(ValueCurves, SomeOfManyDifferentRanksAreShown) {
  std::vector<std::string> ranks;
  for (int i = 0; i < 9; ++i) ranks.push_back(state(0, "w", {{"norm", i}}));
  const auto all = value_curves({}, inline_run(ranks), 6);
  EXPECT_EQ(all.at(0).curves.size(), 4U);
  EXPECT_EQ(all.at(0).curves_left_out, 5U);
}

}  // namespace
}  // namespace lockstep::reports

namespace lockstep::reports::html {
namespace {

using Kind = WaitEdge::Kind;

void expect_apart_and_within(const WaitLayout& layout) {
  for (std::size_t a = 0; a < layout.boxes.size(); ++a) {
    const Box& one = layout.boxes[a];
    EXPECT_GE(one.x, 0) << a;
    EXPECT_GE(one.y, 0) << a;
    EXPECT_LE(one.x + one.width, layout.width) << a;
    EXPECT_LE(one.y + one.height, layout.height) << a;
    for (std::size_t b = 0; b < a; ++b) {
      const Box& other = layout.boxes[b];
      const bool apart = one.x >= other.x + other.width || other.x >= one.x + one.width ||
                         one.y >= other.y + other.height || other.y >= one.y + one.height;
      EXPECT_TRUE(apart) << a << " covers " << b;
    }
  }
}

TEST(WaitLayout, WaitingRanksAreLeftOfThoseTheyWaitFor) {
  const WaitLayout layout = lay_out(4, {{0, 2}, {1, 2}, {2, 3}});
  expect_apart_and_within(layout);
  EXPECT_LT(layout.boxes[0].x, layout.boxes[2].x);
  EXPECT_EQ(layout.boxes[0].x, layout.boxes[1].x);
  EXPECT_LT(layout.boxes[2].x, layout.boxes[3].x);
  EXPECT_FALSE(layout.has_ring);
}

TEST(WaitLayout, ACycleIsARingWithItsVictimsOutside) {
  // 0 -> 1 -> 2 -> 0, and one that waits for each of them.
  const WaitLayout layout = lay_out(6, {{0, 1}, {1, 2}, {2, 0}, {3, 0}, {4, 1}, {5, 2}});
  expect_apart_and_within(layout);
  EXPECT_TRUE(layout.has_ring);
  EXPECT_LT(layout.boxes[3].x, layout.boxes[0].x) << "0 is the ring's left";
  EXPECT_GT(layout.boxes[4].x, layout.boxes[1].x) << "1 and 2 its right";
  EXPECT_GT(layout.boxes[5].x, layout.boxes[2].x);
}

TEST(WaitLayout, TwoRanksThatWaitForEachOtherAreSideBySide) {
  const WaitLayout layout = lay_out(2, {{0, 1}, {1, 0}});
  expect_apart_and_within(layout);
  EXPECT_TRUE(layout.has_ring);
  EXPECT_EQ(layout.boxes[0].y, layout.boxes[1].y);
}

TEST(WaitLayout, MismatchedCallsAreNoRing) {
  const WaitLayout layout = lay_out(2, {{0, 1, Kind::mismatch}});
  expect_apart_and_within(layout);
  EXPECT_FALSE(layout.has_ring);
}

TEST(WaitLayout, NoGraphMakesNodesCoverEachOther) {
  std::mt19937 random(7);  // any seed will do
  for (int round = 0; round < 300; ++round) {
    const std::size_t nodes = 1 + random() % 16;
    std::vector<WaitEdge> edges;
    for (std::size_t e = random() % 24; e > 0; --e)
      edges.push_back({random() % nodes, random() % nodes});
    const WaitLayout layout = lay_out(nodes, edges);
    ASSERT_EQ(layout.boxes.size(), nodes);
    expect_apart_and_within(layout);
    if (HasFailure()) FAIL() << "round " << round;
  }
}

}  // namespace
}  // namespace lockstep::reports::html
