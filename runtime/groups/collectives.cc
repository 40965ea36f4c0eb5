#include "runtime/groups/collectives.h"

#include <ATen/ATen.h>

#include "base/check.h"
#include "runtime/record/c10d/host_read.h"

// Torch 2.15 has new names for the two operations on whole tensors; 2.11 has only these.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace lockstep {
namespace {

c10d::ReduceOp op_of(Reduce how) {
  switch (how) {
    case Reduce::sum:
      return c10d::ReduceOp::SUM;
    case Reduce::max:
      return c10d::ReduceOp::MAX;
    case Reduce::min:
      return c10d::ReduceOp::MIN;
  }
  LOCKSTEP_CHECK(false, "a reduction without an operation");
}

// On a device there is none: what is queued next comes behind the call.
void finish(const c10::intrusive_ptr<c10d::Work>& work) {
  if (work) work->wait();
}

}  // namespace

void all_reduce(c10d::ProcessGroup& group, at::Tensor tensor, Reduce how) {
  std::vector<at::Tensor> tensors = {std::move(tensor)};
  c10d::AllreduceOptions options;
  options.reduceOp = op_of(how);
  options.asyncOp = false;
  finish(group.allreduce(tensors, options));
}

void broadcast(c10d::ProcessGroup& group, at::Tensor tensor, int root) {
  std::vector<at::Tensor> tensors = {std::move(tensor)};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  options.asyncOp = false;
  finish(group.broadcast(tensors, options));
}

at::Tensor all_gather(c10d::ProcessGroup& group, const at::Tensor& tensor) {
  std::vector<std::int64_t> sizes = tensor.sizes().vec();
  sizes.front() *= group.getSize();
  at::Tensor out = at::empty(sizes, tensor.options());
  at::Tensor in = tensor;
  c10d::AllgatherOptions options;
  options.asyncOp = false;
  finish(group._allgather_base(out, in, options));
  return out;
}

at::Tensor reduce_scatter(c10d::ProcessGroup& group, const at::Tensor& tensor) {
  std::vector<std::int64_t> sizes = tensor.sizes().vec();
  LOCKSTEP_CHECK(sizes.front() % group.getSize() == 0, "parts of unequal size");
  sizes.front() /= group.getSize();
  at::Tensor out = at::empty(sizes, tensor.options());
  at::Tensor in = tensor;
  c10d::ReduceScatterOptions options;
  options.asyncOp = false;
  finish(group._reduce_scatter_base(out, in, options));
  return out;
}

void barrier(c10d::ProcessGroup& group) {
  c10d::BarrierOptions options;
  options.asyncOp = false;
  finish(group.barrier(options));
}

void broadcast_all(c10d::ProcessGroup& group, Recorder& recorder, const NamedTensors& tensors,
                   std::string_view tag, int root, std::source_location where) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : tensors) {
    const NoteScope scope(recorder, recorder.note({name}, tag), where);
    broadcast(group, tensor, root);
  }
}

double sum_over(c10d::ProcessGroup& group, Recorder& recorder, double own, const char* what,
                std::string_view tag, std::source_location where) {
  const at::Tensor sum = at::full({1}, own, at::kDouble);
  const NoteScope scope(recorder, recorder.note({what}, tag), where);
  all_reduce(group, sum);
  const HostRead reading(recorder, sum);
  return sum.item<double>();
}

}  // namespace lockstep
