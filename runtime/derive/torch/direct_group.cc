#include "runtime/derive/torch/direct_group.h"

// Torch 2.15 has new names for the two operations on whole tensors; 2.11 has only these.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace lockstep {

DirectGroup::WorkPtr DirectGroup::broadcast(std::vector<at::Tensor>& tensors,
                                            const c10d::BroadcastOptions& opts) {
  if (!tensors.front().is_meta()) return ProcessGroup::broadcast(tensors, opts);
  return backend()->broadcast(tensors, opts);
}

DirectGroup::WorkPtr DirectGroup::allreduce(std::vector<at::Tensor>& tensors,
                                            const c10d::AllreduceOptions& opts) {
  if (!tensors.front().is_meta()) return ProcessGroup::allreduce(tensors, opts);
  return backend()->allreduce(tensors, opts);
}

DirectGroup::WorkPtr DirectGroup::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                  const c10d::AllgatherOptions& opts) {
  if (!input.is_meta()) return ProcessGroup::_allgather_base(output, input, opts);
  return backend()->_allgather_base(output, input, opts);
}

DirectGroup::WorkPtr DirectGroup::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                       const c10d::ReduceScatterOptions& opts) {
  if (!input.is_meta()) return ProcessGroup::_reduce_scatter_base(output, input, opts);
  return backend()->_reduce_scatter_base(output, input, opts);
}

}  // namespace lockstep
