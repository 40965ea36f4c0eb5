#include <cstdlib>
#include <random>

#include <gmock/gmock.h>

#include "sim/sweep/ranking.h"

namespace lockstep::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ParetoFront, HasWhatNothingBeats) {
  EXPECT_THAT(pareto_front({}), IsEmpty());
  EXPECT_THAT(pareto_front({{1, 2}, {2, 1}, {2, 2}, {3, 3}}), ElementsAre(0, 1));
  EXPECT_THAT(pareto_front({{2, 2}, {1, 1}}), ElementsAre(1));
}

TEST(ParetoFront, HasEqualsTogether) {
  EXPECT_THAT(pareto_front({{1, 1}, {1, 1}, {1, 2}}), ElementsAre(0, 1));
}

// By the definition.
std::vector<std::size_t> by_force(const std::vector<Costs>& all) {
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < all.size(); ++i) {
    bool beaten = false;
    for (const Costs& other : all) {
      bool no_worse = true;
      bool better = false;
      for (std::size_t k = 0; k < other.size(); ++k) {
        no_worse = no_worse && other[k] <= all[i][k];
        better = better || other[k] < all[i][k];
      }
      beaten = beaten || (no_worse && better);
    }
    if (!beaten) out.push_back(i);
  }
  return out;
}

// SWEEP_SEED=7 runs one case.
TEST(ParetoFront, IsThatOfItsDefinition) {
  const char* const asked = std::getenv("SWEEP_SEED");
  const std::uint64_t first = asked != nullptr ? std::strtoull(asked, nullptr, 10) : 1;
  const std::uint64_t last = asked != nullptr ? first : 2000;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    SCOPED_TRACE("SWEEP_SEED=" + std::to_string(seed));
    std::mt19937_64 random(seed);
    const std::size_t respects = 1 + random() % 4;
    const std::size_t values = 1 + random() % 6;  // few, so that there are ties
    std::vector<Costs> all(random() % 40, Costs(respects));
    for (Costs& one : all)
      for (double& cost : one) cost = static_cast<double>(random() % values) - 2;
    ASSERT_EQ(pareto_front(all), by_force(all));
  }
}

}  // namespace
}  // namespace lockstep::sim
