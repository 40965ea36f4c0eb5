#include "trace/hang_watch.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using Verdict = HangWatch::Verdict;

TEST(Hangs, AreCallsOnTheDeviceWhileNothingIsRecorded) {
  HangWatch watch(100);
  EXPECT_EQ(watch.look(7, 1, 1'000), Verdict::as_before) << "the first look";
  EXPECT_EQ(watch.look(7, 1, 1'099), Verdict::as_before);
  EXPECT_EQ(watch.look(7, 1, 1'100), Verdict::hangs);
  EXPECT_EQ(watch.look(7, 1, 9'000), Verdict::as_before) << "said already";
}

TEST(Hangs, AreTakenBackWhenSomethingMoves) {
  HangWatch watch(100);
  watch.look(7, 1, 0);
  EXPECT_EQ(watch.look(7, 1, 200), Verdict::hangs);
  EXPECT_EQ(watch.look(8, 1, 300), Verdict::goes_on);
  EXPECT_EQ(watch.look(8, 1, 399), Verdict::as_before) << "the time counts from the move";
  EXPECT_EQ(watch.look(8, 1, 400), Verdict::hangs);
}

TEST(Hangs, AreNoneWhereTheDeviceHasNothingToDo) {
  HangWatch watch(100);
  watch.look(7, 0, 0);
  EXPECT_EQ(watch.look(7, 0, 1'000'000), Verdict::as_before) << "an evaluation, a checkpoint";
}

}  // namespace
}  // namespace lockstep
