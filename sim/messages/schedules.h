// The messages of every collective of the table of formulas, as schedules of the message level.
#pragma once

#include <memory>

#include "sim/collectives/collective.h"
#include "sim/messages/schedule.h"

namespace lockstep::sim {

// Of a collective that check() accepts. nullptr for nvls: there the switch works, and no messages
// go from rank to rank.
std::unique_ptr<Schedule> make_schedule(const Collective& collective);

}  // namespace lockstep::sim
