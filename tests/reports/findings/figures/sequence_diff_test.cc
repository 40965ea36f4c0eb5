#include <gmock/gmock.h>

#include "reports/findings/figures/figures.h"
#include "tests/reports/inline_run.h"
#include "verify/verify.h"

namespace lockstep::reports {
namespace {

using testing::ElementsAre;

// One call of world for each letter, all of one size.
std::string calls(const std::string& letters, const std::string& end = "{\"end\":\"hung\"}\n") {
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
  const trace::Run run =
      inline_run({calls("abc"), calls("ab", "{\"end\":\"clean\"}\n"), calls("abc")});
  EXPECT_THAT(rows(run, *diff_at(finding_at(2, {1}), run)), ElementsAre("(aa)", "(bb)", "c."));
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
      << "a place behind all calls";
}

}  // namespace
}  // namespace lockstep::reports
