// Schedules in which every rank does the same steps: in each it sends one message, and the next
// step begins when that one and the one of its partner have arrived.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "sim/messages/schedule.h"

namespace lockstep::sim {

// A lane for each rank, a message for each step.
class StepSchedule final : public Schedule {
 public:
  // To whom a rank r sends, `distance` being d.
  enum class Partner : std::uint8_t {
    neighbour,  // r + d, around all ranks
    exchange,   // r xor d
    inside,     // the next of the d ranks of r's node, around the node
    across,     // the same place in the next node of d ranks, around the nodes
  };
  struct Step {
    Partner partner = Partner::neighbour;
    std::int64_t distance = 1;
    std::uint32_t size = 0;
    bool reduces = false;
  };
  using Steps = std::vector<Step>;

  StepSchedule(std::int64_t ranks, std::vector<Rational> sizes, Steps steps)
      : Schedule(std::move(sizes)), ranks_(ranks), steps_(std::move(steps)) {}

  std::uint32_t lanes() const override { return static_cast<std::uint32_t>(ranks_); }
  std::uint32_t messages(std::uint32_t) const override {
    return static_cast<std::uint32_t>(steps_.size());
  }
  Message message(std::uint32_t lane, std::uint32_t index) const override {
    const Step& step = steps_[index];
    Message message;
    message.from = lane;
    message.to = static_cast<std::uint32_t>(partner(step, lane, 1));
    message.size = step.size;
    message.reduces = step.reduces;
    if (index > 0)
      message.needs[0] = {static_cast<std::uint32_t>(partner(steps_[index - 1], lane, -1)), index};
    return message;
  }

 private:
  // Whom `rank` sends to (direction 1), or receives from (-1).
  std::int64_t partner(const Step& step, std::int64_t rank, std::int64_t direction) const {
    switch (step.partner) {
      case Partner::neighbour:
        return around(rank + direction * step.distance, ranks_);
      case Partner::exchange:
        return rank ^ step.distance;
      case Partner::inside: {
        const std::int64_t first = rank - rank % step.distance;
        return first + around(rank - first + direction, step.distance);
      }
      case Partner::across:
        return around(rank + direction * step.distance, ranks_);
    }
    return rank;
  }
  // For -n <= value < 2n.
  static std::int64_t around(std::int64_t value, std::int64_t n) {
    if (value < 0) return value + n;
    return value >= n ? value - n : value;
  }

  std::int64_t ranks_;
  Steps steps_;
};

// Gather and scatter: rank 0 and everybody else, one message after the other.
class RootSchedule final : public Schedule {
 public:
  RootSchedule(std::int64_t ranks, const Rational& size, bool gathers)
      : Schedule({size}), ranks_(static_cast<std::uint32_t>(ranks)), gathers_(gathers) {}

  std::uint32_t lanes() const override { return gathers_ ? ranks_ : 1; }
  std::uint32_t messages(std::uint32_t lane) const override {
    if (!gathers_) return ranks_ - 1;
    return lane == 0 ? 0 : 1;
  }
  Message message(std::uint32_t lane, std::uint32_t index) const override {
    Message message;
    message.from = lane;
    message.to = gathers_ ? 0 : index + 1;
    if (gathers_ && lane > 1) message.needs[0] = {lane - 1, 1};
    return message;
  }

 private:
  std::uint32_t ranks_;
  bool gathers_;
};

}  // namespace lockstep::sim
