// One fault put into a healthy job on a mesh (mesh_jobs.h): who deviates and where, whatever the
// run is seen through. What a judge can be asked for in each recording is worked out by
// mesh_trial.h.
#pragma once

#include <array>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/verify/injection/devices.h"
#include "tests/verify/injection/job.h"

namespace lockstep::verify::injection {

enum class MeshFault {
  left_out,              // one rank, one collective
  left_out_by_several,   // fewer than half of a group
  left_out_by_subgroup,  // all ranks of a tensor-parallel group, each in its own data-parallel one
  left_out_all_to_all,
  one_too_many,    // the same call again, or another one
  modality_skip,   // the calls of a branch in one step, by all ranks of a replica
  ddp_unused,      // … of DDP's buckets: the next step raises
  swapped,         // two calls of a group
  groups_swapped,  // two calls of different groups
  wrong_size,
  wrong_op,
  wrong_dtype,
  wrong_root,
  wrong_redop,
  realigned,  // a call left out and, in a later step, one too many
  host_stall,
  never_starts,
  never_completes,
  link_stall,
  exception,
  killed,
  lone_send,
  left_out_message,
  lone_barrier,
  culprit_missing,        // a stalled rank, whose recording is not there
  bystander_missing,      // a left-out call; the recording of another rank is not there
  left_out_by_most,       // by more than half of a group, not all
  modality_skip_by_most,  // the calls of a branch, by more than half of the replicas
  // From here on nothing is wrong.
  healthy,
  legal_skip,      // all members of one group leave out the same call
  straggler,       // late by seconds
  straggler_came,  // … and looked at just after it came
  preempted,       // everything killed at once
  missing_trace,   // of a healthy run
  batches_differ,  // some lack a modality, but every call is made
};
inline constexpr int kMeshFaults = static_cast<int>(MeshFault::batches_differ) + 1;

inline const char* to_string(MeshFault fault) {
  static constexpr std::array kNames = {"left_out",
                                        "left_out_by_several",
                                        "left_out_by_subgroup",
                                        "left_out_all_to_all",
                                        "one_too_many",
                                        "modality_skip",
                                        "ddp_unused",
                                        "swapped",
                                        "groups_swapped",
                                        "wrong_size",
                                        "wrong_op",
                                        "wrong_dtype",
                                        "wrong_root",
                                        "wrong_redop",
                                        "realigned",
                                        "host_stall",
                                        "never_starts",
                                        "never_completes",
                                        "link_stall",
                                        "exception",
                                        "killed",
                                        "lone_send",
                                        "left_out_message",
                                        "lone_barrier",
                                        "culprit_missing",
                                        "bystander_missing",
                                        "left_out_by_most",
                                        "modality_skip_by_most",
                                        "healthy",
                                        "legal_skip",
                                        "straggler",
                                        "straggler_came",
                                        "preempted",
                                        "missing_trace",
                                        "batches_differ"};
  static_assert(kNames.size() == kMeshFaults);
  return kNames[static_cast<std::size_t>(fault)];
}

constexpr bool is_healthy(MeshFault fault) { return fault >= MeshFault::healthy; }

struct Deviation {
  std::vector<int> culprits;     // sorted; empty: no rank is to blame
  std::set<std::string> groups;  // in which the culprits first deviate
  std::int64_t seq = kUnset;     // there; kUnset: at a message
  int step = kUnset;
  // Something besides the two sides tells which of them is right: a majority, a sister group, or
  // who waits for whom. Else their own history may.
  bool has_reference = false;
  bool is_regular = true;         // what deviates is made in every step
  std::vector<int> not_recorded;  // ranks whose files are not there
};

// Nothing: the job has no place for the fault. May change `behaviour` to what the fault needs.
std::optional<Deviation> inject(MeshFault fault, Job& job, DeviceBehaviour& behaviour,
                                Random& random);

}  // namespace lockstep::verify::injection
