// PlanGrid: what a sweep of a plan file varies (of a transformer, sim/transformer/plan_file.h,
// or of several towers, sim/multimodal/multimodal_plan.h), and the plan and calibration of each
// point of its grid. Made from texts; reads no file.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/documents/yaml_document.h"
#include "base/result.h"
#include "sim/multimodal/multimodal_forecast.h"
#include "sim/sweep/row.h"
#include "sim/sweep/variation.h"
#include "sim/transformer/plan_forecast.h"

namespace lockstep::sim {

class PlanGrid {
 public:
  // A calibration's file may be the name of a shipped one. Axes are keys of the plan ("tensor",
  // "pipeline.stages", "encoders.0.on") and of the machine file ("calibration.network_speed",
  // "calibration.links.1.beta"). `manifest`: the text of the plan's. Errors: a plan that does not
  // fit its schema, or that is impossible as it stands and stays so with the axes' first and last
  // values; a calibration that is itself wrong; Variation::make()'s.
  static Result<PlanGrid> make(const SourceFile& plan, const std::vector<SourceFile>& calibrations,
                               const std::vector<Axis>& axes, const std::string& manifest = {});

  const Variation& variation() const { return variation_; }
  // Whether the plan has several towers; which of the two functions below applies.
  bool multimodal() const { return multimodal_; }
  // The forecast of a point. Errors: values that contradict each other.
  Result<PlanForecast> forecast(PointId point) const;
  // `checks`: of the points before it, in a sweep, which shows no remedies for what can hang.
  Result<MultimodalForecast> towers(PointId point, ModalityChecks* checks = nullptr) const;
  // The same as a row of a sweep; an error gives the outcome `refused`.
  Row row(PointId point, ModalityChecks& checks) const;

 private:
  struct ReadCalibration {
    Calibration calibration;
    std::map<std::string, YamlDocument::Spot> spots;
  };

  PlanGrid(Variation variation, YamlDocument document, std::string manifest,
           std::map<std::string, ReadCalibration> calibrations)
      : variation_(std::move(variation)),
        calibrations_(std::move(calibrations)),
        spots_(std::move(document.spots)),
        manifest_(std::move(manifest)),
        multimodal_(is_multimodal(document.value)) {}

  struct Point {
    YamlDocument document;
    Calibration calibration;
  };
  Result<Point> point_of(PointId point) const;
  // A problem may name a key other than the changed one, whose line would mislead. One of a changed
  // key is located at what it was set to: "gpu_memory=-80GB".
  Error located(Error error) const;
  std::map<std::string, YamlDocument::Spot> spots_at(PointId point) const;
  void fill_towers(Row& row, PointId point, ModalityChecks& checks) const;

  Variation variation_;
  // By file. Reading one takes longer than a forecast: where no axis changes them, these are used.
  std::map<std::string, ReadCalibration> calibrations_;
  bool calibration_varied_ = false;
  std::map<std::string, YamlDocument::Spot> spots_;  // locations in the plan file
  std::string manifest_;
  bool multimodal_ = false;
};

}  // namespace lockstep::sim

// The input files of a command about a plan: the plan and the calibrations of its machines.

namespace lockstep::sim {

struct PlanInputs {
  SourceFile plan;
  std::vector<SourceFile> calibrations;  // shipped ones by their names
  SourceFile manifest;                   // of a plan's data; without a file: it has none
};

// `calibrations`: names or files; none: the plan's own, relative to the plan's folder. Errors: a
// file that cannot be read or is not a plan; a calibration that is named twice. A manifest is
// relative to the plan's folder, too.
Result<PlanInputs> load_plan(const std::string& file, const std::vector<std::string>& calibrations);

}  // namespace lockstep::sim
