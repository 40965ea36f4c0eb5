// Synchronous collectives: computations that follow use their results. On a device that queues
// calls they return before they are complete, except the barrier, which always blocks the host. The
// first five are recorded with the caller's NoteScope; the last two set their own. All throw what
// c10d throws.
#pragma once

#include <source_location>
#include <string_view>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "runtime/models/batch.h"
#include "runtime/models/parameters.h"
#include "runtime/record/recorder.h"

namespace lockstep::runtime {

enum class Reduce { sum, max, min };

// In place, over the group.
void all_reduce(c10d::ProcessGroup& group, at::Tensor tensor, Reduce how = Reduce::sum);
// From group rank `root` to the others, in place.
void broadcast(c10d::ProcessGroup& group, at::Tensor tensor, int root = 0);
// Concatenates [n, …] of every rank to [ranks × n, …], in group order. `tensor` must be contiguous
// and have the same shape on all ranks.
at::Tensor all_gather(c10d::ProcessGroup& group, const at::Tensor& tensor);
// Sums [ranks × n, …] of every rank, and returns this rank's part [n, …].
at::Tensor reduce_scatter(c10d::ProcessGroup& group, const at::Tensor& tensor);
void barrier(c10d::ProcessGroup& group);

// Every tensor from group rank `root` to the others, in place, one call each.
void broadcast_all(c10d::ProcessGroup& group, Recorder& recorder, const NamedTensors& tensors,
                   std::string_view tag, int root = 0,
                   std::source_location where = std::source_location::current());
// The sum of the ranks' numbers; `what` is their name in the trace.
double sum_over(c10d::ProcessGroup& group, Recorder& recorder, double own, const char* what,
                std::string_view tag, std::source_location where = std::source_location::current());

// Data synchronisation by broadcast: every rank trains on rank 0's batch.

// Replaces the batch by that of group rank 0: first the numbers of items and images and the
// pictures' side, then indices, texts and images. Collective. Throws what c10d throws.
void broadcast_batch(c10d::ProcessGroup& group, Recorder& recorder, Batch& batch);

}  // namespace lockstep::runtime
