#include "tests/verify/injection/faults.h"

#include <array>
#include <map>

#include "tests/verify/injection/injector.h"

namespace lockstep::verify::injection {

namespace {

bool batches_differ(const Job& job) {
  std::map<int, std::vector<std::string>> first;
  for (const Actions& actions : job.ranks) {
    for (const Action& a : actions) {
      if (a.kind != Action::Kind::modality) continue;
      if (first.emplace(a.n, a.names).first->second != a.names) return true;
    }
  }
  return false;
}

}  // namespace

const char* to_string(Fault fault) {
  static constexpr std::array kNames = {
      "skip_call",       "skip_from_a_step_on", "modality_branch", "extra_call",    "swapped_calls",
      "wrong_size",      "wrong_dtype",         "wrong_redop",     "wrong_root",    "wrong_op",
      "other_parameter", "stops_early",         "runs_longer",     "killed",        "host_hang",
      "exception",       "groups_inverted",     "p2p_cycle",       "p2p_unmatched", "p2p_size",
      "group_members",   "uneven_splits",       "never_waited",    "device_stall"};
  static_assert(kNames.size() == kFaults);
  return kNames[static_cast<std::size_t>(fault)];
}

const char* rule_of(Fault fault) {
  static constexpr std::array kRules = {
      "missing-collective",   "missing-collective", "modality-divergence", "extra-collective",
      "order-swap",           "size-mismatch",      "dtype-mismatch",      "redop-mismatch",
      "root-mismatch",        "op-mismatch",        "identity-mismatch",   "unequal-iterations",
      "unequal-iterations",   "host-stall",         "host-stall",          "rank-exception",
      "cross-group-deadlock", "p2p-cycle",          "p2p-unmatched",       "p2p-size",
      "group-divergence",     "splits-mismatch",    "never-waited",        "device-stall"};
  static_assert(kRules.size() == kFaults);
  return kRules[static_cast<std::size_t>(fault)];
}

void lose_sight(Expectation& expected) {
  expected.rules.insert({"missing-collective", "extra-collective", "size-mismatch", "op-mismatch",
                         "identity-mismatch", "order-swap", "root-mismatch", "unequal-iterations",
                         "dtype-mismatch"});
  expected.culprits_needed = false;
}

std::optional<Expectation> inject(Fault fault, Job& job, const Recording& recording,
                                  Behaviour& behaviour, Random& random) {
  const bool differ = recording.modality && batches_differ(job);
  auto expected = Injector(job, recording, behaviour, random).inject(fault);
  // Batches that happen to differ are a likelier reason for other calls than a slip.
  if (expected && differ && fault != Fault::modality_branch) {
    expected->vague.insert("modality-divergence");
  }
  return expected;
}

}  // namespace lockstep::verify::injection
