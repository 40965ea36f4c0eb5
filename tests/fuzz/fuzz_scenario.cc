// Any bytes as a scenario file: an error with its place, or a scenario within the schema's bounds.
#include <string>

#include "base/check.h"
#include "fuzz/targets.h"
#include "job/scenario.h"

namespace lockstep {

void fuzz_scenario(std::string_view bytes) {
  const Result<Scenario> scenario = parse_scenario(std::string(bytes), "fuzz.yaml");
  if (!scenario) {
    LOCKSTEP_CHECK(!scenario.error().message.empty(), "an error says what is wrong");
    LOCKSTEP_CHECK(scenario.error().place.file == "fuzz.yaml", "and where");
    return;
  }
  LOCKSTEP_CHECK(scenario->ranks >= 1 && scenario->train.steps >= 1, "the schema's bounds hold");
  for (int rank = 0; rank < 4; ++rank) scenario->rule_for(rank, 1);
}

}  // namespace lockstep
