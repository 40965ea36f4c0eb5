// Study: a job in several variations of its strategy and its remedy, for comparison.
//
// A scenario with the key "study" is one: `strategies` and `remedies` name variations, each a patch
// of the scenario (JSON merge patch, RFC 7386: keys that it names are replaced, null removes a
// key). Without the key "study" the scenario is an ordinary one.
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
  int repeats = 3;                              // runs of each combination, each with its own seed
  std::vector<Variation> strategies, remedies;  // in the file's order
};

// One run of a study.
struct StudyRun {
  std::string strategy;               // a variation's name
  std::optional<std::string> remedy;  // absent: the scenario without a remedy
  bool complete = false;              // every item has its image, so no remedy is needed
  int repeat = 0;                     // added to the seed
  bool watched = false;               // record values in every step
};

// Folders of results, in the study's folder: result_folder(strategy) + "/" + result_folder(remedy)
// for a combination; kCompleteFolder beside the remedies for a strategy without missing images;
// kAloneFolder for one process, with a remedy kAloneFolder + "-" + result_folder(remedy).
inline constexpr const char* kCompleteFolder = "complete";
inline constexpr const char* kAloneFolder = "alone";
// A variation's name as a folder name: letters, digits and "_" stay, everything else becomes "-".
std::string result_folder(const std::string& variation);

// Nothing if the file has no "study", or is not YAML. Errors: those of load_scenario; variations
// whose results would share a folder, or use one of those above; one with a key or a value that the
// format does not have; a file that cannot be read.
Result<std::optional<Study>> load_study(const std::string& path);

// The scenario of that run as text (JSON, which is YAML). It evaluates retrieval at the end, and
// expects nothing. Errors: the combination contradicts itself; `file` names it in them.
Result<std::string> scenario_text(const Study& study, const StudyRun& run, const std::string& file);

}  // namespace lockstep::runtime
