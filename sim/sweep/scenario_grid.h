// ScenarioGrid: what a sweep of a scenario varies, and the job and machine of each point of its
// grid. Made from texts; reads no file.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "sim/machine/machine.h"
#include "sim/sweep/variation.h"

namespace lockstep::sim {

class ScenarioGrid {
 public:
  // `steps`: of every job; empty: as in the scenario. Checks each value by itself: its key and type
  // against the schema of scenarios or machines. Errors: those, with similar keys; a scenario or
  // machine that is itself wrong; a key that is varied twice or that no simulation uses; more than
  // kMaxPoints.
  static Result<ScenarioGrid> make(const SourceFile& scenario,
                                   const std::vector<SourceFile>& machines,
                                   const std::vector<Axis>& axes, std::optional<int> steps);

  const Variation& variation() const { return variation_; }
  // The scenario to derive. Errors: values that contradict each other or the rest of the scenario.
  Result<std::string> scenario_text(PointId point) const;
  // The point's machine. Errors: the same for the machine.
  Result<Machine> machine(PointId point) const;

 private:
  ScenarioGrid(Variation variation, std::optional<int> steps,
               std::map<std::string, Machine> machines)
      : variation_(std::move(variation)), steps_(steps), machines_(std::move(machines)) {}

  Variation variation_;
  std::optional<int> steps_;
  std::map<std::string, Machine> machines_;  // by file, as they are in it
};

}  // namespace lockstep::sim
