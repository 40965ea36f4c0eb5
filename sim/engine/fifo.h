// A queue in one block of memory: a job has thousands that are empty most of the time, and a
// std::deque allocates when it is made.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace lockstep::sim {

template <class T>
class Fifo {
 public:
  bool empty() const { return head_ == items_.size(); }
  std::size_t size() const { return items_.size() - head_; }
  T& front() { return items_[head_]; }
  const T& front() const { return items_[head_]; }
  T& operator[](std::size_t i) { return items_[head_ + i]; }
  void push_back(T item) { items_.push_back(std::move(item)); }
  // Amortised O(1): what was taken is cut off when it is most of the block.
  void pop_front() {
    ++head_;
    if (head_ < 64 && head_ < items_.size()) return;
    if (2 * head_ < items_.size()) return;
    items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(head_));
    head_ = 0;
  }

 private:
  std::vector<T> items_;
  std::size_t head_ = 0;  // the first that was not taken
};

}  // namespace lockstep::sim
