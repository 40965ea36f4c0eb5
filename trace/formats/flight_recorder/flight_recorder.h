// PyTorch Flight Recorder dumps, as PyTorch 2.5 to 2.15 write them: the pickle and its JSON twin,
// of NCCL and Gloo process groups.
//
// What is peculiar (torch/csrc/distributed/c10d/FlightRecorder.hpp, and dumps of real jobs):
// - The rank is not in the dump, only in the file's name; the world is the largest group.
// - Entries count per group and kind: collective_seq_id and p2p_seq_id, both from 1. Call::seq is
//   that number minus one, so that rings that overran line up. record_id counts across groups and
//   lines nothing up.
// - pg_status is keyed by pg_id, which differs from rank to rank; entries tie it to a group's name.
//   For groups with point-to-point its numbers mix both counters and are left out.
// - Gloo's entries stay "scheduled": `retired` tells that they completed.
// - The members of a coalesced batch stay "scheduled" too; the closing `coalesced` entry alone
//   carries the batch's state.
// - Frames come innermost first; `at` is the first outside of PyTorch and Python's own library.
//
// A pickle can refer to one part of it any number of times. Four times as many values as the file
// has bytes are looked at, and what is left counts as damage. O(bytes).
#pragma once

#include <cstddef>

#include "trace/formats/format.h"

namespace lockstep::trace {

// Memory that reading takes at most, in bytes per byte of the file. Tensors' shapes that share
// their parts are what costs most.
inline constexpr std::size_t kFlightRecorderMemoryFactor = 160;

Format flight_recorder_format();

}  // namespace lockstep::trace
