// TrainingPlans: what a sweep of a plan file (sim/workload/plan_file.h) varies, and the plan and
// the calibration that each point of its grid stands for. Made from texts: reads no file.
#pragma once

#include <string>
#include <vector>

#include "base/documents/yaml_document.h"
#include "base/result.h"
#include "sim/sweep/row.h"
#include "sim/sweep/variation.h"
#include "sim/transformer/plan_forecast.h"

namespace lockstep::sweep {

class TrainingPlans {
 public:
  // A calibration's file may be the name of a shipped one. Keys of the plan ("tensor",
  // "pipeline.stages"), and parameters of the calibration ("calibration.network_bandwidth").
  // Errors: a plan or calibration that is wrong as it stands, and Variation::make()'s.
  static Result<TrainingPlans> make(const SourceFile& plan,
                                    const std::vector<SourceFile>& calibrations,
                                    const std::vector<Axis>& axes);

  const Variation& variation() const { return variation_; }
  // Errors: the values contradict each other: no such plan is possible.
  Result<sim::PlanForecast> forecast(PointId point) const;
  // The same as a row of a sweep, refused where there is an error.
  Row row(PointId point) const;

 private:
  TrainingPlans(Variation variation, YamlDocument document)
      : variation_(std::move(variation)), spots_(std::move(document.spots)) {}

  Variation variation_;
  std::map<std::string, YamlDocument::Spot> spots_;  // of the plan as it stands
};

}  // namespace lockstep::sweep
