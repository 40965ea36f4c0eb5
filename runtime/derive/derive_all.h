// All ranks of a scenario alone under all histories: the traces that a product is decided from.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/interrupts.h"
#include "base/result.h"
#include "runtime/derive/derivation_plan.h"
#include "runtime/job/scenario.h"

namespace lockstep {

struct DeriveAllOptions {
  std::string worker;    // the worker program
  std::string folder;    // exists
  bool on_meta = false;  // with tensors that have no values
  bool quiet = false;
};

// Up to so many ranks each is looked at; of more, one of each class (job/rank_classes.h).
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

}  // namespace lockstep
