// Variation: what a sweep varies in its files, the resulting grid, and the documents of each of its
// points. ScenarioGrid (jobs on machines) and PlanGrid (transformers on clusters) interpret the
// documents.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "sim/sweep/search.h"

namespace lockstep::sim {

// A key and its values: "train.batch_size", "data.modality.0.has" (list elements by their index),
// or for what the job runs on "machine.links.0.beta".
struct Axis {
  std::string key;
  std::vector<nlohmann::json> values;  // at least one; all different
  Location location = {};              // in a sweep file; empty: on the command line
};

inline constexpr std::size_t kLongestKey = 200;  // in bytes, as in a sweep file

// "train.batch_size=8,16". Errors: no key or a longer one, no "=", those of parse_values().
Result<Axis> parse_axis(const std::string& text);

struct SourceFile {
  std::string file, text;
};

// Which keys belong to what a job runs on, and where they are in its document: "machine.links" is
// "links".
struct MachineKeys {
  std::string prefix;  // "machine."
  // Short names of keys inside the section: "network_speed" for "transformer.network_speed".
  std::string section;
  std::vector<std::string> in_section;
};

class Variation {
 public:
  // What is wrong with a document; empty: nothing.
  using Check = std::function<std::optional<Error>(const nlohmann::json& document)>;

  struct Document {
    std::string file;
    nlohmann::json value;
    Check check;  // called by make() alone
  };
  struct Subject {
    std::string name;
    Document job;
    std::vector<Document> machines;  // at least one
    MachineKeys machine_keys;
    // Why a key of the job cannot be varied; empty: it can.
    std::function<std::optional<Error>(const std::string& key)> refuses;
  };

  // Checks each value by itself, in a document with the first values of the axes before it. Errors:
  // those of `refuses` and the checks, with the axis; a key that is varied twice; more than
  // kMaxPoints.
  static Result<Variation> make(Subject subject, const std::vector<Axis>& axes);

  // The last axes are the machine's: its file and the keys in it.
  const Grid& grid() const { return grid_; }
  const std::string& name() const { return subject_.name; }  // of the job
  // The varied keys in the order of the grid's axes, without the machine's file.
  std::vector<std::string> keys() const;
  std::size_t machines() const { return subject_.machines.size(); }

  // A point's values by key, in that order.
  nlohmann::ordered_json values(PointId point) const;
  const std::string& job_file() const { return subject_.job.file; }
  const std::string& machine_file(PointId point) const;
  // The number of a point's job: points of one job are consecutive in the grid.
  PointId job(PointId point) const { return point / machine_points_; }

  // The documents of a point. Errors: a list element that does not exist after another key changed
  // the list.
  Result<nlohmann::json> job_document(PointId point) const;
  Result<nlohmann::json> machine_document(PointId point) const;

 private:
  Variation(Grid grid, Subject subject) : grid_(std::move(grid)), subject_(std::move(subject)) {}

  Grid grid_;
  Subject subject_;
  std::vector<Axis> job_axes_, machine_axes_;
  PointId machine_points_ = 1;
};

// Changes one value of a document, by its dotted key.

// "data.modality.0" split at the dots.
std::vector<std::string> key_parts(const std::string& key);

// `document` with `value` under `key`. Creates missing mappings on the way; a strategy, remedy or
// model that is only a name becomes a mapping if one of its keys is meant. Errors: a list element
// that does not exist.
Result<nlohmann::json> with_value(nlohmann::json document, const std::string& key,
                                  const nlohmann::json& value);

// The values of an axis, as people write them.
//
//   "ddp,fsdp"                           two texts
//   "8,{kind: fsdp, shard_ranks: 2}"     any YAML: numbers, lists, mappings
//   "2..16*2"                            2, 4, 8, 16
//   "0.1..0.5+0.2"                       0.1, 0.3, 0.5
//   "1..3"                               1, 2, 3
//   "25GB/s..100GB/s*2"                  25GB/s, 50GB/s, 100GB/s

inline constexpr std::size_t kMaxValues = 1000;  // of a key

// Errors: not YAML once put between brackets, no value, a duplicate, a range without end, that goes
// down or mixes units, more than kMaxValues.
Result<std::vector<nlohmann::json>> parse_values(const std::string& text);

// The same for a list that is parsed YAML already; its texts may be ranges.
Result<std::vector<nlohmann::json>> expand_values(const nlohmann::json& list);

// A value in a table: text without quotes, everything else as JSON.
std::string value_text(const nlohmann::json& value);

}  // namespace lockstep::sim
