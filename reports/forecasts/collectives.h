// The result of `lockstep simulate collective`: how long collectives take, by formula or message by
// message; or on a machine, and how NCCL would carry them.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/quantities.h"
#include "sim/collectives/collective.h"
#include "sim/machine/work_time.h"
#include "sim/messages/message_level.h"

namespace lockstep::reports {

// The end of each collective; at the message level also the number of messages.
struct CollectiveTimes {
  std::vector<Picos> ends;
  std::optional<sim::MessageResult> messages;
};

// For at least one collective; all have a formula. At most `width` columns wide (from 60).
std::string collectives_text(const std::vector<sim::Collective>& collectives,
                             const CollectiveTimes& times, std::size_t width);
std::string collectives_json(const std::vector<sim::Collective>& collectives,
                             const CollectiveTimes& times);

// A line per size; for a single size that NCCL carries also the alternatives of its model. At most
// `width` columns wide (from 60).
std::string priced_calls_text(const sim::PricedCalls& answer, std::size_t width);
std::string priced_calls_json(const sim::PricedCalls& answer);

}  // namespace lockstep::reports
