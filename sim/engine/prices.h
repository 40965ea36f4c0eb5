// What the calls of a job cost, found once and before any of its programs runs, so that simulating
// it again and again does not price them again.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "sim/engine/executor.h"
#include "sim/engine/program.h"

namespace lockstep::sim {

// Errors: a call that is not simulated.
using PriceOfCall = std::function<Result<CallCost>(std::uint32_t group, const ProgramCall& call)>;

class Prices {
 public:
  // Of every call of every rank. `kinds`: of each group; groups of one kind have equal prices, and
  // one of them is asked for. Empty: each has its own. The first error of `price`. O(steps of ranks
  // with different programs or kinds of groups).
  static Result<Prices> of(const ProgramJob& job, std::vector<std::uint32_t> kinds,
                           const PriceOfCall& price);

  // For the job that these are of, where it lies now or was moved to; valid while this is. May be
  // asked by several threads at once.
  CostOfCall cost_in(const ProgramJob& job) const;

 private:
  std::uint32_t kind_of(std::uint32_t group) const {
    return kinds_.empty() ? group : kinds_[group];
  }

  std::vector<std::uint32_t> kinds_;
  std::unordered_map<std::uint64_t, CallCost> known_;  // by kind, and the call in ProgramJob::calls
};

}  // namespace lockstep::sim
