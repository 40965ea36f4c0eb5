// The messages of a collective, computed rather than stored: a schedule says what message comes
// next.
//
// Messages go through *lanes*. A lane has one sender and sends one message at a time, in order; its
// receivers may differ. A message may leave when the one before it in its lane has arrived, and
// when a given number of messages of at most two other lanes have arrived. Rings, trees and
// partners at changing distances need nothing more.
//
// Example, a ring of 4 ranks: lane 2 goes from rank 2 to rank 3. Its message 5 passes on what
// arrived as message 4 of lane 1, so it needs 5 messages of lane 1.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/rational.h"
#include "sim/collectives/collective.h"

namespace lockstep::sim {

// At least `count` messages of `lane` have arrived. count 0: no condition.
struct Need {
  std::uint32_t lane = 0;
  std::uint32_t count = 0;
};

struct Message {
  std::uint32_t from = 0;  // a rank
  std::uint32_t to = 0;    // a rank
  std::uint32_t size = 0;  // into Schedule::sizes()
  bool reduces = false;    // the receiver reduces the data before it counts as arrived
  std::array<Need, 2> needs;
};

class Schedule {
 public:
  virtual ~Schedule() = default;
  virtual std::uint32_t lanes() const = 0;
  // How many messages a lane sends.
  virtual std::uint32_t messages(std::uint32_t lane) const = 0;
  // The lane's message `index` < messages(lane). O(1) or O(log lanes).
  virtual Message message(std::uint32_t lane, std::uint32_t index) const = 0;
  // The different sizes of its messages, in bytes.
  const std::vector<Rational>& sizes() const { return sizes_; }

 protected:
  explicit Schedule(std::vector<Rational> sizes) : sizes_(std::move(sizes)) {}

 private:
  std::vector<Rational> sizes_;
};

// A schedule for every collective in the table of formulas.

// The schedule of a collective that check() accepts. nullptr for nvls: there the switch does the
// work, and no messages go from rank to rank.
std::unique_ptr<Schedule> make_schedule(const Collective& collective);

}  // namespace lockstep::sim
