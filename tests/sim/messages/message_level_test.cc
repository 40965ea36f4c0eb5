#include "sim/messages/message_level.h"

#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "sim/collectives/closed_form.h"
#include "sim/messages/schedules.h"

namespace lockstep::sim {
namespace {

constexpr Bytes kMiB{1 << 20};
const LinkCost kMessageLink = {Picos{500'000}, Bandwidth{400'000'000'000}, std::nullopt};

std::vector<Picos> finished(const std::vector<Collective>& collectives, const Links& links,
                            Wiring wiring = Wiring::ports) {
  const Result<MessageResult> result = message_level(collectives, links, wiring);
  EXPECT_TRUE(result) << result.error().str();
  return result ? result->finished : std::vector<Picos>{};
}

TEST(MessageLevel, RingAllReduceGivesThePublishedIntegers) {
  for (const auto& [ranks, time] :
       {std::pair(8, 43'700'160L), std::pair(64, 104'287'680L), std::pair(512, 552'861'120L)}) {
    const Collective ring = {trace::Op::all_reduce, Algorithm::ring, ranks, kMiB};
    const Result<MessageResult> result = message_level({&ring, 1}, {kMessageLink}, Wiring::ports);
    ASSERT_TRUE(result);
    EXPECT_EQ(result->finished[0].value, time);
    EXPECT_EQ(result->messages,
              2 * static_cast<std::uint64_t>(ranks) * static_cast<std::uint64_t>(ranks - 1));
    EXPECT_EQ(result->shared, 0U);
  }
}

// Compares both levels for every row of the table, over sizes that no number of ranks divides. The
// largest difference, in picoseconds.
std::int64_t largest_difference(const LinkCost& inner, const LinkCost& outer) {
  std::int64_t largest = 0;
  std::size_t compared = 0;
  for (const Formula& formula : formulas()) {
    if (formula.algorithm == Algorithm::nvls) continue;
    for (const std::int64_t ranks : {2, 3, 4, 5, 6, 7, 8, 12, 16, 27, 33, 64}) {
      for (const std::int64_t bytes : {0, 1, 1000, 1 << 20, 9'999'991}) {
        for (const std::int64_t segments : {1, 2, 7}) {
          Collective c = {formula.op, formula.algorithm, ranks, Bytes{bytes}, 1, segments};
          const bool two_levels = c.algorithm == Algorithm::hierarchical;
          if (two_levels) c.ranks_per_node = segments == 7 ? ranks : segments;
          const Links links = two_levels ? Links{inner, outer} : Links{outer};
          const Result<Picos> expected = closed_form(c, links);
          if (!expected) continue;  // no power of two, not divisible
          const Wiring wiring =
              c.algorithm == Algorithm::double_binary_tree ? Wiring::pairs : Wiring::ports;
          const std::int64_t difference =
              std::abs(finished({c}, links, wiring)[0].value - expected->value);
          if (difference > largest) {
            largest = difference;
            std::printf("%s by %s, n=%ld B=%ld s=%ld: %ld ps\n", trace::op_name(c.op).data(),
                        algorithm_name(c.algorithm).data(), ranks, bytes, segments, difference);
          }
          ++compared;
        }
      }
    }
  }
  EXPECT_GT(compared, 1500U);
  return largest;
}

TEST(MessageLevel, EqualsTheClosedFormToThePicosecondWhereNothingIsShared) {
  EXPECT_EQ(largest_difference(
                {Picos{77'000}, Bandwidth{3'600'000'000'000}, std::nullopt},
                {Picos{1'234'567}, Bandwidth{372'528'000'000}, Bandwidth{1'000'000'000'000}}),
            0);
}

TEST(MessageLevel, IsRoundedLessThanAPicosecondWhereNoTickSuitsAllBandwidths) {
  EXPECT_LE(largest_difference(
                {Picos{77}, Bandwidth{3'333'333'333'331}, std::nullopt},
                {Picos{1'234'567}, Bandwidth{372'528'000'007}, Bandwidth{1'000'000'000'003}}),
            1);
}

TEST(MessageLevel, EveryScheduleEndsAndMovesWhatTheCollectiveHasTo) {
  // Bytes that all ranks send together: (n-1) B for what reduces or spreads one buffer.
  const auto moved = [](const Collective& c) {
    const auto schedule = make_schedule(c);
    Rational sum;
    for (std::uint32_t lane = 0; lane < schedule->lanes(); ++lane)
      for (std::uint32_t k = 0; k < schedule->messages(lane); ++k)
        sum = sum + schedule->sizes()[schedule->message(lane, k).size];
    return sum;
  };
  for (const std::int64_t n : {2, 4, 6, 8, 9}) {
    const std::int64_t all = (n - 1) * kMiB.value;
    EXPECT_EQ(moved({trace::Op::all_reduce, Algorithm::ring, n, kMiB}), Rational(2 * all));
    EXPECT_EQ(moved({trace::Op::all_gather, Algorithm::ring, n, kMiB}), Rational(all));
    EXPECT_EQ(moved({trace::Op::all_to_all, Algorithm::direct, n, kMiB}), Rational(all));
    EXPECT_EQ(moved({trace::Op::broadcast, Algorithm::binomial, n, kMiB}), Rational(all));
    EXPECT_EQ(moved({trace::Op::reduce, Algorithm::binomial, n, kMiB}), Rational(all));
    EXPECT_EQ(moved({trace::Op::broadcast, Algorithm::chain, n, kMiB, 1, 5}), Rational(all));
    EXPECT_EQ(moved({trace::Op::all_reduce, Algorithm::double_binary_tree, n, kMiB, 1, 5}),
              Rational(2 * all));
    if (std::has_single_bit(static_cast<std::uint64_t>(n))) {
      EXPECT_EQ(moved({trace::Op::all_reduce, Algorithm::halving_doubling, n, kMiB}),
                Rational(2 * all));
      EXPECT_EQ(moved({trace::Op::all_gather, Algorithm::recursive_doubling, n, kMiB}),
                Rational(all));
    }
  }
}

TEST(MessageLevel, TwoRingsShareTheirLinksUntilOneEnds) {
  // alpha 0, so that links are never idle. Alone A takes t = 2·7·(B/8)/β = 36,700,160 ps. Beside B,
  // twice the size, both get β/2: A ends at 2t, when half of B is done; the rest takes t.
  const Links links = {{Picos{0}, Bandwidth{400'000'000'000}, std::nullopt}};
  const Collective a = {trace::Op::all_reduce, Algorithm::ring, 8, kMiB};
  Collective b = a;
  b.bytes.value *= 2;
  const std::int64_t t = 36'700'160;
  EXPECT_EQ(finished({a}, links), (std::vector{Picos{t}}));
  EXPECT_EQ(finished({a, b}, links), (std::vector{Picos{2 * t}, Picos{3 * t}}));
  EXPECT_EQ(finished({a, a, a}, links), (std::vector{Picos{3 * t}, Picos{3 * t}, Picos{3 * t}}));
}

TEST(MessageLevel, SharingTwoWithLatencyIsExactPieceByPiece) {
  // In step, two equal rings pay alpha once and half the bandwidth: 14 · (a + 2 S/β).
  const Collective a = {trace::Op::all_reduce, Algorithm::ring, 8, kMiB};
  EXPECT_EQ(finished({a, a}, {kMessageLink}), (std::vector{Picos{14 * (500'000 + 2 * 2'621'440)},
                                                           Picos{14 * (500'000 + 2 * 2'621'440)}}));
}

TEST(MessageLevel, OneMessageOverlapsAnotherInPart) {
  // A: 1 MB, B: 3 MB, both from rank 0 to 1 at 1 GB/s and alpha 0. A has β/2 until 2 ms; B is then
  // at 1 MB and takes 2 ms more.
  const Links links = {{Picos{0}, Bandwidth{8'000'000'000}, std::nullopt}};
  const Collective a = {trace::Op::send, Algorithm::direct, 2, Bytes{1'000'000}};
  const Collective b = {trace::Op::send, Algorithm::direct, 2, Bytes{3'000'000}};
  EXPECT_EQ(finished({a, b}, links), (std::vector{Picos{2'000'000'000}, Picos{4'000'000'000}}));
}

TEST(MessageLevel, AMessageThatComesLaterTakesItsShareFromThen) {
  // A alone for 1 ms (1 MB of 3 MB at 1 GB/s), then with B: 2 MB each at β/2, both end at 5 ms.
  Fabric fabric;
  fabric.levels = {{Picos{0}, Bandwidth{8'000'000'000}, std::nullopt}};
  fabric.ranks = 2;
  std::vector<MessageJob> jobs(2);
  jobs[0].schedule = make_schedule({trace::Op::send, Algorithm::direct, 2, Bytes{3'000'000}});
  jobs[1].schedule = make_schedule({trace::Op::send, Algorithm::direct, 2, Bytes{2'000'000}});
  jobs[1].start = Picos{1'000'000'000};
  const Result<MessageResult> result = run_messages(fabric, std::move(jobs), Picos{10'000'000'000});
  ASSERT_TRUE(result);
  EXPECT_EQ(result->finished, (std::vector{Picos{5'000'000'000}, Picos{5'000'000'000}}));
  EXPECT_EQ(result->shared, 2U);
}

TEST(MessageLevel, TreesWithOnePortEachShareIt) {
  const Collective tree = {trace::Op::all_reduce, Algorithm::double_binary_tree, 16, kMiB, 1, 8};
  const Picos alone = *closed_form(tree, {kMessageLink});
  EXPECT_EQ(finished({tree}, {kMessageLink}, Wiring::pairs), std::vector{alone});
  EXPECT_GT(finished({tree}, {kMessageLink}, Wiring::ports)[0], alone);
}

TEST(MessageLevel, EightGpusBehindOneNicGetAnEighthEach) {
  // 16 ranks, two nodes; every rank sends 1 MB to its counterpart in the other node over one 1 GB/s
  // NIC.
  Fabric fabric;
  fabric.levels = {kMessageLink, {Picos{0}, Bandwidth{8'000'000'000}, std::nullopt}};
  fabric.ranks = 16;
  fabric.ranks_per_node = 8;
  fabric.ranks_per_port = {1, 8};
  std::vector<MessageJob> jobs;
  for (std::int64_t r = 0; r < 8; ++r)
    jobs.push_back({make_schedule({trace::Op::send, Algorithm::direct, 2, Bytes{1'000'000}}),
                    {r, r + 8},
                    Picos{}});
  const Result<MessageResult> result =
      run_messages(fabric, std::move(jobs), Picos{100'000'000'000});
  ASSERT_TRUE(result);
  for (const Picos time : result->finished) EXPECT_EQ(time, Picos{8'000'000'000});
}

TEST(MessageLevel, RefusesWhatItCannotFollow) {
  const auto why = [](const Collective& c, const Links& links) {
    const Result<MessageResult> result = message_level({&c, 1}, links, Wiring::ports);
    return result ? "accepted" : result.error().message;
  };
  EXPECT_EQ(why({trace::Op::all_reduce, Algorithm::nvls, 8, kMiB}, {kMessageLink}),
            "nvls has no messages between ranks: the switch does the work");
  EXPECT_EQ(why({trace::Op::all_reduce, Algorithm::ring, 1 << 20, kMiB}, {kMessageLink}),
            "2199021158400 messages are too many to follow one by one");
  EXPECT_EQ(why({trace::Op::all_reduce, Algorithm::ring, 4, Bytes{INT64_MAX / 2}}, {kMessageLink}),
            "it takes longer than 106 days, which no simulated clock can show");
}

}  // namespace
}  // namespace lockstep::sim
