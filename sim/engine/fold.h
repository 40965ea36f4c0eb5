// Ranks that are alike, made one.
//
// Two ranks are alike when they have the same program, and every slot holds groups of alike members
// in alike slots: the coarsest equitable partition, found by refining colours until none splits
// (Weisfeiler and Leman's refinement, of the bipartite graph of ranks and groups). Alike ranks do
// everything at the same times, because whoever one of them waits for is alike to whom the other
// waits for; so one of each class is simulated, and meets one of each class of its group's members.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/engine/program.h"

namespace lockstep::sim {

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
