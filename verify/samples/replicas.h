// Which ranks train on different data: the data-parallel sets of a run.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "verify/context.h"

namespace lockstep::verify {

struct Replicas {
  // Rank indices, ascending; sets of two ranks and more, which share no rank.
  std::vector<std::vector<std::uint32_t>> sets;
  // Pairs of ranks that send each other messages: parts of one model, which read one batch.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> partners;
  bool known = true;      // false: several groups reduce, and nothing shows which of them average
  bool parts = false;     // some ranks are in no set, because they may hold parts of one model
  bool own_data = false;  // some ranks are in no set, because they read data sets of their own
};

// Ranks whose gradients are averaged are replicas: they share a group whose reductions name what
// they carry, or the only group with reductions, or no call is recorded at all. Else the trace may
// declare them ("data_replicas", an optimizer value that all ranks of a set have under one name).
// Ranks that exchange messages are parts of one model and no replicas of each other. Ranks whose
// data sets differ ("data_set", an optimizer value) are in no common set: equal indices stand for
// different samples there; ranks that began with different values of parameters that nobody
// declares may hold parts of a model split by hand, and are in none either. O(calls + values +
// members of groups).
Replicas find_replicas(const Context& context);

}  // namespace lockstep::verify
