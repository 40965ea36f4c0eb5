// The rule table: what the code acts on, a row for each rule id of the contract. What a rule means
// is its page (verify/rules/page.h). Analyses emit findings by RuleId only.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/result.h"

namespace lockstep::verify {

enum class Severity : std::uint8_t { note, warning, error };
std::string_view to_string(Severity s);

enum class Certainty : std::uint8_t {
  proven,    // no schedule lets these ranks continue, or the values differ
  observed,  // seen in this run
  possible,  // some legal schedule would
};
std::string_view to_string(Certainty c);

enum class RuleId : std::uint8_t {
  op_mismatch,
  missing_collective,
  extra_collective,
  size_mismatch,
  dtype_mismatch,
  redop_mismatch,
  root_mismatch,
  splits_mismatch,
  group_divergence,
  order_swap,
  identity_mismatch,
  step_mismatch,
  deadlock,
  cross_group_deadlock,
  p2p_unmatched,
  p2p_cycle,
  p2p_size,
  host_stall,
  device_stall,
  rank_exception,
  unequal_iterations,
  never_waited,
  buffer_race,
  wildcard_race,
  modality_divergence,
  unused_parameter,
  dead_remedy,
  dummy_dilution,
  decayed_unused,
  param_divergence,
  grad_divergence,
  buffer_divergence,
  reduction_wrong,
  unsynchronised_step,
  rank_local_decision,
  stale_gradient,
  no_update,
  equal_random,
  evaluation_mode,
  non_finite,
  no_sharding,
  no_reshuffle,
  index_misaligned,
  overlap,
  broadcast_as_sync,
  missing_rank,
  damaged_trace,
  rank_killed,
  inconsistent_header,
  job_evidence,
};

// Which certainties a rule's findings may have; what was recorded decides.
struct Certainties {
  bool proven = false;
  bool observed = false;
  bool possible = false;

  bool has(Certainty c) const;
};

struct Rule {
  RuleId id{};
  std::string_view name;    // the contract's id, "missing-collective"
  std::string_view family;  // "matching", "blocking", …
  Severity severity{};      // the usual one
  Certainties certainties;  // all that its findings may have
};

// The table of rules, in the order of RuleId.
const Rule& rule(RuleId id);
std::optional<RuleId> rule_from_name(std::string_view name);
std::span<const Rule> all_rules();

// Rule ids as users type them.

// The rule of that id. Errors: there is none; the fix names the ids that may have been meant.
Result<RuleId> rule_named(std::string_view name);

}  // namespace lockstep::verify
