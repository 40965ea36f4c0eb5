// Calls that share links, against shares worked out by hand and against the message level's.
#include "sim/engine/shared_links.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "sim/messages/links.h"
#include "tests/sim/small_jobs.h"

namespace lockstep::sim {
namespace {

constexpr double kTera = 1e12;  // bytes per second: a byte each picosecond

// Links of `capacities` bytes per picosecond; each kind puts one byte on each of its links for a
// byte on its port.
SharedLinks links_of(const std::vector<double>& capacities,
                     const std::vector<std::vector<std::uint32_t>>& kinds) {
  SharedLinks out;
  for (const double capacity : capacities) out.capacities.push_back(capacity * kTera);
  for (const std::vector<std::uint32_t>& links : kinds) {
    CallTraffic kind;
    for (const std::uint32_t link : links) kind.uses.push_back({link, 1});
    kind.port = 1;
    kind.busiest = 1e-15;
    out.kinds.push_back(kind);
  }
  return out;
}

// Calls of one kind each that begin at 0 with a byte per picosecond: when each ends.
std::vector<std::int64_t> ends(const SharedLinks& links, const std::vector<std::int64_t>& alone) {
  CallsOnLinks calls(links);
  for (std::uint32_t i = 0; i < alone.size(); ++i)
    calls.begin(Picos{0}, Picos{alone[i]}, i, static_cast<double>(alone[i]), i);
  std::vector<std::int64_t> out(alone.size());
  while (calls.next())
    for (const CallsOnLinks::Ended& ended : calls.advance()) out[ended.id] = ended.end.value;
  return out;
}

TEST(SharedLinks, ACallAloneTakesItsTime) {
  EXPECT_EQ(ends(links_of({1}, {{0}}), {100}), std::vector<std::int64_t>{100});
  // Twice as long on a link that is half as wide as it wants, and no shorter on a wider one.
  EXPECT_EQ(ends(links_of({0.5}, {{0}}), {100}), std::vector<std::int64_t>{200});
  EXPECT_EQ(ends(links_of({7}, {{0}}), {100}), std::vector<std::int64_t>{100});
}

TEST(SharedLinks, TwoCallsHaveHalfALinkWhileBothAreOnIt) {
  const SharedLinks links = links_of({1}, {{0}, {0}});
  CallsOnLinks calls(links);
  calls.begin(Picos{0}, Picos{100}, 0, 100, 0);
  calls.begin(Picos{50}, Picos{100}, 1, 100, 1);
  std::vector<std::int64_t> out(2);
  while (calls.next())
    for (const CallsOnLinks::Ended& ended : calls.advance()) out[ended.id] = ended.end.value;
  // The first does 50 alone and 50 at half its speed; then the second, which did 50, is alone.
  EXPECT_EQ(out[0], 150);
  EXPECT_EQ(out[1], 200);
  EXPECT_EQ(calls.slowed(), 2);
  EXPECT_DOUBLE_EQ(calls.most_slowed(), 1.5);
}

// Bertsekas and Gallager, section 6.5.2: the long one is held up where three share a link, so that
// its neighbour on the other link has two thirds.
TEST(SharedLinks, RatesAreMaxMinFair) {
  const SharedLinks links = links_of({1, 1}, {{0, 1}, {0}, {1}, {1}});
  EXPECT_EQ(ends(links, {3000, 2000, 3000, 3000}),
            (std::vector<std::int64_t>{9000, 3000, 9000, 9000}));
}

TEST(SharedLinks, ACallThatWantsLittleKeepsItsSpeed) {
  SharedLinks links = links_of({1}, {{0}, {0}});
  CallsOnLinks calls(links);
  calls.begin(Picos{0}, Picos{1000}, 0, 250, 0);   // a quarter of the link
  calls.begin(Picos{0}, Picos{3000}, 1, 3000, 1);  // all of it
  std::vector<std::int64_t> out(2);
  while (calls.next())
    for (const CallsOnLinks::Ended& ended : calls.advance()) out[ended.id] = ended.end.value;
  EXPECT_EQ(out[0], 1000);
  EXPECT_EQ(out[1], 1000 + (3000 - 750));
}

// A call with two flows over a link has twice as much of it as one with one flow.
TEST(SharedLinks, FlowsCount) {
  SharedLinks links = links_of({3}, {{0}, {0}});
  links.kinds[0].uses[0].bytes = 2;
  CallsOnLinks calls(links);
  calls.begin(Picos{0}, Picos{100}, 0, 300, 0);  // two flows of 3 each
  calls.begin(Picos{0}, Picos{100}, 1, 300, 1);  // one of 3
  // A byte each picosecond and flow: a third of full speed for both.
  EXPECT_EQ(calls.advance().size(), 0);
  EXPECT_EQ(*calls.next(), Picos{300});
}

TEST(SharedLinks, CallsWithoutBytesOrTimeShareNothing) {
  const SharedLinks links = links_of({1}, {{0}, {0}});
  CallsOnLinks calls(links);
  calls.begin(Picos{0}, Picos{100}, 0, 100, 0);
  calls.begin(Picos{0}, Picos{100}, 1, 0, 1);
  calls.begin(Picos{0}, Picos{0}, 1, 100, 2);
  while (calls.next())
    for (const CallsOnLinks::Ended& ended : calls.advance())
      EXPECT_EQ(ended.end, Picos{ended.id == 2 ? 0 : 100});
}

// A call's begin and end look at its own links alone, however many others are on them.
TEST(SharedLinks, AnEventCostsItsOwnLinks) {
  constexpr std::uint32_t kCalls = 5000;
  SharedLinks links = links_of({2.0 * kCalls, 1}, {{0}});
  CallsOnLinks calls(links);
  for (std::uint32_t i = 0; i < kCalls; ++i)
    calls.begin(Picos{i}, Picos{100'000 + 7 * (i % 100)}, 0, 1, i);
  while (calls.next()) calls.advance();
  EXPECT_EQ(calls.visits(), 2 * kCalls);  // once at its begin, once at its end
}

// Sharing full links again looks a few times at each of their calls, not at all pairs of them.
TEST(SharedLinks, SharingCostsTheLinksOfItsCalls) {
  constexpr std::uint32_t kCalls = 4000;
  // Each on a link of its own that is too narrow for it, and on one that is too narrow for all.
  std::vector<double> capacities(kCalls + 1, 0.5);
  std::vector<std::vector<std::uint32_t>> kinds;
  for (std::uint32_t i = 0; i < kCalls; ++i) {
    capacities[i] = 0.1 + 0.4 * i / kCalls;
    kinds.push_back({i, kCalls});
  }
  capacities[kCalls] = 0.25 * kCalls;
  const SharedLinks links = links_of(capacities, kinds);
  CallsOnLinks calls(links);
  for (std::uint32_t i = 0; i < kCalls; ++i) calls.begin(Picos{0}, Picos{1000}, i, 1000, i);
  calls.advance();
  ASSERT_TRUE(calls.next());
  EXPECT_LT(calls.visits(), 20 * 2 * kCalls);
}

// The message level shares the same way, with whole numbers: flows over two links each.
TEST(SharedLinks, AgreeWithTheMessageLevel) {
  Draw random;
  for (int round = 0; round < 300; ++round) {
    const std::size_t count = 2 + random(5);
    std::vector<double> wide;
    std::vector<std::int64_t> bits;
    for (std::size_t l = 0; l < count; ++l) {
      bits.push_back(1000 * (1 + random(50)));
      wide.push_back(static_cast<double>(bits.back()) / 8 / kTera);
    }
    std::vector<SharedFlow> flows;
    std::vector<std::vector<std::uint32_t>> kinds;
    std::vector<double> bytes;
    for (std::uint32_t f = 0; f < 1 + random(9); ++f) {
      const auto a = random(static_cast<std::uint32_t>(count));
      const auto b = random(static_cast<std::uint32_t>(count));
      flows.push_back({{a, b}, 0});
      kinds.push_back(a == b ? std::vector{a} : std::vector{a, b});
      bytes.push_back(1 + random(1000));
    }
    share_fairly(bits, flows);
    const SharedLinks links = links_of(wide, kinds);
    CallsOnLinks calls(links);
    double first = INFINITY;
    for (std::uint32_t f = 0; f < flows.size(); ++f) {
      // Alone on links that limit nothing, a thousandth of a second.
      calls.begin(Picos{0}, Picos{1'000'000'000}, f, 1e3 * bytes[f], f);
      const double rate = static_cast<double>(flows[f].rate) / kRateScale / 8;
      first = std::min(first, 1e3 * bytes[f] / rate);
    }
    calls.advance();
    EXPECT_NEAR(calls.next()->seconds() / first, 1, 1e-9) << round;
  }
}

}  // namespace
}  // namespace lockstep::sim
