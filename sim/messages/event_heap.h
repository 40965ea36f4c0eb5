// The queue of a discrete-event simulation: a 4-ary heap of 16-byte events.
//
// Most events end in exactly one new one, so taking the first leaves a hole at the root that the
// next push fills: one way down the heap instead of one up and one down. Ties are broken by
// `order`, so that what happens does not depend on who was pushed first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::sim {

struct QueuedEvent {
  std::int64_t time = 0;
  std::uint64_t order = 0;  // unique among the events of one time

  friend bool operator<(const QueuedEvent& a, const QueuedEvent& b) {
    return a.time != b.time ? a.time < b.time : a.order < b.order;
  }
};

class EventHeap {
 public:
  bool empty() const { return events_.size() == (hole_ ? 1U : 0U); }
  // Of a heap that is not empty.
  const QueuedEvent& first() { return settle(), events_.front(); }

  // Takes the first of a heap that is not empty.
  QueuedEvent pop() {
    settle();
    hole_ = true;
    return events_.front();
  }

  void push(const QueuedEvent& event) {
    if (hole_) {
      hole_ = false;
      sink(event);
      return;
    }
    std::size_t at = events_.size();
    events_.push_back(event);
    for (; at > 0 && event < events_[(at - 1) / 4]; at = (at - 1) / 4)
      events_[at] = events_[(at - 1) / 4];
    events_[at] = event;
  }

 private:
  // Closes the hole with the last event.
  void settle() {
    if (!hole_) return;
    hole_ = false;
    const QueuedEvent last = events_.back();
    events_.pop_back();
    if (!events_.empty()) sink(last);
  }

  // Puts `event` at the root and lets it sink to its place.
  void sink(const QueuedEvent& event) {
    const std::size_t size = events_.size();
    std::size_t at = 0;
    for (;;) {
      const std::size_t child = 4 * at + 1;
      if (child >= size) break;
      const std::size_t end = child + 4 < size ? child + 4 : size;
      std::size_t least = child;
      for (std::size_t i = child + 1; i < end; ++i)
        if (events_[i] < events_[least]) least = i;
      if (!(events_[least] < event)) break;
      events_[at] = events_[least];
      at = least;
    }
    events_[at] = event;
  }

  std::vector<QueuedEvent> events_;
  bool hole_ = false;  // the root was taken and not replaced yet
};

}  // namespace lockstep::sim
