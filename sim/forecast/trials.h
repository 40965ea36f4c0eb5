// A simulated job many times over, with durations that vary: how long its steps take, in quantiles.
//
// What varies, by the coefficient of variation (standard deviation over mean) that is asked for:
//
//   work      by one factor for each rank and training step
//   meetings  by one factor for each
//   images, texts   the work of a rank in a step whose batch holds any, by a further factor
//
// Factors are log-normal with the mean 1, and independent of each other: exp(s·z - s²/2) with
// s² = ln(1 + cv²) and z normal (Box and Muller, 1958), from a generator that counts (SplitMix64;
// Steele, Lea and Flood, 2014) over seed, trial, rank and step. So a trial does not depend on which
// thread runs it, nor on the trials before it.
//
// Batches are drawn anew where that is asked for: what a rank works in a step is then what some
// rank that makes the same calls worked in some measured step, each as likely as the others. That
// says the same as deriving other batches as long as calls do not depend on what a batch holds.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "sim/engine/from_run.h"
#include "sim/machine/machine.h"
#include "trace/run.h"

namespace lockstep::sim {

struct Jitter {  // coefficients of variation, from 0 to kMostJitter
  double work = 0, meetings = 0, images = 0, texts = 0;
};
inline constexpr double kMostJitter = 10;
// What people call them.
inline constexpr std::array<std::pair<std::string_view, double Jitter::*>, 4> kJitterNames = {
    {{"compute", &Jitter::work},
     {"communication", &Jitter::meetings},
     {"image", &Jitter::images},
     {"text", &Jitter::texts}}};

struct TrialOptions {
  std::size_t trials = 100;
  std::uint64_t seed = 1;
  std::size_t threads = 1;
  Jitter jitter;
  bool redraw_batches = false;
};
inline constexpr std::size_t kMostTrialSteps = 50'000'000;  // of all trials together

struct Trials {
  // By trial: how long each measured step took, in order (sim/forecast/training_steps.h).
  std::vector<std::vector<Picos>> steps;
};

// `run` is as timed_run() gave it for `machine`, `program` was made of it, and does not hang.
// `stop` is asked now and then, by the calling thread: true ends the trials with an error. Errors:
// call_cost()'s; too many trials; batches that cannot be drawn without deriving them, with the
// reason. O(trials · steps of all ranks).
Result<Trials> run_trials(const trace::Run& run, const RunProgram& program, const Machine& machine,
                          const TrialOptions& options, const std::function<bool()>& stop);

// The value below which that share of `values` lies, between the two nearest of them by their
// distances (Hyndman and Fan's type 7, the default of R and NumPy). At least one value.
Picos quantile(std::vector<Picos> values, double share);

// What trials came to.
struct TrialsForecast {
  TrialOptions options;
  struct Quantiles {
    Picos p5, p50, p95, mean;
  };
  Quantiles steps;   // of all measured steps of all trials
  Quantiles trials;  // of the mean step of each trial
};

// Of at least one trial with at least one step.
TrialsForecast trials_forecast(const Trials& trials, const TrialOptions& options);

}  // namespace lockstep::sim
