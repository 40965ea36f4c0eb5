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
#include "runtime/job/scenario.h"

namespace lockstep::runtime {

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

// Where a study's results lie, in its folder: those of a combination in
// result_folder(strategy) + "/" + result_folder(remedy), those of a strategy without missing images
// in kCompleteFolder beside its remedies, those of one process in kAloneFolder, and with a remedy
// in kAloneFolder + "-" + result_folder(remedy).
inline constexpr const char* kCompleteFolder = "complete";
inline constexpr const char* kAloneFolder = "alone";
// A variation's name as a folder's: letters, digits and "_" stay, all else becomes "-".
std::string result_folder(const std::string& variation);

// Nothing where the file has no "study", or is no YAML. Errors: as load_scenario; variations whose
// results would lie in one folder, or in one of those above.
Result<std::optional<Study>> load_study(const std::string& path);

// The text of that run's scenario: JSON, which is YAML. Retrieval is evaluated at its end, and
// nothing is expected of it. Errors: the combination contradicts itself; `file` names it there.
Result<std::string> scenario_text(const Study& study, const StudyRun& run, const std::string& file);

}  // namespace lockstep::runtime
