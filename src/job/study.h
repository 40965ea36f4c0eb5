// Study: one job varied in two directions, its strategy and its remedy, to be compared.
//
// A scenario with the key "study" is one: `strategies` and `remedies` name variations, each a patch
// of the scenario (JSON merge patch, RFC 7386: what it names is replaced, null takes a key away).
// The scenario itself, without "study", is a scenario like any other.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "job/scenario.h"

namespace lockstep {

struct Variation {
  std::string name;
  std::string patch;  // JSON
};

struct Study {
  std::string file;
  std::string base;  // the scenario without "study", as JSON
  std::string name;
  int repeats = 3;  // runs of each combination, each with a seed of its own
  std::vector<Variation> strategies, remedies;  // in the file's order
};

// What one run of a study trains.
struct StudyRun {
  std::string strategy;               // a variation's name
  std::optional<std::string> remedy;  // left out: the scenario without any
  bool complete = false;              // every item has its image, so that no remedy is needed
  int repeat = 0;                     // added to the seed
  bool watched = false;               // values are recorded, in every step
};

// Nothing where the file has no "study", or is no YAML. Errors: as load_scenario.
Result<std::optional<Study>> load_study(const std::string& path);

// The text of that run's scenario: JSON, which is YAML. Retrieval is evaluated at its end, and
// nothing is expected of it. Errors: the combination contradicts itself; `file` names it there.
Result<std::string> scenario_text(const Study& study, const StudyRun& run, const std::string& file);

}  // namespace lockstep
