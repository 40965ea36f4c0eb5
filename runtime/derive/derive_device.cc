#include "runtime/derive/derive_device.h"

#include "runtime/derive/derivation_plan.h"
#include "runtime/derive/derive_all.h"

namespace lockstep {

bool rules_say_all(const Scenario& scenario) {
  if (scenario.data.source == "shapes" && scenario.data.text_only == 0) return true;
  for (int rank = 0; rank < scenario.ranks; ++rank) {
    for (int step = 0; step < scenario.train.steps; ++step) {
      if (scenario.rule_for(rank, step) == nullptr) return false;
    }
  }
  return true;
}

Result<bool> derive_on_meta(const Scenario& scenario, std::optional<bool> asked,
                            std::optional<std::string> obstacle) {
  if (!obstacle) obstacle = needs_values(scenario);
  const bool many = scenario.ranks > kRanksLookedAt;
  const bool large = scenario.model.image != "resnet-small" || scenario.model.text != "bert-small";
  if (!asked) return !obstacle && (many || large);
  if (*asked && obstacle) {
    return Error{"this job cannot be derived on the meta device: " + *obstacle,
                 {scenario.file},
                 "derive it with --no-meta"};
  }
  return *asked;
}

}  // namespace lockstep
