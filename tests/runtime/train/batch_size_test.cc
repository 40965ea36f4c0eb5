// The search for the largest batch; the command itself is tested in models/commands_test.cc.
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/train/batch_size_search.h"

namespace lockstep::runtime {
namespace {

using testing::ElementsAre;

struct Searched {
  std::vector<int> tried;
  int largest = 0;
};

Searched search(int first, int most, int fits_up_to) {
  BatchSizeSearch search(first, most);
  Searched out;
  while (const auto size = search.next()) {
    out.tried.push_back(*size);
    search.record(*size <= fits_up_to);
  }
  out.largest = search.largest();
  return out;
}

TEST(BatchSizeSearch, DoublesAndThenBisects) {
  EXPECT_THAT(search(1, 4096, 11).tried, ElementsAre(1, 2, 4, 8, 16, 12, 10, 11));
  EXPECT_EQ(search(1, 4096, 11).largest, 11);
}

TEST(BatchSizeSearch, StopsAtTheMostThatIsAllowed) {
  EXPECT_THAT(search(4, 20, 100).tried, ElementsAre(4, 8, 16, 20));
  EXPECT_EQ(search(4, 20, 100).largest, 20);
}

TEST(BatchSizeSearch, GoesBelowTheFirstWhereThatDoesNotFit) {
  EXPECT_THAT(search(8, 64, 3).tried, ElementsAre(8, 4, 2, 3));
  EXPECT_EQ(search(8, 64, 3).largest, 3);
  EXPECT_EQ(search(8, 64, 0).largest, 0);
}

TEST(BatchSizeSearch, KnowsTheLargestToASixteenth) {
  for (int fits = 0; fits <= 4096; ++fits) {
    const Searched found = search(1, 4096, fits);
    EXPECT_LE(found.largest, fits);
    EXPECT_GE(found.largest, fits - fits / 16);
    EXPECT_LE(found.tried.size(), 20U);
  }
}

}  // namespace
}  // namespace lockstep::runtime
