// Deliberate mistakes in averaging gradients by hand: Fault::gradients_summed,
// Fault::gradients_not_reduced.
#pragma once

#include <memory>

#include "runtime/strategies/manual.h"

namespace lockstep::runtime {

// ManualSync, with the mistake of parts.fault if it is one of these two.
std::unique_ptr<Strategy> make_manual_sync(const Scenario::Strategy& options, StrategyParts parts);

}  // namespace lockstep::runtime
