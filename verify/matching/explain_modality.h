// Deviations that the batches explain: a rank whose batch lacks a modality skips a branch.
#pragma once

#include <optional>

#include "verify/context.h"

namespace lockstep::verify {

// The finding without what explain_deviation() adds for every deviation: group, number, step,
// ranks, evidence. Nothing where the batches do not explain the deviation.
std::optional<Finding> explain_modality(const Context& context, const Deviation& deviation);

}  // namespace lockstep::verify
