// The queue keeps its order, whatever is put and taken in between.
#include "sim/engine/fifo.h"

#include <deque>
#include <memory>
#include <random>

#include <gtest/gtest.h>

namespace lockstep::sim {
namespace {

TEST(Fifo, KeepsTheOrderAsADequeDoes) {
  std::mt19937 random(3);
  Fifo<std::unique_ptr<int>> queue;
  std::deque<int> oracle;
  for (int i = 0; i < 20'000; ++i) {
    // It grows for a while, then shrinks to nothing, and again.
    const bool grows = i / 2'000 % 2 == 0;
    if (oracle.empty() || random() % 10 < (grows ? 7U : 3U)) {
      queue.push_back(std::make_unique<int>(i));
      oracle.push_back(i);
    } else {
      queue.pop_front();
      oracle.pop_front();
    }
    ASSERT_EQ(queue.size(), oracle.size());
    ASSERT_EQ(queue.empty(), oracle.empty());
    if (oracle.empty()) continue;
    ASSERT_EQ(*queue.front(), oracle.front());
    ASSERT_EQ(*queue[oracle.size() - 1], oracle.back());
  }
}

}  // namespace
}  // namespace lockstep::sim
