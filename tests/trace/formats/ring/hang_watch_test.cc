#include "trace/formats/ring/hang_watch.h"

#include <gtest/gtest.h>

namespace lockstep::trace {
namespace {

using WatchVerdict = HangWatch::Verdict;

TEST(Hangs, AreCallsOnTheDeviceWhileNothingIsRecorded) {
  HangWatch watch(100);
  EXPECT_EQ(watch.look(7, 1, 1'000), WatchVerdict::as_before) << "the first look";
  EXPECT_EQ(watch.look(7, 1, 1'099), WatchVerdict::as_before);
  EXPECT_EQ(watch.look(7, 1, 1'100), WatchVerdict::hangs);
  EXPECT_EQ(watch.look(7, 1, 9'000), WatchVerdict::as_before) << "said already";
}

TEST(Hangs, AreTakenBackWhenSomethingMoves) {
  HangWatch watch(100);
  watch.look(7, 1, 0);
  EXPECT_EQ(watch.look(7, 1, 200), WatchVerdict::hangs);
  EXPECT_EQ(watch.look(8, 1, 300), WatchVerdict::goes_on);
  EXPECT_EQ(watch.look(8, 1, 399), WatchVerdict::as_before) << "the time counts from the move";
  EXPECT_EQ(watch.look(8, 1, 400), WatchVerdict::hangs);
}

TEST(Hangs, AreNoneWhereTheDeviceHasNothingToDo) {
  HangWatch watch(100);
  watch.look(7, 0, 0);
  EXPECT_EQ(watch.look(7, 0, 1'000'000), WatchVerdict::as_before) << "an evaluation, a checkpoint";
}

}  // namespace
}  // namespace lockstep::trace
