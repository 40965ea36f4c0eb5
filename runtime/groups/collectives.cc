#include "runtime/groups/collectives.h"

#include <ATen/ATen.h>

#include "base/check.h"
#include "runtime/record/c10d/host_read.h"

// Torch 2.15 has new names for the two operations on whole tensors; 2.11 has only these.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace lockstep::runtime {
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

// On a device a synchronous call returns no Work: what is queued next runs after the call.
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

namespace {

void send(c10d::ProcessGroup& group, Recorder& recorder, const char* name, at::Tensor tensor) {
  const NoteScope scope(recorder, recorder.note({name}, "data.broadcast"));
  broadcast(group, std::move(tensor));
}

// Copies the tensor to the host, which waits for it on a device that queues calls.
void read(Recorder& recorder, at::Tensor& tensor) {
  const HostRead reading(recorder, tensor);
  tensor = tensor.cpu();
}

}  // namespace

void broadcast_batch(c10d::ProcessGroup& group, Recorder& recorder, Batch& batch) {
  const auto images = batch.has_image() ? batch.images.size(0) : 0;
  const auto rows_of = [](const at::Tensor& t) { return t.defined() ? t.size(0) : 0; };
  at::Tensor sizes = at::tensor(
      {static_cast<std::int64_t>(batch.indices.size()), images,
       images == 0 ? 0 : batch.images.size(2), rows_of(batch.tokens), rows_of(batch.image_rows)},
      at::kLong);
  send(group, recorder, "batch.sizes", sizes);
  read(recorder, sizes);
  const auto count = sizes[0].item<std::int64_t>();
  const auto with_image = sizes[1].item<std::int64_t>();
  const auto texts = sizes[3].item<std::int64_t>();
  const auto pairs = sizes[4].item<std::int64_t>();
  const bool source = group.getRank() == 0;

  at::Tensor indices =
      source ? at::tensor(batch.indices, at::kLong) : at::empty({count}, at::kLong);
  send(group, recorder, "batch.indices", indices);
  read(recorder, indices);
  const auto* first = indices.const_data_ptr<std::int64_t>();
  batch.indices.assign(first, first + count);
  if (!source) batch.tokens = at::empty({texts, batch.tokens.size(1)}, at::kLong);
  send(group, recorder, "batch.tokens", batch.tokens);
  if (with_image == 0) return batch.drop_images();
  if (!source) {
    const auto side = sizes[2].item<std::int64_t>();
    batch.images = at::empty({with_image, 3, side, side});
    batch.image_rows = at::empty({pairs}, at::kLong);
  }
  send(group, recorder, "batch.images", batch.images);
  send(group, recorder, "batch.image_rows", batch.image_rows);
}

}  // namespace lockstep::runtime
