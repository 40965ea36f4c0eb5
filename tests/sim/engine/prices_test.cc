#include <functional>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/engine/executor.h"
#include "tests/sim/small_jobs.h"

namespace lockstep::sim {
namespace {

using testing::ElementsAre;

// Two pairs of ranks, each of which makes both calls.
ProgramJob two_pairs() {
  ProgramJob job = alike(4, {issue(0, 0), issue(1, 0), issue(0, 0)}, {{}, {}}, 1);
  job.calls[1].bytes = Bytes{8};
  job.groups = {{{0, 1}}, {{2, 3}}};
  job.ranks[2].groups = job.ranks[3].groups = {1};
  return job;
}

struct Asked {
  std::vector<std::pair<std::uint32_t, std::int64_t>> calls;
  Result<CallCost> operator()(std::uint32_t group, const ProgramCall& call) {
    calls.emplace_back(group, call.bytes.value);
    return CallCost{Picos{100 * group + call.bytes.value}};
  }
};

TEST(Prices, EachCallIsPricedOnceInEachKindOfGroup) {
  const ProgramJob job = two_pairs();
  Asked alike, apart;
  ASSERT_TRUE(Prices::of(job, {7, 7}, std::ref(alike)));
  EXPECT_THAT(alike.calls, ElementsAre(std::pair(0, 0), std::pair(0, 8)));
  const Result<Prices> prices = Prices::of(job, {}, std::ref(apart));
  ASSERT_TRUE(prices);
  EXPECT_THAT(apart.calls,
              ElementsAre(std::pair(0, 0), std::pair(0, 8), std::pair(1, 0), std::pair(1, 8)));
  const CostOfCall cost = prices->cost_in(job);
  EXPECT_EQ(cost(0, job.calls[1]).time.value, 8);
  EXPECT_EQ(cost(1, job.calls[0]).time.value, 100);
}

TEST(Prices, ACallWithoutOneIsRefused) {
  ProgramJob job = alike(2, {issue(0, 0, true), issue(1, 0)}, {{}, {}}, 1);
  job.calls[1].bytes = Bytes{8};
  const Result<Prices> prices =
      Prices::of(job, {}, [](std::uint32_t, const ProgramCall& call) -> Result<CallCost> {
        if (call.bytes.value == 8) return Error{"no such call", {}, ""};
        return CallCost{};
      });
  ASSERT_FALSE(prices);
  EXPECT_EQ(prices.error().message, "no such call");
}

TEST(PricesDeathTest, CallsOfAnotherJobHaveNone) {
  const ProgramJob job = two_pairs();
  ProgramJob more = two_pairs();
  more.calls.emplace_back();
  const Result<Prices> prices = Prices::of(job, {}, Asked{});
  EXPECT_DEATH(prices->cost_in(more)(0, more.calls[2]), "not priced");
}

}  // namespace
}  // namespace lockstep::sim
