// What `lockstep simulate collective` answers: how long collectives take, by a formula or message
// by message; or on a machine, and how NCCL would carry them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/quantities.h"
#include "sim/collectives/collective.h"
#include "sim/machine/work_time.h"
#include "sim/messages/message_level.h"

namespace lockstep::reports {

// When each of the collectives ends; and at the message level, how many messages there were.
struct CollectiveTimes {
  std::vector<Picos> ends;
  std::optional<sim::MessageResult> messages;
};

// Of at least one collective, all by a formula that there is.
std::string collectives_text(const std::vector<sim::Collective>& collectives,
                             const CollectiveTimes& times);
std::string collectives_json(const std::vector<sim::Collective>& collectives,
                             const CollectiveTimes& times);

// A line for each size; of one size that NCCL carries also what its model had to choose from.
std::string priced_calls_text(const sim::PricedCalls& answer);
std::string priced_calls_json(const sim::PricedCalls& answer);

}  // namespace lockstep::reports
