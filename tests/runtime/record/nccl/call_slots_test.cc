#include "runtime/record/nccl/call_slots.h"

#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/runtime/record/nccl/recorded_rank.h"

namespace lockstep::runtime {
namespace {

class Slots : public RecordedRankTest {
 protected:
  std::unique_ptr<CallSlots> slots_ = std::make_unique<CallSlots>();
};

TEST_F(Slots, AreCompleteWithTheLastOfTheirChannels) {
  const std::uint64_t call = slots_->add(rank_, issue());
  EXPECT_TRUE(slots_->launch(call, 2));
  EXPECT_FALSE(slots_->launch(call, 2)) << "it was launched";
  slots_->started(call);
  slots_->stopped(call);
  EXPECT_FALSE(recorded()[0].has(trace::kCompleted));
  EXPECT_EQ(rank_.on_device, 1);
  slots_->started(call);
  slots_->stopped(call);
  slots_->stopped(call);  // one too many
  EXPECT_EQ(rank_.on_device, 0);
  EXPECT_TRUE(recorded()[0].has(trace::kStarted) && recorded()[0].has(trace::kCompleted));
  EXPECT_EQ(ring_->written(), 3U) << "one issue, one start, one completion";
}

TEST_F(Slots, WithoutANumberOfChannelsAreCompleteWhenAllThatBeganHaveEnded) {
  const std::uint64_t call = slots_->add(rank_, issue());
  slots_->launch(call, 0);
  slots_->stopped(call);  // none began
  slots_->started(call);
  slots_->started(call);
  slots_->stopped(call);
  EXPECT_FALSE(recorded()[0].has(trace::kCompleted));
  slots_->stopped(call);
  EXPECT_TRUE(recorded()[0].has(trace::kCompleted));
}

TEST_F(Slots, AreForgottenOnceAllAreInUseAgain) {
  const std::uint64_t first = slots_->add(rank_, issue());
  slots_->launch(first, 2);
  slots_->started(first);
  for (std::uint64_t i = 0; i < CallSlots::kSlots; ++i) slots_->add(rank_, 0);
  slots_->started(first);
  slots_->stopped(first);
  EXPECT_FALSE(slots_->launch(first, 1));
  EXPECT_FALSE(slots_->launch(0, 1));
  EXPECT_EQ(ring_->written(), 2U) << "its issue and its start";
  EXPECT_EQ(rank_.on_device, 0);
}

TEST_F(Slots, CountEachCallsEventsForItself) {
  constexpr int kThreads = 4;
  constexpr int kEach = 4'000;
  static_assert(std::uint64_t{kThreads} * kEach < CallSlots::kSlots, "none is forgotten");
  std::vector<std::thread> threads;
  std::vector<std::uint32_t> ids;
  threads.reserve(kThreads);
  ids.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t) ids.push_back(issue());
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([this, id = ids[static_cast<std::size_t>(t)]] {
      for (int i = 0; i < kEach; ++i) {
        const std::uint64_t call = slots_->add(rank_, id);
        slots_->launch(call, 2);
        for (int channel = 0; channel < 2; ++channel) slots_->started(call);
        for (int channel = 0; channel < 2; ++channel) slots_->stopped(call);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ring_->written(), kThreads + std::uint64_t{2} * kThreads * kEach);
}

}  // namespace
}  // namespace lockstep::runtime
