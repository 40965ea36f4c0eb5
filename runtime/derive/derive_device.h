// Whether a job is derived with values, or on LibTorch's meta device.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "runtime/job/scenario.h"

namespace lockstep {

// Whether the modality rules say of every batch of the job what it holds. O(ranks · steps).
bool rules_say_all(const Scenario& scenario);

// Where tensors have no values, a model of any size takes no memory; the job must not ask for them.
// `asked`: what the user says; nothing: on the meta device where the model or the world is large
// and nothing is in the way. `obstacle`: what else than the job itself is in the way.
// Errors: asked for, and something is.
Result<bool> derive_on_meta(const Scenario& scenario, std::optional<bool> asked,
                            std::optional<std::string> obstacle = std::nullopt);

}  // namespace lockstep
