// A simulated job run many times with durations that vary: quantiles of how long its steps take.
//
// What varies, by a coefficient of variation (standard deviation over mean):
//
//   compute        a rank's work, by one factor per rank and training step
//   communication  by one factor per collective
//   image, text    the work of a rank in a step whose batch holds any, by a further factor
//
// Factors are independent and log-normal with the mean 1: exp(s·z - s²/2) with s² = ln(1 + cv²) and
// z normal (Box and Muller, 1958). The generator is counter-based (SplitMix64; Steele, Lea and
// Flood, 2014): it hashes seed, trial, rank and step. So a trial depends neither on the thread that
// runs it nor on the trials before it.
//
// Batches can be redrawn. The work of a rank in a step is then that of a random measured step of
// some rank that makes the same calls, all equally likely. This equals deriving other batches as
// long as the calls do not depend on what a batch holds.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "sim/engine/from_run.h"
#include "sim/machine/machine.h"
#include "trace/run.h"

namespace lockstep::sim {

struct Jitter {  // coefficients of variation, from 0 to kMaxJitter
  double work = 0, calls = 0, images = 0, texts = 0;
};
inline constexpr double kMaxJitter = 10;
// Their names on the command line.
inline constexpr std::array<std::pair<std::string_view, double Jitter::*>, 4> kJitterNames = {
    {{"compute", &Jitter::work},
     {"communication", &Jitter::calls},
     {"image", &Jitter::images},
     {"text", &Jitter::texts}}};

struct TrialOptions {
  std::size_t trials = 100;
  std::uint64_t seed = 1;
  std::size_t threads = 1;
  Jitter jitter;
  bool redraw_batches = false;
};
inline constexpr std::size_t kMaxTrialSteps = 50'000'000;  // in all trials together

struct Trials {
  // By trial: the duration of each measured step, in order (sim/forecast/training_steps.h).
  std::vector<std::vector<Picos>> steps;
};

// Runs the trials. `run` is timed_run()'s for `machine`, `program` was made from it and does not
// hang. Errors: call_cost()'s; too many steps; batches that cannot be redrawn because ranks make
// different calls in different steps. O(trials · steps of all ranks).
Result<Trials> run_trials(const trace::Run& run, const RunProgram& program, const Machine& machine,
                          const TrialOptions& options);

// The quantile of at least one value, interpolated linearly between the two nearest ones (Hyndman
// and Fan's type 7, the default of R and NumPy). `share` from 0 to 1.
Picos quantile(std::vector<Picos> values, double share);

// How many of some durations lie in each of equally long parts of their range. Their number is
// twice the cube root of the number of durations (Rice's rule), at most kMaxParts.
struct Histogram {
  static constexpr std::size_t kMaxParts = 60;
  Picos begin, end;                 // the least and the greatest; a part includes its begin
  std::vector<std::size_t> counts;  // by part; the last includes its end, too
};
// The histogram of at least one duration. If all are equal, it has one part.
Histogram histogram(const std::vector<Picos>& durations);

// The results of the trials.
struct TrialsForecast {
  TrialOptions options;
  struct Quantiles {
    Picos p5, p50, p95, mean;
  };
  Quantiles steps;                            // of all measured steps of all trials
  Quantiles trials;                           // of the mean steps of the trials
  Histogram step_histogram, trial_histogram;  // of the same
};

// Summarises at least one trial with at least one step.
TrialsForecast trials_forecast(const Trials& trials, const TrialOptions& options);

}  // namespace lockstep::sim
