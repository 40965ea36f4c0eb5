// All ranks of a scenario alone under all histories: the traces that a product is decided from.
#pragma once

#include <cstddef>
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
  bool on_meta = false;  // with tensors that have no values
  bool quiet = false;
};

// Up to so many ranks each is looked at; of more, one of each class
// (runtime/derive/derivation_plan.h).
inline constexpr int kRanksLookedAt = 64;

// Looks at the ranks under every history, and returns the folders with a product.json
// (trace/derivation.h): one, or one for each first step of rank 0 where what it broadcasts depends
// on that. Errors: those of run_alone; files that cannot be written.
Result<std::vector<std::string>> derive_all(const Scenario& scenario, const DerivationPlan& plan,
                                            const DeriveAllOptions& options,
                                            Interrupts& interrupts);

// "deriving 3 of 8" on a terminal's line, removed at the end.
class DeriveProgress {
 public:
  explicit DeriveProgress(bool silent);
  ~DeriveProgress();
  DeriveProgress(const DeriveProgress&) = delete;
  DeriveProgress& operator=(const DeriveProgress&) = delete;

  void show(std::size_t done, std::size_t total);

 private:
  std::size_t shown_ = 0;
  bool silent_;
};

// Whether a job is derived with values, or on LibTorch's meta device.

// Whether the modality rules say of every batch of the job what it holds. O(ranks · steps).
bool rules_say_all(const Scenario& scenario);

// Where tensors have no values, a model of any size takes no memory; the job must not ask for them.
// `asked`: what the user says; nothing: on the meta device where the model or the world is large
// and nothing is in the way. `obstacle`: what else than the job itself is in the way.
// Errors: asked for, and something is.
Result<bool> derive_on_meta(const Scenario& scenario, std::optional<bool> asked,
                            std::optional<std::string> obstacle = std::nullopt);

}  // namespace lockstep::runtime
