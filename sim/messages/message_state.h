// What the message level keeps of each lane. For sim/engine/message_engine.cc alone.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sim/messages/link_table.h"
#include "sim/messages/schedule.h"

namespace lockstep::sim {

enum class Phase : std::uint8_t {
  idle,     // needs messages of others, or has none left
  alone,    // under way on links of its own; one event, for the arrival
  latency,  // alpha passes; an event for the beginning of the flow
  flowing,  // at a rate that may change; an event for the end of the flow
  tail,     // the receiver reduces
};
enum class Kind : std::uint8_t { prepare, arrive, flow_begins, flow_ends };

// What a message of one size costs on one level, in ticks, with nobody else on its links.
struct Cost {
  std::int64_t alpha = 0, flow = 0, reduce = 0;
  Int128 work = 0;
};

struct Lane {
  std::uint32_t arrived = 0;  // messages; the next one has this index
  std::uint32_t total = 0;
  std::uint32_t job = 0;
  std::uint32_t first_waiter = 0;  // 1 + index into waiters_; 0: nobody waits for this lane
  std::uint32_t generation = 0;    // events of older ones are void
  std::uint8_t unmet = 0;          // needs of the next message
  Phase phase = Phase::idle;
  bool shares = false;   // the message under way has shared a link
  bool reduces = false;  // … and what it is
  std::uint32_t cost = 0;
  Route route;
};

// A lane that waits until `count` messages of another one have arrived: number 2·lane + which need.
struct Waiter {
  std::uint32_t count = 0;
  std::uint32_t next = 0;  // as Lane::first_waiter
};

struct Flow {
  std::int64_t started = 0;  // of the message
  std::int64_t updated = 0;  // when `left` held
  Int128 left = 0;
  Int128 rate = 0;
  std::uint64_t round = 0;  // of sharing, when it was last looked at
};

struct Job {
  std::unique_ptr<Schedule> schedule;
  std::vector<std::int64_t> ranks;
  std::uint32_t first_lane = 0;
  std::uint32_t first_cost = 0;
  std::int64_t finished = 0;

  std::int64_t rank(std::uint32_t i) const {
    return ranks.empty() ? static_cast<std::int64_t>(i) : ranks[i];
  }
};

}  // namespace lockstep::sim
