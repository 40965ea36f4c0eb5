// What a rank holds, told from what it allocates: by hand, and against a slow telling.
#include "runtime/device/memory_account.h"

#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "tests/runtime/memory_words.h"

namespace lockstep::runtime {
namespace {

// What there is at the end of a step with one segment.
trace::SegmentMemory end_of_step(MemoryAccount& account) {
  account.end_segment();
  const std::vector<trace::SegmentMemory> segments = account.end_step();
  EXPECT_EQ(segments.size(), 1U);
  return segments.empty() ? trace::SegmentMemory() : segments.front();
}

TEST(MemoryAccount, WhatAForwardPassLeavesBehindIsActivationsFromItsFirstByte) {
  MemoryAccount account;
  account.begin(MemoryPhase::forward);
  const auto kept = account.allocated(100);
  const auto scratch = account.allocated(30);
  account.freed(scratch);
  account.end();
  account.end_segment();
  account.freed(kept);
  account.end_segment();
  const std::vector<trace::SegmentMemory> segments = account.end_step();
  ASSERT_EQ(segments.size(), 2U);
  EXPECT_EQ(segments[0].peak, use({{Category::activations, 100}, {Category::temporary, 30}}));
  EXPECT_EQ(segments[0].end, use({{Category::activations, 100}}));
  EXPECT_EQ(segments[1].peak, use({{Category::activations, 100}}));
  EXPECT_EQ(segments[1].end, trace::MemoryUse());
}

TEST(MemoryAccount, WhatTheOptimizerLeavesBehindIsItsStateInLaterStepsToo) {
  MemoryAccount account;
  account.begin(MemoryPhase::optimizer);
  account.allocated(8);
  account.freed(account.allocated(5));
  account.end();
  EXPECT_EQ(end_of_step(account).end, use({{Category::optimizer_state, 8}}));
  EXPECT_EQ(end_of_step(account).peak, use({{Category::optimizer_state, 8}}));
}

TEST(MemoryAccount, AMarkHoldsForTheWholeLifeAndTheOneThatSaysMoreWins) {
  MemoryAccount account;
  const auto gradient = account.allocated(64);
  account.end_segment();
  account.mark(gradient, Category::gradients);
  account.mark(gradient, Category::activations);
  account.begin(MemoryPhase::communication);
  const auto bucket = account.allocated(7);
  const auto sent = account.allocated(3);
  account.end();
  account.mark(bucket, Category::gradients);
  account.end_segment();
  account.freed(sent);
  const std::vector<trace::SegmentMemory> segments = account.end_step();
  ASSERT_EQ(segments.size(), 2U);
  EXPECT_EQ(segments[0].end, use({{Category::gradients, 64}}));
  EXPECT_EQ(segments[1].end, use({{Category::gradients, 71}, {Category::communication, 3}}));
  EXPECT_EQ(end_of_step(account).peak, use({{Category::gradients, 71}}));
}

TEST(MemoryAccount, WhatIsGivenBackWithinTheStepIsTemporaryAndWhatOutlivesItOther) {
  MemoryAccount account;
  const auto passing = account.allocated(4);
  const auto staying = account.allocated(2);
  account.freed(passing);
  EXPECT_EQ(end_of_step(account).peak, use({{Category::temporary, 4}, {Category::other, 2}}));
  account.freed(staying);
  const trace::SegmentMemory last = end_of_step(account);
  EXPECT_EQ(last.peak, use({{Category::other, 2}}));
  EXPECT_EQ(last.end, trace::MemoryUse());
}

TEST(MemoryAccount, TheInnermostPhaseSaysWhatSomethingIsFor) {
  MemoryAccount account;
  account.begin(MemoryPhase::forward);
  account.begin(MemoryPhase::communication);
  account.allocated(16);
  account.end();
  account.allocated(1);
  account.end();
  EXPECT_EQ(end_of_step(account).end,
            use({{Category::communication, 16}, {Category::activations, 1}}));
}

TEST(MemoryAccount, ThePeakIsTheFirstMomentAtWhichMostIsThere) {
  MemoryAccount account;
  account.begin(MemoryPhase::communication);
  account.freed(account.allocated(10));
  account.end();
  account.freed(account.allocated(10));
  EXPECT_EQ(end_of_step(account).peak, use({{Category::communication, 10}}));
}

// The oracle keeps every storage for ever, with what it turns out to be, and adds up again whenever
// something happens.
TEST(MemoryAccount, AgreesWithASlowTellingOfRandomPrograms) {
  const auto seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto below = [&](std::size_t n) { return std::size_t{random()} % n; };
  struct Slow {
    std::int64_t bytes;
    bool marked, freed;
    MemoryAccount::Block block;
    int step;
  };
  MemoryAccount account;
  std::vector<Slow> all;
  for (int step = 0; step < 30; ++step) {
    struct Moment {
      std::vector<std::size_t> there;  // places in `all`
      bool ends;
    };
    std::vector<Moment> moments;
    const auto look = [&](bool ends) {
      Moment moment{{}, ends};
      for (std::size_t i = 0; i < all.size(); ++i)
        if (!all[i].freed) moment.there.push_back(i);
      moments.push_back(std::move(moment));
    };
    look(false);
    for (int i = 0; i < 40; ++i) {
      const std::size_t what = below(8);
      const std::size_t which = all.empty() ? 0 : below(all.size());
      if (what < 3 || all.empty()) {
        const auto bytes = static_cast<std::int64_t>(1 + below(1000));
        all.push_back({bytes, false, false, account.allocated(bytes), step});
      } else if (what < 6 && !all[which].freed) {
        account.freed(all[which].block);
        all[which].freed = true;
      } else if (what == 6 && !all[which].freed) {
        account.mark(all[which].block, Category::gradients);
        all[which].marked = true;
      }
      const bool ends = what == 7;
      if (ends) account.end_segment();
      look(ends);
    }
    std::vector<trace::SegmentMemory> expected;
    trace::MemoryUse peak;
    bool begins = true;
    for (const Moment& moment : moments) {
      trace::MemoryUse now;
      for (const std::size_t i : moment.there) {
        const bool passed = all[i].freed && all[i].step == step;
        now[all[i].marked ? Category::gradients
            : passed      ? Category::temporary
                          : Category::other] += all[i].bytes;
      }
      if (begins || now.total() > peak.total()) peak = now;
      begins = moment.ends;
      if (!moment.ends) continue;
      expected.push_back({peak, now});
      peak = now;
      begins = false;
    }
    EXPECT_EQ(account.end_step(), expected) << "step " << step;
  }
}

}  // namespace
}  // namespace lockstep::runtime
