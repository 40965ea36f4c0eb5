#include "sim/sweep/search.h"

#include <algorithm>
#include <functional>
#include <set>

#include <gmock/gmock.h>

namespace lockstep::sim {
namespace {

using ::testing::ElementsAre;

using ScoreOf = std::function<Score(const Digits&)>;

struct Tried {
  std::vector<PointId> points;
  Score best{3, 0};
};

Tried search(const Grid& grid, PointId trials, std::uint64_t seed, const ScoreOf& score_of) {
  Search search(grid, trials, seed);
  Tried out;
  for (auto batch = search.next(); !batch.empty(); batch = search.next()) {
    std::vector<Score> scores;
    for (const PointId point : batch) {
      scores.push_back(score_of(grid.digits(point)));
      out.points.push_back(point);
      out.best = std::min(out.best, scores.back());
    }
    search.add_scores(scores);
  }
  return out;
}

// A bowl, whose bottom is at the given digits.
ScoreOf bowl(Digits bottom) {
  return [bottom](const Digits& digits) {
    double out = 0;
    for (std::size_t i = 0; i < digits.size(); ++i) {
      const double apart = static_cast<double>(digits[i]) - static_cast<double>(bottom[i]);
      out += apart * apart;
    }
    return Score{0, out};
  };
}

TEST(Grid, PointsAndDigitsAreTheSame) {
  const Grid grid = *Grid::of({3, 1, 4});
  EXPECT_EQ(grid.size(), 12U);
  EXPECT_THAT(grid.digits(0), ElementsAre(0, 0, 0));
  EXPECT_THAT(grid.digits(5), ElementsAre(1, 0, 1));
  for (PointId point = 0; point < grid.size(); ++point)
    EXPECT_EQ(grid.point(grid.digits(point)), point);
  EXPECT_EQ(Grid::of({})->size(), 1U);
  EXPECT_FALSE(Grid::of(std::vector<std::size_t>(10, 1000)));
}

TEST(Search, TriesAGridWholeThatIsNoLargerThanItsTrials) {
  const Grid grid = *Grid::of({3, 4});
  EXPECT_TRUE(Search(grid, 12, 1).exhaustive());
  EXPECT_FALSE(Search(grid, 11, 1).exhaustive());
  const Tried tried = search(grid, 100, 1, bowl({1, 1}));
  EXPECT_THAT(tried.points, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
}

TEST(Search, TriesAWholeGridInBatches) {
  const Grid grid = *Grid::of({10'000});
  EXPECT_EQ(search(grid, 10'000, 1, bowl({1})).points.size(), 10'000U);
}

TEST(Search, TriesNoPointTwiceAndKeepsToItsTrials) {
  const Grid grid = *Grid::of({5, 20, 3});
  for (const PointId trials : {1U, 2U, 50U, 299U}) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      SCOPED_TRACE(seed);
      const Tried tried = search(grid, trials, seed, bowl({2, 13, 1}));
      EXPECT_EQ(tried.points.size(), trials);
      EXPECT_EQ(std::set<PointId>(tried.points.begin(), tried.points.end()).size(), trials);
    }
  }
}

TEST(Search, FindsTheBottomOfABowlInAFewRounds) {
  const Grid grid = *Grid::of({256, 64, 4, 8, 100});
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    const Tried tried = search(grid, 400, seed, bowl({200, 3, 2, 7, 50}));
    EXPECT_EQ(tried.best, (Score{0, 0}));
  }
}

TEST(Search, LeavesABadCornerByRestarting) {
  const Grid grid = *Grid::of({16, 16});
  // Two bowls: the wider one, whose bottom is worse, draws most starts.
  const ScoreOf two = [&](const Digits& digits) {
    const Score wide = bowl({3, 3})(digits);
    const Score narrow = bowl({13, 13})(digits);
    return Score{0, std::min(wide.value + 5, narrow.value * 2)};
  };
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    EXPECT_EQ(search(grid, 200, seed, two).best, (Score{0, 0}));
  }
}

TEST(Search, GoesFromWhatDoesNotFitToWhatDoes) {
  const Grid grid = *Grid::of({200, 3});
  const ScoreOf score = [](const Digits& digits) {
    const auto size = static_cast<double>(digits[0]);
    return digits[0] > 20 ? Score{1, size} : Score{0, -size};
  };
  EXPECT_EQ(search(grid, 80, 4, score).best, (Score{0, -20}));
}

TEST(Search, IsTheSameWithTheSameSeed) {
  const Grid grid = *Grid::of({30, 30, 30});
  EXPECT_EQ(search(grid, 100, 7, bowl({1, 2, 3})).points,
            search(grid, 100, 7, bowl({1, 2, 3})).points);
  EXPECT_NE(search(grid, 100, 7, bowl({1, 2, 3})).points,
            search(grid, 100, 8, bowl({1, 2, 3})).points);
}

TEST(Search, EndsWhereAllPointsAreEqual) {
  const Grid grid = *Grid::of({9, 9, 9});
  EXPECT_EQ(search(grid, 700, 1, [](const Digits&) { return Score{2, 0}; }).points.size(), 700U);
}

}  // namespace
}  // namespace lockstep::sim
