// `lockstep simulate SCENARIO --trials N`: its options.
#pragma once

#include <cstdint>
#include <string>

#include <CLI/CLI.hpp>

#include "base/result.h"
#include "sim/forecast/trials.h"

namespace lockstep::cli {

struct TrialsCommand {
  int trials = 0;  // 0: none
  std::uint64_t seed = 1;
  std::string jitter;  // as given
  bool redraw_batches = false;
  int jobs = 0;  // 0: as many as there are processors
};

void add_trials(CLI::App& command, TrialsCommand& options);

// Parses "compute=5%,communication=10%,image=20%,text=3%"; an empty text means no jitter. Errors:
// an unknown name, a name twice, not a percentage, more than kMostJitter.
Result<sim::Jitter> parse_jitter(const std::string& text);

// The options of the trials. Errors: those of parse_jitter; trials without variation; options of
// trials without --trials.
Result<sim::TrialOptions> trial_options(const TrialsCommand& command);

}  // namespace lockstep::cli
