// What the ranks of a job do, as the simulator runs it: per rank an ordered list of operations,
// with groups of ranks to do collectives in.
//
// A host thread walks the list. It pays a launch overhead for each operation and puts it into an
// in-order stream, or blocks in it. An operation begins when the one before it in its stream has
// ended; a collective besides when every member of its group has come to its own (group, sequence
// number), with a call that agrees. Members that do not agree wait for ever.
//
// Operations name groups by *slot*: ranks that do the same in different groups share one list.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/quantities.h"
#include "trace/ids.h"
#include "trace/signature.h"

namespace lockstep::sim {

enum class StepKind : std::uint8_t {
  compute,  // work of `duration`
  meet,     // a collective, or one side of a message: calls[index], in the group of `slot`
  wait,     // the host waits until steps[index] has ended
};

struct ProgramStep {
  Picos duration;
  std::uint32_t index = 0;
  std::uint16_t slot = 0;
  std::uint8_t stream = 0;  // of this rank; kHost: the host does it itself
  StepKind kind : 7 = StepKind::compute;
  bool blocks : 1 = false;  // the host waits for its end

  static constexpr std::uint8_t kHost = UINT8_MAX;
  friend bool operator==(const ProgramStep&, const ProgramStep&) = default;
};
static_assert(sizeof(ProgramStep) == 16);

struct Program {
  std::vector<ProgramStep> steps;
  std::uint32_t streams = 0;  // that its steps use: 0 … streams - 1
  std::uint32_t slots = 0;
  friend bool operator==(const Program&, const Program&) = default;
};

// What a rank calls. All but `bytes` must agree over those who meet; 0 and kNone: not known, agrees
// with everything.
struct ProgramCall {
  trace::Op op = trace::Op::all_reduce;  // send: either side of a message
  trace::StringId other_op, redop;
  trace::NameListId dtypes;
  std::int64_t elements = trace::kNone;
  std::int32_t root = trace::kNone;
  Bytes bytes;  // the whole buffer, as in Collective
  friend bool operator==(const ProgramCall&, const ProgramCall&) = default;
};

bool agree(const ProgramCall& a, const ProgramCall& b);

struct ProgramGroup {
  std::vector<std::int32_t> members;  // ranks; 2: a channel for messages as well
};

struct ProgramJob {
  struct Member {
    std::uint32_t program = 0;
    std::vector<std::uint32_t> groups;  // of each slot
  };
  std::vector<Program> programs;
  std::vector<ProgramCall> calls;
  std::vector<ProgramGroup> groups;
  std::vector<Member> ranks;
};

// Folding: ranks that are alike, made one.
//
// Two ranks are alike when they have the same program, and every slot holds groups of alike members
// in alike slots: the coarsest equitable partition, found by refining colours until none splits
// (Weisfeiler and Leman's refinement, of the bipartite graph of ranks and groups). Alike ranks do
// everything at the same times, because whoever one of them waits for is alike to whom the other
// waits for; so one of each class is simulated, and meets one of each class of its group's members.

struct Folding {
  std::vector<std::uint32_t> class_of;         // of each rank
  std::vector<std::uint32_t> representatives;  // of each class: its first rank
  std::vector<std::uint32_t> group_class_of;   // of each group
  // Of each class of groups: one of them, and how many different members come to meet.
  std::vector<std::uint32_t> group_representatives;
  std::vector<std::uint32_t> arrivals;
};

// `kinds`: of each group, what makes its cost besides its size (where its members are); equal
// groups have equal numbers. Empty: they differ in nothing. O((ranks + memberships) · log ·
// rounds).
Folding fold(const ProgramJob& job, const std::vector<std::uint32_t>& kinds = {});

// Every rank a class of its own.
Folding keep_apart(const ProgramJob& job);

}  // namespace lockstep::sim
