// A job as the simulator runs it: for each rank an ordered list of operations, and the groups of
// ranks that do collectives together.
//
// A host thread walks the list. For each operation it pays a launch overhead and puts the operation
// into an in-order stream, or it blocks until the operation ends. An operation begins when the one
// before it in its stream has ended. A collective also needs every member of its group to reach the
// same (group, sequence number) with a call that agrees. Members whose calls do not agree wait
// forever.
//
// Operations name groups by *slot*, an index into the rank's own list of groups. So ranks that do
// the same in different groups share one program.
#pragma once

#include <cstdint>
#include <vector>

#include "base/quantities.h"
#include "trace/ids.h"
#include "trace/signature.h"

namespace lockstep::sim {

enum class StepKind : std::uint8_t {
  compute,  // work of `duration`
  call,     // a collective, or one side of a message: calls[index] in the group of `slot`
  wait,     // the host waits until steps[index] has ended
  follow,   // its stream waits until steps[index], an earlier one of any stream, has ended
};

struct ProgramStep {
  Picos duration;
  std::uint32_t index = 0;
  std::uint16_t slot = 0;
  std::uint8_t stream = 0;  // index in this rank's streams; kHost: the host runs it itself
  StepKind kind : 7 = StepKind::compute;
  bool blocks : 1 = false;  // the host waits until it ends

  static constexpr std::uint8_t kHost = UINT8_MAX;
  friend bool operator==(const ProgramStep&, const ProgramStep&) = default;
};
static_assert(sizeof(ProgramStep) == 16);

struct Program {
  std::vector<ProgramStep> steps;
  std::uint32_t streams = 0;  // how many its steps use, numbered 0 … streams - 1
  std::uint32_t slots = 0;
  friend bool operator==(const Program&, const Program&) = default;
};

// What a rank calls. Everything except `bytes` must agree over the members of the group. An id of 0
// or a number of kNone is unknown and agrees with anything.
struct ProgramCall {
  trace::Op op = trace::Op::all_reduce;  // `send` stands for either side of a message
  trace::StringId other_op, redop;
  trace::NameListId dtypes;
  std::int64_t elements = trace::kNone;
  std::int32_t root = trace::kNone;
  Bytes bytes;  // the whole buffer, as in Collective
  friend bool operator==(const ProgramCall&, const ProgramCall&) = default;
};

// True if two members' calls can be the same collective. Not transitive: an unknown value agrees
// with two that differ from each other.
bool agree(const ProgramCall& a, const ProgramCall& b);

struct ProgramGroup {
  std::vector<std::int32_t> members;  // ranks; a group of 2 may also be a channel for messages
};

struct ProgramJob {
  struct Member {
    std::uint32_t program = 0;
    std::vector<std::uint32_t> groups;  // for each slot, an index into ProgramJob::groups
  };
  std::vector<Program> programs;
  std::vector<ProgramCall> calls;
  std::vector<ProgramGroup> groups;
  std::vector<Member> ranks;
};

// Folding: one rank is simulated for each class of equivalent ranks.
//
// Two ranks are equivalent when they run the same program and their groups, slot by slot, have
// equivalent members in the same slots. This is the coarsest equitable partition. It is found by
// refining colours until none splits (Weisfeiler and Leman's refinement, on the bipartite graph of
// ranks and groups). Equivalent ranks do everything at the same times, because the ranks that one
// of them waits for are equivalent to those that the other waits for. So the simulator runs one
// rank of each class, and a collective needs one arrival from each class of its group's members.
//
// Example: in a data-parallel job of 1024 ranks with equal programs and one group, all ranks are
// one class, and its all-reduce needs one arrival.

struct Folding {
  std::vector<std::uint32_t> class_of;         // by rank
  std::vector<std::uint32_t> representatives;  // by class: its first rank
  std::vector<std::uint32_t> group_class_of;   // by group
  // By class of groups: one group of it, and how many different (class, slot) pairs its members
  // have, that is, how many arrivals complete a collective.
  std::vector<std::uint32_t> group_representatives;
  std::vector<std::uint32_t> arrivals;
  // With shared links: their classes, and by class its first link.
  std::vector<std::uint32_t> link_class_of, link_representatives;
};

// What groups put on links that they share (sim/engine/shared_links.h).
struct GroupLinks {
  struct Load {
    std::uint32_t link = 0;
    std::uint32_t label = 0;  // equal for links on which a group puts the same load
  };
  std::vector<std::vector<Load>> of_group;  // each link once
  std::vector<std::uint32_t> kinds;         // by link; equal for equal capacities
};

// `kinds`: for each group, a number for what its cost depends on besides its size (where its
// members are); groups with equal numbers cost the same. Empty: no group differs. With `links`,
// groups are equivalent only if they put the same load on equivalent links, and links only if
// equivalent groups put the same load on them: then every round of fair sharing gives equivalent
// calls the same rate. O((ranks + memberships + loads) · log · rounds).
Folding fold(const ProgramJob& job, const std::vector<std::uint32_t>& kinds = {},
             const GroupLinks* links = nullptr);

// The folding in which every rank is a class of its own.
Folding unfolded(const ProgramJob& job);

}  // namespace lockstep::sim
