#include "base/threads.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Threads, EachNumberRunsOnItsOwnThreadAndTheFirstOnTheCallers) {
  std::vector<std::thread::id> ids(4);
  on_threads(ids.size(), [&](std::size_t i) { ids[i] = std::this_thread::get_id(); });
  EXPECT_EQ(ids[0], std::this_thread::get_id());
  EXPECT_EQ(std::set<std::thread::id>(ids.begin(), ids.end()).size(), ids.size());
}

TEST(Threads, TheExceptionOfTheLowestNumberIsRethrownWhenAllHaveEnded) {
  std::atomic<int> ended = 0;
  const auto work = [&](std::size_t i) {
    ++ended;
    if (i > 0) throw std::runtime_error(std::to_string(i));
  };
  try {
    on_threads(3, work);
    FAIL() << "no exception";
  } catch (const std::runtime_error& e) {
    EXPECT_STREQ(e.what(), "1");
  }
  EXPECT_EQ(ended, 3);
}

TEST(Threads, EveryIndexIsVisitedOnce) {
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{1000}}) {
    std::vector<int> visits(count);
    for_each_index(count, 10'000'000, [&](std::size_t i) { ++visits[i]; });
    EXPECT_EQ(visits, std::vector<int>(count, 1));
  }
}

TEST(Threads, AsManyThreadsAsAskedTakeTheIndices) {
  for (const std::size_t threads : {std::size_t{0}, std::size_t{1}, std::size_t{3}}) {
    std::vector<std::thread::id> ids(1000);
    for_each_index_on(threads, ids.size(),
                      [&](std::size_t i) { ids[i] = std::this_thread::get_id(); });
    const std::set<std::thread::id> used(ids.begin(), ids.end());
    EXPECT_FALSE(used.contains(std::thread::id())) << "an index was left out";
    EXPECT_LE(used.size(), std::max<std::size_t>(threads, 1));
  }
}

TEST(Threads, AJobOfFewElementsStaysOnTheCallersThread) {
  const std::thread::id caller = std::this_thread::get_id();
  for_each_index(8, 1000, [&](std::size_t) { EXPECT_EQ(std::this_thread::get_id(), caller); });
}

}  // namespace
}  // namespace lockstep
