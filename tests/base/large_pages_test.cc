// expect_allocations(): a hint that takes no memory by itself. What it gains in time is measured by
// `time lockstep verify` (docs/verify.md, "Speed").
#include "base/large_pages.h"

#include <unistd.h>

#include <cstddef>
#include <fstream>
#include <numeric>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20U;

// The memory that the process holds, in MiB.
std::size_t resident() {
  std::size_t all = 0;
  std::size_t held = 0;
  std::ifstream("/proc/self/statm") >> all >> held;
  return held * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) / kMiB;
}

TEST(LargePages, AreNotTakenBeforeTheyAreUsed) {
  const std::size_t before = resident();
  expect_allocations(512 * kMiB);
  EXPECT_LT(resident(), before + 128);  // AddressSanitizer notes an eighth of what is allocated
}

TEST(LargePages, HoldWhatIsAllocatedByAnyThread) {
  const auto fill = [] {
    expect_allocations(64 * kMiB);
    std::vector<std::vector<std::size_t>> blocks;
    for (std::size_t size = 1; size <= kMiB; size *= 2) {
      blocks.emplace_back(size);
      std::iota(blocks.back().begin(), blocks.back().end(), size);
    }
    for (const auto& block : blocks) {
      EXPECT_EQ(block.front(), block.size());
      EXPECT_EQ(block.back(), 2 * block.size() - 1);
    }
  };
  std::thread other(fill);
  fill();
  other.join();
  fill();  // and again in a heap that has been used
}

TEST(LargePages, MayBeMoreThanThereIs) { expect_allocations(static_cast<std::size_t>(-1)); }

}  // namespace
}  // namespace lockstep
