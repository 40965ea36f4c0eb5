// Any bytes as the costs of a rank's work: an error that names the file, or costs that can be
// written and are the same again.
#include "base/check.h"
#include "tests/fuzz/targets.h"
#include "trace/work_costs.h"

namespace lockstep {

void fuzz_work_costs(std::string_view bytes) {
  const Result<trace::RankCosts> costs = trace::parse_work_costs(bytes, "fuzz.json");
  if (!costs) {
    LOCKSTEP_CHECK(!costs.error().message.empty(), "an error says what is wrong");
    LOCKSTEP_CHECK(costs.error().location.file == "fuzz.json", "and where");
    return;
  }
  const Result<trace::RankCosts> again =
      trace::parse_work_costs(trace::work_costs_text(*costs), "again.json");
  LOCKSTEP_CHECK(again, "what was written can be read");
  LOCKSTEP_CHECK(*again == *costs, "and is the same");
}

}  // namespace lockstep
