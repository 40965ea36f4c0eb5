// The first edit of the cheapest script, on strings.
#include <string>

#include <gtest/gtest.h>

#include "verify/streams/edits.h"

namespace lockstep::verify {
namespace {

std::string edit(const std::string& reference, const std::string& deviant,
                 bool both_ended = false) {
  EditProblem problem;
  problem.reference = reference.size();
  problem.deviant = deviant.size();
  problem.seen = reference.size();
  if (both_ended) {
    problem.owed = reference.size();
    problem.reference_ends = true;
  }
  problem.compare_all([&](std::size_t i, std::size_t j) {
    return reference[i] == deviant[j] ? std::uint8_t{0} : std::uint8_t{1};
  });
  const FirstEdit first = first_edit(problem);
  switch (first.kind) {
    case FirstEdit::Kind::replaced:
      return "replaced";
    case FirstEdit::Kind::swapped:
      return "swapped";
    case FirstEdit::Kind::missing:
      return "missing " + std::to_string(first.count);
    case FirstEdit::Kind::extra:
      return "extra " + std::to_string(first.count);
  }
  return "";
}

TEST(EditScript, OneOfEach) {
  EXPECT_EQ(edit("abcdef", "xbcdef"), "replaced");
  EXPECT_EQ(edit("abcdef", "bcdef"), "missing 1");
  EXPECT_EQ(edit("abcdef", "cdef"), "missing 2");
  EXPECT_EQ(edit("abcdef", "xabcdef"), "extra 1");
  EXPECT_EQ(edit("abcdef", "bacdef"), "swapped");
}

TEST(EditScript, ADeviantThatWasCutShortOwesNothing) {
  EXPECT_EQ(edit("abc", "b"), "missing 1");
  EXPECT_EQ(edit("abc", "x"), "replaced");
}

TEST(EditScript, WhereBothEndedTheLengthsTell) {
  // Left out or replaced: both leave one change, but then the rest must fit too.
  EXPECT_EQ(edit("haaaa", "xaaaa", true), "replaced");
  EXPECT_EQ(edit("haaaa", "aaaa", true), "missing 1");
  EXPECT_EQ(edit("haaaa", "xhaaaa", true), "extra 1");
}

TEST(EditScript, SeveralGapsAreCheaperThanAShiftByAPeriod) {
  EXPECT_EQ(edit("abcdefabcdefabcdef", "bdeabcdefabcdef"), "missing 1");
}

TEST(EditScript, ASwapNeedsBothCallsToBeThere) {
  EXPECT_EQ(edit("ab", "ba"), "swapped");
  EditProblem problem;
  problem.reference = 2;
  problem.seen = 1;  // "b" is only expected
  problem.deviant = 2;
  const std::string reference = "ab";
  const std::string deviant = "ba";
  problem.compare_all([&](std::size_t i, std::size_t j) {
    return reference[i] == deviant[j] ? std::uint8_t{0} : std::uint8_t{1};
  });
  EXPECT_EQ(first_edit(problem).kind, FirstEdit::Kind::missing);
}

// Two elements that come once more, before the deviant hangs in the next one; or once less.
TEST(EditScript, ARepetitionIsNoSwapAlthoughItsElementsComeInTheOtherOrder) {
  EXPECT_EQ(edit("bars", "abb"), "extra 2");
  EXPECT_EQ(edit("abb", "bar"), "missing 2");
  // What agrees again after two changed places, and what nothing explains better.
  EXPECT_EQ(edit("bars", "abrs"), "swapped");
  EXPECT_EQ(edit("bars", "abr"), "swapped");
  EXPECT_EQ(edit("bars", "abx"), "swapped");
}

}  // namespace
}  // namespace lockstep::verify
