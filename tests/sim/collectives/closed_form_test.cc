#include "sim/collectives/closed_form.h"

#include <cstdint>

#include <gtest/gtest.h>

namespace lockstep::sim {
namespace {

constexpr Bytes kFormulaMiB{1 << 20};
const LinkCost kFormulaLink = {Picos{500'000}, Bandwidth{400'000'000'000},
                               std::nullopt};  // 500 ns, 50 GB/s

std::int64_t picos(trace::Op op, Algorithm algorithm, std::int64_t ranks, Bytes bytes = kFormulaMiB,
                   const Links& links = {kFormulaLink}, std::int64_t segments = 1) {
  const Result<Picos> time = closed_form({op, algorithm, ranks, bytes, 1, segments}, links);
  EXPECT_TRUE(time) << time.error().str();
  return time ? time->value : -1;
}

TEST(ClosedForm, RingAllReduceGivesThePublishedIntegers) {
  EXPECT_EQ(picos(trace::Op::all_reduce, Algorithm::ring, 8), 43'700'160);
  EXPECT_EQ(picos(trace::Op::all_reduce, Algorithm::ring, 64), 104'287'680);
  EXPECT_EQ(picos(trace::Op::all_reduce, Algorithm::ring, 512), 552'861'120);
  EXPECT_EQ(picos(trace::Op::all_reduce, Algorithm::ring, 1024), 1'064'902'080);
}

TEST(ClosedForm, RecursiveDoublingGivesThePublishedIntegers) {
  EXPECT_EQ(picos(trace::Op::all_reduce, Algorithm::recursive_doubling, 64), 128'829'120);
  EXPECT_EQ(picos(trace::Op::all_reduce, Algorithm::recursive_doubling, 1024), 214'715'200);
}

TEST(ClosedForm, RabenseifnerGivesThePublishedInteger) {
  EXPECT_EQ(picos(trace::Op::all_reduce, Algorithm::halving_doubling, 8), 39'700'160);
}

TEST(ClosedForm, HierarchicalIsReduceScatterAllReduceAllGather) {
  const Links both = {{Picos{300'000}, Bandwidth{3'200'000'000'000}, std::nullopt}, kFormulaLink};
  const Result<Picos> whole =
      closed_form({trace::Op::all_reduce, Algorithm::hierarchical, 64, kFormulaMiB, 8, 1}, both);
  ASSERT_TRUE(whole);
  const std::int64_t parts =
      picos(trace::Op::reduce_scatter, Algorithm::ring, 8, kFormulaMiB, {both[0]}) +
      picos(trace::Op::all_reduce, Algorithm::ring, 8, Bytes{kFormulaMiB.value / 8}, {both[1]}) +
      picos(trace::Op::all_gather, Algorithm::ring, 8, kFormulaMiB, {both[0]});
  EXPECT_EQ(whole->value, parts);
}

TEST(ClosedForm, ReducingCostsWhatGammaSays) {
  Links links = {kFormulaLink};
  links[0].gamma = Bandwidth{800'000'000'000};  // 100 GB/s
  // (n-1)/n of 1 MiB at 100 GB/s are 9175.04 ns more.
  EXPECT_EQ(picos(trace::Op::all_reduce, Algorithm::ring, 8, kFormulaMiB, links),
            43'700'160 + 9'175'040);
  EXPECT_EQ(picos(trace::Op::all_gather, Algorithm::ring, 8, kFormulaMiB, links),
            picos(trace::Op::all_gather, Algorithm::ring, 8));
}

TEST(ClosedForm, EveryOtherRowAgainstNumbersWorkedOutByHand) {
  // B b is 20,971,520 ps, a is 500,000 ps.
  EXPECT_EQ(picos(trace::Op::all_gather, Algorithm::ring, 8), 3'500'000 + 18'350'080);
  EXPECT_EQ(picos(trace::Op::all_gather, Algorithm::recursive_doubling, 8), 1'500'000 + 18'350'080);
  EXPECT_EQ(picos(trace::Op::all_gather_into_tensor, Algorithm::direct, 8), 3'500'000 + 18'350'080);
  EXPECT_EQ(picos(trace::Op::reduce_scatter, Algorithm::ring, 8), 3'500'000 + 18'350'080);
  EXPECT_EQ(picos(trace::Op::reduce_scatter_tensor, Algorithm::halving_doubling, 8),
            1'500'000 + 18'350'080);
  EXPECT_EQ(picos(trace::Op::reduce_scatter, Algorithm::direct, 8), 3'500'000 + 18'350'080);
  EXPECT_EQ(picos(trace::Op::all_to_all, Algorithm::direct, 8), 7 * (500'000 + 2'621'440));
  EXPECT_EQ(picos(trace::Op::broadcast, Algorithm::binomial, 5), 3 * (500'000 + 20'971'520));
  EXPECT_EQ(picos(trace::Op::reduce, Algorithm::binomial, 5), 3 * (500'000 + 20'971'520));
  EXPECT_EQ(picos(trace::Op::broadcast, Algorithm::chain, 5, kFormulaMiB, {kFormulaLink}, 4),
            (5 - 2 + 4) * (500'000 + 20'971'520 / 4));
  EXPECT_EQ(picos(trace::Op::reduce, Algorithm::chain, 5, kFormulaMiB, {kFormulaLink}, 4),
            (5 - 2 + 4) * (500'000 + 20'971'520 / 4));
  EXPECT_EQ(picos(trace::Op::all_reduce, Algorithm::double_binary_tree, 8, kFormulaMiB,
                  {kFormulaLink}, 16),
            (2 * 3 + 15) * (500'000 + 20'971'520 / 32));
  EXPECT_EQ(picos(trace::Op::all_reduce, Algorithm::nvls, 8), 1'000'000 + 20'971'520);
  EXPECT_EQ(picos(trace::Op::gather, Algorithm::direct, 4), 3 * (500'000 + 5'242'880));
  EXPECT_EQ(picos(trace::Op::scatter, Algorithm::direct, 4), 3 * (500'000 + 5'242'880));
  EXPECT_EQ(picos(trace::Op::barrier, Algorithm::recursive_doubling, 9), 4 * 500'000);
  EXPECT_EQ(picos(trace::Op::send, Algorithm::direct, 2), 500'000 + 20'971'520);
}

TEST(ClosedForm, FractionsAreRoundedOnceAtTheEnd) {
  // 2·2·500 ns + 4/3 · 1 MiB / 50 GB/s = 29,962.026666… ns; steps rounded one by one give 28.
  EXPECT_EQ(picos(trace::Op::all_reduce, Algorithm::ring, 3), 29'962'027);
}

TEST(ClosedForm, EveryFormulaHasASource) {
  for (const Formula& formula : formulas()) {
    EXPECT_FALSE(formula.source.empty());
    EXPECT_EQ(find_formula(formula.op, formula.algorithm), &formula);
  }
}

TEST(ClosedForm, RefusesWhatCannotBe) {
  const auto why = [](const Collective& collective, const Links& links) {
    const Result<Picos> time = closed_form(collective, links);
    return time ? "accepted" : time.error().message + " | " + time.error().fix;
  };
  EXPECT_EQ(
      why({trace::Op::all_reduce, Algorithm::recursive_doubling, 6, kFormulaMiB}, {kFormulaLink}),
      "recursive_doubling needs a power of two, and 6 ranks are none | take ring, or 4 ranks");
  EXPECT_EQ(why({trace::Op::all_reduce, Algorithm::chain, 6, kFormulaMiB}, {kFormulaLink}),
            "no all_reduce by chain | all_reduce goes by ring, double_binary_tree, "
            "recursive_doubling, halving_doubling, hierarchical and nvls");
  EXPECT_EQ(why({trace::Op::all_reduce, Algorithm::ring, 1, kFormulaMiB}, {kFormulaLink}),
            "1 rank cannot do a collective | give 2 to 1,048,576 ranks");
  EXPECT_EQ(why({trace::Op::all_reduce, Algorithm::hierarchical, 10, kFormulaMiB, 4},
                {kFormulaLink, kFormulaLink}),
            "10 ranks are not divisible into nodes of 4 | give ranks that are a multiple of the "
            "ranks per node");
  EXPECT_EQ(
      why({trace::Op::all_reduce, Algorithm::hierarchical, 8, kFormulaMiB, 4}, {kFormulaLink}),
      "hierarchical uses 2 levels of links, and the costs of 1 are given | give those inside "
      "a node first, then those between nodes");
  EXPECT_EQ(why({trace::Op::broadcast, Algorithm::chain, 8, kFormulaMiB, 1, 0}, {kFormulaLink}),
            "0 segments cannot be sent | give 1 to 1048576 segments");
  EXPECT_EQ(why({trace::Op::all_reduce, Algorithm::ring, 4, kFormulaMiB}, {LinkCost{}}),
            "a link without bandwidth | give a bandwidth above zero");
  EXPECT_EQ(why({trace::Op::all_reduce, Algorithm::ring, 1 << 20, Bytes{INT64_MAX}},
                {LinkCost{Picos{INT64_MAX - 1}, Bandwidth{1}, std::nullopt}}),
            "it takes longer than 106 days, which no simulated clock can show | check the units of "
            "sizes, times and bandwidths");
}

TEST(BusBandwidth, FollowsNcclTests) {
  EXPECT_DOUBLE_EQ(bus_factor(trace::Op::all_reduce, 8), 1.75);
  EXPECT_DOUBLE_EQ(bus_factor(trace::Op::all_gather, 8), 0.875);
  EXPECT_DOUBLE_EQ(bus_factor(trace::Op::all_to_all, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(trace::Op::broadcast, 8), 1);
}

}  // namespace
}  // namespace lockstep::sim
