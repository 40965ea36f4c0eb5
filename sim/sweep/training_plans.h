// TrainingPlans: what a sweep of a plan file (sim/transformer/plan_file.h) varies, and the plan and
// the calibration that each point of its grid stands for. Made from texts: reads no file.
#pragma once

#include <string>
#include <vector>

#include "base/documents/yaml_document.h"
#include "base/result.h"
#include "sim/sweep/row.h"
#include "sim/sweep/variation.h"
#include "sim/transformer/plan_forecast.h"

namespace lockstep::sim {

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
  Result<PlanForecast> forecast(PointId point) const;
  // The same as a row of a sweep, refused where there is an error.
  Row row(PointId point) const;

 private:
  TrainingPlans(Variation variation, YamlDocument document)
      : variation_(std::move(variation)), spots_(std::move(document.spots)) {}

  Variation variation_;
  std::map<std::string, YamlDocument::Spot> spots_;  // of the plan as it stands
};

}  // namespace lockstep::sim

// What a command about a plan file reads: the plan, and the calibrations of its machines.

namespace lockstep::sim {

struct PlanInputs {
  SourceFile plan;
  std::vector<SourceFile> calibrations;  // a shipped one goes by its name
};

// `calibrations`: names or files; none: the plan's own, whose file is seen from where the plan
// lies. Errors: a file that cannot be read; no plan, with what is wrong with it; a calibration that
// is named twice.
Result<PlanInputs> load_plan(const std::string& file, const std::vector<std::string>& calibrations);

// `name` as seen from where `file` lies, unless it is a shipped calibration's name.
std::string calibration_seen_from(const std::string& file, const std::string& name);

}  // namespace lockstep::sim
