// The clock of the message level: ticks per picosecond, the durations of messages in ticks, and the
// queue of events.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/quantities.h"
#include "base/rational.h"
#include "sim/messages/links.h"

namespace lockstep::sim {

// The largest simulated time.
inline constexpr std::int64_t kMaxTicks = std::int64_t{1} << 60;

class Ticks {
 public:
  explicit Ticks(std::int64_t per_pico) : per_pico_(per_pico) {}

  // The smallest resolution at which all `durations` (in picoseconds) are whole, if `horizon` still
  // fits then. Else a power of two, at which a message is off by at most 2^-21 ps where there is
  // room.
  static Ticks for_durations(const std::vector<Rational>& durations, Picos horizon);

  std::int64_t per_pico() const { return per_pico_; }
  // Ticks of a duration, rounded. Empty: more than kMaxTicks.
  std::optional<std::int64_t> of(const Rational& picos) const;
  // Rounded to the nearest picosecond.
  Picos picos(std::int64_t ticks) const;

 private:
  std::int64_t per_pico_;
};

// Bytes as an amount of work: bit/s · kRateScale · ticks, so that work divided by a rate is ticks.
// Empty: too large to count.
std::optional<Int128> work_of(const Rational& bytes, const Ticks& ticks);

// EventHeap: the queue of the event simulation, a 4-ary heap of 16-byte events.
//
// Most events produce exactly one new event. So pop() leaves a hole at the root that the next push
// fills: one pass down the heap instead of one up and one down. Events of one time are taken by
// `order`, so that the result does not depend on the order of pushes.

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
  // The earliest event. The heap must not be empty.
  const QueuedEvent& first() { return settle(), events_.front(); }

  // Removes the earliest event. The heap must not be empty.
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

  // Puts `event` at the root and lets it sink to its position.
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
  bool hole_ = false;  // the root was taken and not replaced
};

}  // namespace lockstep::sim
