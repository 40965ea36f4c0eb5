// The critical path of a scenario's forecast and its what-ifs, in words: what calls carry, by name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/forecast/path_summary.h"
#include "sim/forecast/training_steps.h"
#include "sim/forecast/what_if.h"
#include "sim/machine/simulated_job.h"
#include "trace/run.h"

namespace lockstep {

// Of the measured steps (sim/forecast/training_steps.h).
struct ForecastPath {
  sim::Picos begin, end;
  std::size_t steps = 0;
  bool checkpoints = false;  // are between them, and take time
  // What the path is made of: the work of a class of ranks, or the calls of a group.
  struct Sum {
    std::optional<std::uint32_t> rank_class;
    std::string group;
    bool between_nodes = false;
    sim::Picos time;
  };
  std::vector<Sum> sums;  // the longest first
  struct Item {
    bool is_call = false;
    std::uint32_t rank_class = 0;  // whose work; of a call: who came last, the first time
    // The call, or the one that the work comes before: "all_reduce(w)"; empty: the step's end.
    std::string call, group;
    bool between_nodes = false;
    sim::Picos time;
    std::uint64_t count = 0;
  };
  std::vector<Item> items;  // the longest first

  double share(sim::Picos time) const;
  // "5 steps and the checkpoints between them".
  std::string of_what() const;
};

// `run` is the one that was simulated, to its end.
ForecastPath forecast_path(const Run& run, const sim::SimulatedProgram& simulated,
                           const std::vector<sim::GroupPlace>& places,
                           const sim::MeasuredSteps& measured);

// `ranks`: of each class, "0-3,5". Names are as they came from the job.
std::string words_of(const ForecastPath::Sum& sum, const std::vector<std::string>& ranks);
std::string words_of(const ForecastPath::Item& item, const std::vector<std::string>& ranks);

// Of the step time: "-11.2 %".
std::string change_in_words(const sim::WhatIf& what_if);

// Lines of at most 80 columns; names are made printable. The longest parts alone.
std::string path_text(const ForecastPath& path, const std::vector<std::string>& ranks);
std::string what_if_text(const std::vector<sim::WhatIf>& what_ifs);
// {"begin_ps", "end_ps", "steps", "sums": [], "items": []}: the first kMostPathItems of them.
inline constexpr std::size_t kMostPathItems = 1000;
nlohmann::ordered_json path_json(const ForecastPath& path, const std::vector<std::string>& ranks);
nlohmann::ordered_json what_if_json(const std::vector<sim::WhatIf>& what_ifs);

}  // namespace lockstep
