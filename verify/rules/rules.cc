#include "verify/rules/rules.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "base/text.h"

namespace lockstep::verify {

namespace {

// By the analyses: what the recorded run shows is seen; what a wait in all schedules, or recorded
// values show is proven; what only another schedule would show is possible.
constexpr Certainties kProven{.proven = true};
constexpr Certainties kSeen{.observed = true};
constexpr Certainties kSeenOrProven{.proven = true, .observed = true};
constexpr Certainties kAnyCertainty{.proven = true, .observed = true, .possible = true};

constexpr std::array kRules = {
    Rule{RuleId::op_mismatch, "op-mismatch", "matching", Severity::error, kSeenOrProven},
    Rule{RuleId::missing_collective, "missing-collective", "matching", Severity::error,
         kSeenOrProven},
    Rule{RuleId::extra_collective, "extra-collective", "matching", Severity::error, kSeenOrProven},
    Rule{RuleId::size_mismatch, "size-mismatch", "matching", Severity::error, kSeenOrProven},
    Rule{RuleId::dtype_mismatch, "dtype-mismatch", "matching", Severity::error, kSeenOrProven},
    Rule{RuleId::redop_mismatch, "redop-mismatch", "matching", Severity::error, kSeenOrProven},
    Rule{RuleId::root_mismatch, "root-mismatch", "matching", Severity::error, kSeenOrProven},
    Rule{RuleId::splits_mismatch, "splits-mismatch", "matching", Severity::error, kSeenOrProven},
    Rule{RuleId::group_divergence, "group-divergence", "matching", Severity::error, kAnyCertainty},
    Rule{RuleId::order_swap, "order-swap", "matching", Severity::error, kSeenOrProven},
    Rule{RuleId::identity_mismatch, "identity-mismatch", "matching", Severity::error,
         kSeenOrProven},
    Rule{RuleId::step_mismatch, "step-mismatch", "matching", Severity::warning, kSeen},
    Rule{RuleId::deadlock, "deadlock", "blocking", Severity::error, kAnyCertainty},
    Rule{RuleId::cross_group_deadlock, "cross-group-deadlock", "blocking", Severity::error,
         kAnyCertainty},
    Rule{RuleId::p2p_unmatched, "p2p-unmatched", "blocking", Severity::error, kAnyCertainty},
    Rule{RuleId::p2p_cycle, "p2p-cycle", "blocking", Severity::error, kAnyCertainty},
    Rule{RuleId::p2p_size, "p2p-size", "blocking", Severity::error, kSeenOrProven},
    Rule{RuleId::host_stall, "host-stall", "blocking", Severity::error, kSeenOrProven},
    Rule{RuleId::device_stall, "device-stall", "blocking", Severity::error, kSeenOrProven},
    Rule{RuleId::rank_exception, "rank-exception", "blocking", Severity::error, kSeenOrProven},
    Rule{RuleId::unequal_iterations, "unequal-iterations", "blocking", Severity::error,
         kSeenOrProven},
    Rule{RuleId::never_waited, "never-waited", "lifecycle", Severity::warning, kSeen},
    Rule{RuleId::buffer_race, "buffer-race", "lifecycle", Severity::error, kSeen},
    Rule{RuleId::wildcard_race, "wildcard-race", "lifecycle", Severity::error, kAnyCertainty},
    Rule{RuleId::modality_divergence, "modality-divergence", "modality", Severity::error,
         kSeenOrProven},
    Rule{RuleId::unused_parameter, "unused-parameter", "modality", Severity::error, kSeenOrProven},
    Rule{RuleId::dead_remedy, "dead-remedy", "modality", Severity::error, kSeenOrProven},
    Rule{RuleId::dummy_dilution, "dummy-dilution", "modality", Severity::error, kProven},
    Rule{RuleId::decayed_unused, "decayed-unused", "modality", Severity::warning, kSeen},
    Rule{RuleId::param_divergence, "param-divergence", "numbers", Severity::error, kSeenOrProven},
    Rule{RuleId::grad_divergence, "grad-divergence", "numbers", Severity::error, kSeenOrProven},
    Rule{RuleId::buffer_divergence, "buffer-divergence", "numbers", Severity::warning,
         kSeenOrProven},
    Rule{RuleId::reduction_wrong, "reduction-wrong", "numbers", Severity::error, kProven},
    Rule{RuleId::unsynchronised_step, "unsynchronised-step", "numbers", Severity::error,
         kSeenOrProven},
    Rule{RuleId::rank_local_decision, "rank-local-decision", "numbers", Severity::error,
         kSeenOrProven},
    Rule{RuleId::stale_gradient, "stale-gradient", "numbers", Severity::error, kProven},
    Rule{RuleId::no_update, "no-update", "numbers", Severity::error, kSeen},
    Rule{RuleId::equal_random, "equal-random", "numbers", Severity::error, kSeen},
    Rule{RuleId::evaluation_mode, "evaluation-mode", "numbers", Severity::warning, kSeen},
    Rule{RuleId::non_finite, "non-finite", "numbers", Severity::error, kSeen},
    Rule{RuleId::no_sharding, "no-sharding", "data", Severity::error, kSeen},
    Rule{RuleId::no_reshuffle, "no-reshuffle", "data", Severity::warning, kSeen},
    Rule{RuleId::index_misaligned, "index-misaligned", "data", Severity::error, kSeen},
    Rule{RuleId::overlap, "overlap", "data", Severity::error, kSeen},
    Rule{RuleId::broadcast_as_sync, "broadcast-as-sync", "data", Severity::warning, kSeen},
    Rule{RuleId::missing_rank, "missing-rank", "input", Severity::note, kSeen},
    Rule{RuleId::damaged_trace, "damaged-trace", "input", Severity::note, kSeen},
    Rule{RuleId::rank_killed, "rank-killed", "input", Severity::note, kSeen},
    Rule{RuleId::inconsistent_header, "inconsistent-header", "input", Severity::warning, kSeen},
    Rule{RuleId::job_evidence, "job-evidence", "input", Severity::note, kSeen},
};

constexpr bool in_order() {
  for (std::size_t i = 0; i < kRules.size(); ++i) {
    if (static_cast<std::size_t>(kRules[i].id) != i) return false;
  }
  return true;
}
static_assert(in_order(), "rule(id) indexes the table by id");

}  // namespace

std::string_view to_string(Severity s) {
  switch (s) {
    case Severity::note:
      return "note";
    case Severity::warning:
      return "warning";
    case Severity::error:
      return "error";
  }
  return "";
}

std::string_view to_string(Certainty c) {
  switch (c) {
    case Certainty::proven:
      return "proven";
    case Certainty::observed:
      return "observed";
    case Certainty::possible:
      return "possible";
  }
  return "";
}

bool Certainties::has(Certainty c) const {
  switch (c) {
    case Certainty::proven:
      return proven;
    case Certainty::observed:
      return observed;
    case Certainty::possible:
      return possible;
  }
  return false;
}

const Rule& rule(RuleId id) {
  const auto index = static_cast<std::size_t>(id);
  LOCKSTEP_CHECK(index < kRules.size(), "a rule without a row in the table");
  return kRules[index];
}

std::optional<RuleId> rule_from_name(std::string_view name) {
  const auto found =
      std::find_if(kRules.begin(), kRules.end(), [&](const Rule& r) { return r.name == name; });
  if (found == kRules.end()) return std::nullopt;
  return found->id;
}

std::span<const Rule> all_rules() { return kRules; }

namespace {

constexpr std::size_t kSuggested = 4;
constexpr std::size_t kLongest = 100;  // no rule's id is so long; bounds the search

// The nearest id first; then those that hold the word, or are of a family of that name.
std::vector<std::string> suggestions(std::string_view word) {
  std::vector<std::string> names;
  for (const Rule& rule : all_rules()) names.emplace_back(rule.name);
  std::vector<std::string> out;
  if (const std::string near = nearest(word, names); !near.empty()) out.push_back(near);
  if (word.size() < 3) return out;  // "p2" or "s" is part of too many ids
  for (const Rule& rule : all_rules()) {
    const bool related = rule.name.find(word) != std::string_view::npos || rule.family == word;
    const std::string name(rule.name);
    if (related && std::find(out.begin(), out.end(), name) == out.end()) out.push_back(name);
  }
  return out;
}

}  // namespace

Result<RuleId> rule_named(std::string_view name) {
  if (const std::optional<RuleId> id = rule_from_name(name)) return *id;
  std::vector<std::string> near = suggestions(name.substr(0, kLongest));
  std::string fix = "`lockstep explain` lists them";
  if (!near.empty()) {
    if (near.size() > kSuggested) near.resize(kSuggested);
    std::string list;
    for (std::size_t i = 0; i < near.size(); ++i)
      list += (i == 0 ? "" : i + 1 == near.size() ? " or " : ", ") + near[i];
    fix = fmt::format("did you mean {}? {}", list, fix);
  }
  return Error{fmt::format("no rule \"{}\"", printable(name.substr(0, kLongest))), {}, fix};
}

}  // namespace lockstep::verify
