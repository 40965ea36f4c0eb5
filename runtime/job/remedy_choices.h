// The remedies that a scenario could take, as changes of its file.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/job/scenario.h"

namespace lockstep {

struct RemedyChoice {
  std::string name;    // "dummy images"
  std::string change;  // for people: what to write: "remedy: dummy-image"
  std::string text;    // the scenario with it
};

// Those that this scenario's other keys allow and that it does not have already. `text`: the
// scenario's own, `file` names it in errors. Errors: YAML that does not parse.
Result<std::vector<RemedyChoice>> remedy_choices(const std::string& text, const std::string& file);

}  // namespace lockstep
