// What the recorded moments of a rank on a CPU say of its durations.
//
// Such a rank computes whenever its thread is not inside a call: from the end of one wait to the
// next call. Our recorder writes both moments. On a GPU the same gaps say only how long the host
// took to launch kernels, so they are no work.
#pragma once

#include <vector>

#include "trace/run.h"

namespace lockstep::sim {

// Adds to `run`, and returns the ranks that got some:
//
// - the gaps between what the thread did, as spans of the host. Spans that are there take their
//   part of a gap. Ranks of one machine share its clock, and those that began late have a gap
//   before their first event;
// - how long calls took (RankTrace::device_times): from the later of their issue and the end of the
//   call before in their queue, a group's or that of its messages to or from a rank, to their
//   completion.
//
// Left as they are: ranks that compute on a device (their backend is not Gloo or MPI, or they have
// a GPU or spans of streams), and traces that do not tell when waits ended. O(events).
std::vector<trace::Rank> add_host_times(trace::Run& run);

}  // namespace lockstep::sim
