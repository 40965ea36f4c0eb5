// Plan: what a sweep varies, and the job and machine that each point of its grid stands for. Made
// from texts: reads no file.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "job/yaml_document.h"
#include "sim/machine/machine.h"
#include "sweep/grid.h"

namespace lockstep::sweep {

// A key and the values that it takes: "train.batch_size", "data.modality.0.has" (list elements by
// their number), or, of the machine file, "machine.links.0.beta".
struct Axis {
  std::string key;
  std::vector<nlohmann::json> values;  // at least one; all different
  Place place = {};                    // in a sweep file; empty: on the command line

  bool of_machine() const { return key.starts_with("machine."); }
};

inline constexpr std::size_t kLongestKey = 200;  // in bytes, as in a sweep file

// "train.batch_size=8,16". Errors: no key or a longer one, no "=", those of parse_values().
Result<Axis> parse_axis(const std::string& text);

struct SourceFile {
  std::string file, text;
};

class Plan {
 public:
  // `steps`: of every job; nothing: as the scenario says. Checked here, each value by itself: its
  // key and type against the schema of scenarios or of machines. Errors: those, with the key's near
  // names; a scenario or machine that is wrong as it stands; a key that is varied twice, or that no
  // simulation looks at; more than kMostPoints.
  static Result<Plan> make(const SourceFile& scenario, const std::vector<SourceFile>& machines,
                           const std::vector<Axis>& axes, std::optional<int> steps);

  // Its last axes are those of the machine: the file, and the keys in it.
  const Grid& grid() const { return grid_; }
  const std::string& scenario_name() const { return scenario_name_; }
  // The varied keys in the order of the grid's axes, but for the machine's file.
  std::vector<std::string> keys() const;
  std::size_t machines() const { return machines_.size(); }

  // By key, in that order.
  nlohmann::ordered_json values(PointId point) const;
  const std::string& machine_file(PointId point) const;
  // Points of one job have the same number, and follow each other in the grid.
  PointId job(PointId point) const { return point / machine_points_; }
  PointId machine_point(PointId point) const { return point % machine_points_; }

  // The scenario to derive. Errors: the values contradict each other, or what is left of the
  // scenario: no such plan is possible.
  Result<std::string> scenario_text(PointId point) const;
  // Errors: the same of the machine.
  Result<sim::Machine> machine(PointId point) const;

 private:
  struct Document {
    std::string file;
    nlohmann::json value;
  };

  explicit Plan(Grid grid) : grid_(std::move(grid)) {}
  Result<nlohmann::json> with_values(nlohmann::json document, PointId point, bool of_machine) const;

  Grid grid_;
  std::string scenario_name_;
  Document scenario_;
  std::vector<Document> machines_;
  std::vector<Axis> job_axes_, machine_axes_;
  PointId machine_points_ = 1;
  std::optional<int> steps_;
};

}  // namespace lockstep::sweep
