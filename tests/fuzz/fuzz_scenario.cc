// Any bytes as a scenario file: an error with its location, or a scenario within the schema's
// bounds, of which others are made: what is simulated, and what is looked at rank by rank.
#include <string>

#include "base/check.h"
#include "runtime/derive/derivation_plan.h"
#include "runtime/derive/plan_scenarios.h"
#include "runtime/job/scenario.h"
#include "runtime/job/scenario_variants.h"
#include "tests/fuzz/targets.h"

namespace lockstep {

namespace {

void check_made(const Result<std::string>& made) {
  if (made) {
    LOCKSTEP_CHECK(runtime::parse_scenario(*made, "made.yaml"),
                   "what is made of a scenario is one");
  } else {
    LOCKSTEP_CHECK(!made.error().message.empty(), "an error says what is wrong");
  }
}

}  // namespace

void fuzz_scenario(std::string_view bytes) {
  const std::string text(bytes);
  const Result<runtime::Scenario> scenario = runtime::parse_scenario(text, "fuzz.yaml");
  if (!scenario) {
    LOCKSTEP_CHECK(!scenario.error().message.empty(), "an error says what is wrong");
    LOCKSTEP_CHECK(scenario.error().location.file == "fuzz.yaml", "and where");
    return;
  }
  LOCKSTEP_CHECK(scenario->ranks >= 1 && scenario->train.steps >= 1, "the schema's bounds hold");
  for (int rank = 0; rank < 4; ++rank) scenario->rule_for(rank, 1);
  check_made(runtime::simulated_scenario(text, "fuzz.yaml", {}));
  check_made(runtime::simulated_scenario(text, "fuzz.yaml", {.ranks = 3, .steps = 2}));
  const Result<runtime::DerivationPlan> plan = runtime::derivation_plan(*scenario);
  if (plan) check_made(runtime::history_scenario(text, "fuzz.yaml", *plan, {0}));
}

}  // namespace lockstep
