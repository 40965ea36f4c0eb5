// Blocking collectives of one tensor, each noted as what it carries.
//
// All of them throw what c10d throws. The note is made at the first call under a name, and found
// again afterwards (RingWriter keeps names once).
#pragma once

#include <source_location>
#include <string>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "runtime/record/recorder.h"

namespace lockstep {

enum class Reduce { sum, max, min };

// In place, over the group.
void all_reduce(c10d::ProcessGroup& group, at::Tensor tensor, Reduce how = Reduce::sum);
// From the group's rank `root` to the others, in place.
void broadcast(c10d::ProcessGroup& group, at::Tensor tensor, int root = 0);
// [n, …] of every rank to [ranks × n, …], in group order. `tensor` must be contiguous and of one
// shape on all ranks.
at::Tensor all_gather(c10d::ProcessGroup& group, const at::Tensor& tensor);
// [ranks × n, …] of every rank: summed, and this rank's part [n, …] returned.
at::Tensor reduce_scatter(c10d::ProcessGroup& group, const at::Tensor& tensor);

}  // namespace lockstep
