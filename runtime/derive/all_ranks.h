// Runs all ranks of a scenario alone under all histories: the traces from which a product is
// decided.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/interrupts.h"
#include "base/result.h"
#include "runtime/derive/derivation_plan.h"
#include "runtime/job/scenario.h"

namespace lockstep::runtime {

struct DeriveAllOptions {
  std::string worker;    // the worker program
  std::string folder;    // exists
  bool on_meta = false;  // with tensors without values
  bool quiet = false;
};

// Up to this many ranks, each is run; above, one of each class (runtime/derive/derivation_plan.h).
inline constexpr int kMaxRanksRun = 64;

// Runs the ranks under every history, and returns the folders with a product.json
// (trace/derivation.h): one; or, if rank 0's broadcasts depend on its first step, one for each
// first step of rank 0. Errors: those of run_alone; files that cannot be written.
Result<std::vector<std::string>> derive_all(const Scenario& scenario, const DerivationPlan& plan,
                                            const DeriveAllOptions& options,
                                            Interrupts& interrupts);

// The choice between real values and LibTorch's meta device.

// Whether the modality rules decide the contents of every batch of the job. O(ranks · steps).
bool rules_say_all(const Scenario& scenario);

// Whether to derive on the meta device, where a model of any size takes no memory, but the job must
// not read values. `asked`: the user's choice; nothing: use the meta device if the model or the
// world is large and nothing prevents it. `obstacle`: a reason against it other than the job
// itself. Errors: it was asked for and is not possible.
Result<bool> derive_on_meta(const Scenario& scenario, std::optional<bool> asked,
                            std::optional<std::string> obstacle = std::nullopt);

}  // namespace lockstep::runtime
