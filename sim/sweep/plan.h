// Plan: what a sweep of a scenario varies, and the job and machine that each point of its grid
// stands for. Made from texts: reads no file.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "sim/machine/machine.h"
#include "sim/sweep/variation.h"

namespace lockstep::sim {

class Plan {
 public:
  // `steps`: of every job; nothing: as the scenario says. Checked here, each value by itself: its
  // key and type against the schema of scenarios or of machines. Errors: those, with the key's near
  // names; a scenario or machine that is wrong as it stands; a key that is varied twice, or that no
  // simulation looks at; more than kMostPoints.
  static Result<Plan> make(const SourceFile& scenario, const std::vector<SourceFile>& machines,
                           const std::vector<Axis>& axes, std::optional<int> steps);

  const Variation& variation() const { return variation_; }
  // The scenario to derive. Errors: the values contradict each other, or what is left of the
  // scenario: no such plan is possible.
  Result<std::string> scenario_text(PointId point) const;
  // Errors: the same of the machine.
  Result<Machine> machine(PointId point) const;

 private:
  Plan(Variation variation, std::optional<int> steps)
      : variation_(std::move(variation)), steps_(steps) {}

  Variation variation_;
  std::optional<int> steps_;
};

}  // namespace lockstep::sim
