// Any bytes as a baseline file: an error, or fingerprints.
#include <string>

#include "base/check.h"
#include "reports/filter/filter.h"
#include "tests/fuzz/targets.h"

namespace lockstep {

void fuzz_baseline(std::string_view bytes) {
  const auto known = reports::parse_baseline(std::string(bytes), "fuzz.json");
  if (!known) {
    LOCKSTEP_CHECK(!known.error().message.empty(), "an error says what is wrong");
    return;
  }
  for (const std::string& fingerprint : *known) {
    LOCKSTEP_CHECK(!fingerprint.empty(), "a fingerprint is a text");
  }
}

}  // namespace lockstep
