// Schedules along trees and chains.
#pragma once

#include <cstdint>

#include "sim/messages/schedule.h"

namespace lockstep::sim {

// NCCL's two trees: each reduces its half of the buffer upwards, segment by segment, and sends it
// down again. Of each tree: lane r goes from rank r up, lane n + r from r's parent down to r.
class DoubleTreeSchedule final : public Schedule {
 public:
  DoubleTreeSchedule(std::int64_t ranks, std::int64_t segments, const Rational& segment);
  std::uint32_t lanes() const override { return 4 * ranks_; }
  std::uint32_t messages(std::uint32_t lane) const override;
  Message message(std::uint32_t lane, std::uint32_t index) const override;

 private:
  std::uint32_t ranks_, segments_;
};

// Rank 0 to all: who has it sends to the rank 1, 2, 4, … further on.
class BinomialBroadcast final : public Schedule {
 public:
  BinomialBroadcast(std::int64_t ranks, const Rational& size)
      : Schedule({size}), ranks_(static_cast<std::uint32_t>(ranks)) {}
  std::uint32_t lanes() const override { return ranks_; }
  std::uint32_t messages(std::uint32_t lane) const override;
  Message message(std::uint32_t lane, std::uint32_t index) const override;

 private:
  std::uint32_t ranks_;
};

// The same tree towards rank 0; a rank takes its children one after the other, the nearest first.
class BinomialReduce final : public Schedule {
 public:
  BinomialReduce(std::int64_t ranks, const Rational& size)
      : Schedule({size}), ranks_(static_cast<std::uint32_t>(ranks)) {}
  std::uint32_t lanes() const override { return ranks_; }
  std::uint32_t messages(std::uint32_t lane) const override { return lane == 0 ? 0 : 1; }
  Message message(std::uint32_t lane, std::uint32_t index) const override;

 private:
  std::uint32_t ranks_;
};

// From rank 0 to rank n-1, each passing segments on as they come; `reduces`: adding its own.
class ChainSchedule final : public Schedule {
 public:
  ChainSchedule(std::int64_t ranks, std::int64_t segments, const Rational& segment, bool reduces)
      : Schedule({segment}),
        ranks_(static_cast<std::uint32_t>(ranks)),
        segments_(static_cast<std::uint32_t>(segments)),
        reduces_(reduces) {}
  std::uint32_t lanes() const override { return ranks_ - 1; }
  std::uint32_t messages(std::uint32_t) const override { return segments_; }
  Message message(std::uint32_t lane, std::uint32_t index) const override;

 private:
  std::uint32_t ranks_, segments_;
  bool reduces_;
};

}  // namespace lockstep::sim
