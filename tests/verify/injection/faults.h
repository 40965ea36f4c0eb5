// One fault put into a healthy job, and what a judge who sees the traces can be asked to find.
//
// An expectation asks for no more than the data can show: the place is where the deviant first
// *looks* different, a culprit is asked for where a majority or the deviant's own history tells.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/verify/injection/executor.h"
#include "tests/verify/injection/job.h"

namespace lockstep::verify::injection {

enum class Fault {
  skip_call,
  skip_from_a_step_on,
  modality_branch,
  extra_call,
  swapped_calls,
  wrong_size,
  wrong_dtype,
  wrong_redop,
  wrong_root,
  wrong_op,
  other_parameter,
  stops_early,
  runs_longer,
  killed,
  host_hang,
  exception,
  groups_inverted,
  p2p_cycle,
  p2p_unmatched,
  p2p_size,
  group_members,
  uneven_splits,
  never_waited,
  device_stall,
};
inline constexpr int kFaults = static_cast<int>(Fault::device_stall) + 1;
const char* to_string(Fault fault);
// The rule that names the fault where the traces show all of it.
const char* rule_of(Fault fault);

struct Expectation {
  std::set<std::string> rules;  // of the leading finding
  std::optional<std::vector<int>> culprits;
  bool culprits_needed = true;   // false: naming nobody is right as well
  std::set<std::string> groups;  // empty: not judged; so below
  std::set<std::int64_t> seqs;
  std::set<std::int64_t> steps;
  std::string certainty;
  // As rules, where the data show no more than the effect: nothing else is judged then.
  std::set<std::string> vague;
  bool may_be_open = false;   // the verdict may be "inconclusive"
  bool only_if_hung = false;  // a schedule that gets through by luck shows nothing
};

// For a deviation of which the traces show the effect only: it may be called anything, and naming
// nobody is right.
void lose_sight(Expectation& expected);

// Puts the fault into the job; nothing where this job has no place for it. May change `behaviour`
// to what the fault needs.
std::optional<Expectation> inject(Fault fault, Job& job, const Recording& recording,
                                  Behaviour& behaviour, Random& random);

}  // namespace lockstep::verify::injection
