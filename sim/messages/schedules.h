// The messages of a collective, without storing them: a schedule answers what message comes next.
//
// Messages go through *lanes*: a lane has one sender and sends one message at a time, in order; its
// receivers may differ. A message may leave when the one before it in its lane has arrived and, of
// at most two other lanes, so many messages have. That is all that rings, trees and partners at
// changing distances need.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/rational.h"
#include "sim/collectives/collective.h"

namespace lockstep::sim {

// `count` messages of `lane` have arrived. count 0: nothing is needed.
struct Need {
  std::uint32_t lane = 0;
  std::uint32_t count = 0;
};

struct Message {
  std::uint32_t from = 0;  // ranks
  std::uint32_t to = 0;
  std::uint32_t size = 0;  // into Schedule::sizes()
  bool reduces = false;    // the receiver reduces what arrives, before it counts as arrived
  std::array<Need, 2> needs;
};

class Schedule {
 public:
  virtual ~Schedule() = default;
  virtual std::uint32_t lanes() const = 0;
  virtual std::uint32_t messages(std::uint32_t lane) const = 0;
  // `index` < messages(lane). O(1) or O(log lanes).
  virtual Message message(std::uint32_t lane, std::uint32_t index) const = 0;
  // The sizes that messages have, in bytes.
  const std::vector<Rational>& sizes() const { return sizes_; }

 protected:
  explicit Schedule(std::vector<Rational> sizes) : sizes_(std::move(sizes)) {}

 private:
  std::vector<Rational> sizes_;
};

// The messages of every collective of the table of formulas, as schedules of the message level.

// Of a collective that check() accepts. nullptr for nvls: there the switch works, and no messages
// go from rank to rank.
std::unique_ptr<Schedule> make_schedule(const Collective& collective);

}  // namespace lockstep::sim
