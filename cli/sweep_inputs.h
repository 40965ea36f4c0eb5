// What `lockstep sweep` is asked, and what it reads for it: a scenario on machines, or a plan on
// calibrations, by options or by a sweep file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "sim/sweep/plan.h"
#include "sim/sweep/sweep_folder.h"
#include "sim/sweep/training_plans.h"

namespace lockstep {

struct SweepCommand {
  std::string job;  // a scenario, a plan, or a sweep file
  std::string folder, memory_limit;
  std::vector<std::string> machines, calibrations, varied;
  std::vector<sweep::Axis> axes;  // of a sweep file; --vary adds to them
  std::string best;               // empty: samples_per_second
  sweep::PointId trials = 0;      // 0: all
  std::optional<std::uint64_t> seed;
  int steps = 0;            // 0: the scenario's
  std::size_t workers = 0;  // 0: one for each processor
  bool meta = false, no_meta = false;
  std::vector<std::string> outputs;
  bool quiet = false;

  std::optional<int> asked_steps() const { return steps > 0 ? std::optional(steps) : std::nullopt; }
  std::optional<bool> on_meta() const {
    return meta || no_meta ? std::optional(meta) : std::nullopt;
  }
};

// `command` with what its sweep file says, where it names one, and the options do not say it.
// Errors: a sweep file that is wrong.
Result<SweepCommand> with_sweep_file(SweepCommand command);

struct SweepInputs {
  std::variant<sweep::Plan, sweep::TrainingPlans> subject;
  SweepIdentity identity;

  const sweep::Variation& variation() const {
    return std::visit([](const auto& one) -> const sweep::Variation& { return one.variation(); },
                      subject);
  }
  const sweep::Plan* scenarios() const { return std::get_if<sweep::Plan>(&subject); }
  const sweep::TrainingPlans* plans() const { return std::get_if<sweep::TrainingPlans>(&subject); }
};

// Errors: an option that the job's kind does not have; files that cannot be read, or are wrong;
// what Plan::make() and TrainingPlans::make() refuse.
Result<SweepInputs> load_sweep(const SweepCommand& command);

}  // namespace lockstep
