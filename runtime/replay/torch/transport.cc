#include "runtime/replay/torch/transport.h"

#include <utility>

#include <ATen/ATen.h>

#include "base/check.h"
#include "runtime/groups/forwarding_backend.h"

// Torch 2.15 has new names for the operations on whole tensors; 2.11 has only these.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace lockstep::runtime {
namespace {

bool is_on_gpu(const at::Tensor& tensor) { return !tensor.is_cpu(); }

// Whether the tensor's carrier supports its type.
bool is_known(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
    case at::kDouble:
    case at::kHalf:
    case at::kChar:
    case at::kByte:
    case at::kInt:
    case at::kLong:
      return true;
    case at::kBFloat16:
      return is_on_gpu(tensor);
    default:
      return false;
  }
}

at::ScalarType of_width(std::size_t bytes) {
  switch (bytes) {
    case 1:
      return at::kByte;
    case 2:
      return at::kHalf;
    case 4:
      return at::kInt;
    default:
      return at::kLong;  // wider elements are several of these
  }
}

at::Tensor carried(const at::Tensor& tensor) {
  if (is_known(tensor)) return tensor;
  return tensor.flatten().view(of_width(static_cast<std::size_t>(tensor.element_size())));
}

std::vector<at::Tensor> carried(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> out;
  for (const at::Tensor& tensor : tensors) out.push_back(carried(tensor));
  return out;
}

std::vector<std::vector<at::Tensor>> carried(const std::vector<std::vector<at::Tensor>>& lists) {
  std::vector<std::vector<at::Tensor>> out;
  for (const auto& list : lists) out.push_back(carried(list));
  return out;
}

// Several tensors as one with the same number of bytes.
std::vector<at::Tensor> as_one(const std::vector<at::Tensor>& tensors) {
  if (tensors.size() == 1) return carried(tensors);
  std::size_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += tensor.nbytes();
  at::TensorOptions options(at::kByte);
  if (!tensors.empty()) options = tensors.front().options().dtype(at::kByte);
  return {at::zeros({static_cast<std::int64_t>(bytes)}, options)};
}

c10d::ReduceOp carried(const c10d::ReduceOp& op, const at::Tensor& tensor) {
  switch (op.op_) {
    case c10d::ReduceOp::PRODUCT:
    case c10d::ReduceOp::MIN:
    case c10d::ReduceOp::MAX:
      return op;
    case c10d::ReduceOp::AVG:
      return is_on_gpu(tensor) ? op : c10d::ReduceOp(c10d::ReduceOp::SUM);
    case c10d::ReduceOp::BAND:
    case c10d::ReduceOp::BOR:
    case c10d::ReduceOp::BXOR:
      if (!is_on_gpu(tensor) && at::isIntegralType(tensor.scalar_type(), false)) return op;
      return c10d::ReduceOp::SUM;
    default:
      return c10d::ReduceOp::SUM;
  }
}

}  // namespace

ReplayTransport::WorkPtr ReplayTransport::carry(const Carrier& carrier,
                                                std::function<WorkPtr(c10d::Backend&)> call) {
  if (!carrier) return c10::make_intrusive<EndlessWork>();
  return held_.start([carrier, make = std::move(call)] { return make(*carrier); });
}

template <class CallOptions>
ReplayTransport::WorkPtr ReplayTransport::carry(
    const CallOptions& options, std::function<WorkPtr(c10d::Backend&, CallOptions&)> call) {
  CallOptions made_with = options;
  if (held_.holding()) made_with.asyncOp = true;
  return carry(carriers_.collectives,
               [made_with, make = std::move(call)](c10d::Backend& by) mutable {
                 return make(by, made_with);
               });
}

ReplayTransport::WorkPtr ReplayTransport::broadcast(Tensors& tensors,
                                                    const c10d::BroadcastOptions& opts) {
  return carry<c10d::BroadcastOptions>(
      opts, [all = as_one(tensors)](c10d::Backend& by, auto& options) mutable {
        return by.broadcast(all, options);
      });
}

ReplayTransport::WorkPtr ReplayTransport::allreduce(Tensors& tensors,
                                                    const c10d::AllreduceOptions& opts) {
  return carry<c10d::AllreduceOptions>(
      opts, [all = as_one(tensors)](c10d::Backend& by, auto& options) mutable {
        options.reduceOp = carried(options.reduceOp, all.front());
        return by.allreduce(all, options);
      });
}

ReplayTransport::WorkPtr ReplayTransport::reduce(Tensors& tensors,
                                                 const c10d::ReduceOptions& opts) {
  return carry<c10d::ReduceOptions>(
      opts, [all = as_one(tensors)](c10d::Backend& by, auto& options) mutable {
        options.reduceOp = carried(options.reduceOp, all.front());
        return by.reduce(all, options);
      });
}

ReplayTransport::WorkPtr ReplayTransport::allgather(TensorLists& outputs, Tensors& inputs,
                                                    const c10d::AllgatherOptions& opts) {
  return carry<c10d::AllgatherOptions>(opts, [out = carried(outputs), in = carried(inputs)](
                                                 c10d::Backend& by, auto& options) mutable {
    return by.allgather(out, in, options);
  });
}

ReplayTransport::WorkPtr ReplayTransport::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                          const c10d::AllgatherOptions& opts) {
  return carry<c10d::AllgatherOptions>(
      opts, [out = carried(output), in = carried(input)](c10d::Backend& by, auto& options) mutable {
        return by._allgather_base(out, in, options);
      });
}

ReplayTransport::WorkPtr ReplayTransport::gather(TensorLists& outputs, Tensors& inputs,
                                                 const c10d::GatherOptions& opts) {
  return carry<c10d::GatherOptions>(
      opts, [out = carried(outputs), in = carried(inputs)](
                c10d::Backend& by, auto& options) mutable { return by.gather(out, in, options); });
}

ReplayTransport::WorkPtr ReplayTransport::scatter(Tensors& outputs, TensorLists& inputs,
                                                  const c10d::ScatterOptions& opts) {
  return carry<c10d::ScatterOptions>(
      opts, [out = carried(outputs), in = carried(inputs)](
                c10d::Backend& by, auto& options) mutable { return by.scatter(out, in, options); });
}

ReplayTransport::WorkPtr ReplayTransport::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                                         const c10d::ReduceScatterOptions& opts) {
  return carry<c10d::ReduceScatterOptions>(opts, [out = carried(outputs), in = carried(inputs)](
                                                     c10d::Backend& by, auto& options) mutable {
    options.reduceOp = carried(options.reduceOp, out.front());
    return by.reduce_scatter(out, in, options);
  });
}

ReplayTransport::WorkPtr ReplayTransport::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) {
  return carry<c10d::ReduceScatterOptions>(
      opts, [out = carried(output), in = carried(input)](c10d::Backend& by, auto& options) mutable {
        options.reduceOp = carried(options.reduceOp, out);
        return by._reduce_scatter_base(out, in, options);
      });
}

ReplayTransport::WorkPtr ReplayTransport::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                        std::vector<std::int64_t>& output_splits,
                                                        std::vector<std::int64_t>& input_splits,
                                                        const c10d::AllToAllOptions& opts) {
  // Rows of bytes: a view with another element width could not be split by rows.
  const auto rows = [](const at::Tensor& tensor) {
    if (is_known(tensor) || tensor.dim() == 0) return carried(tensor);
    const std::int64_t count = tensor.size(0);
    return count == 0 ? at::zeros({0}, tensor.options().dtype(at::kByte))
                      : tensor.flatten().view(at::kByte).view({count, -1});
  };
  return carry<c10d::AllToAllOptions>(
      opts, [out = rows(output), in = rows(input), splits_out = output_splits,
             splits_in = input_splits](c10d::Backend& by, auto& options) mutable {
        return by.alltoall_base(out, in, splits_out, splits_in, options);
      });
}

ReplayTransport::WorkPtr ReplayTransport::alltoall(Tensors& outputs, Tensors& inputs,
                                                   const c10d::AllToAllOptions& opts) {
  return carry<c10d::AllToAllOptions>(opts, [out = carried(outputs), in = carried(inputs)](
                                                c10d::Backend& by, auto& options) mutable {
    return by.alltoall(out, in, options);
  });
}

ReplayTransport::WorkPtr ReplayTransport::barrier(const c10d::BarrierOptions& opts) {
  return carry<c10d::BarrierOptions>(
      opts, [](c10d::Backend& by, auto& options) { return by.barrier(options); });
}

ReplayTransport::WorkPtr ReplayTransport::send(Tensors& tensors, int destination, int tag) {
  return carry(destination > getRank() ? carriers_.up : carriers_.down,
               [all = as_one(tensors), destination, tag](c10d::Backend& by) mutable {
                 return by.send(all, destination, tag);
               });
}

ReplayTransport::WorkPtr ReplayTransport::recv(Tensors& tensors, int source, int tag) {
  return carry(source < getRank() ? carriers_.up : carriers_.down,
               [all = as_one(tensors), source, tag](c10d::Backend& by) mutable {
                 return by.recv(all, source, tag);
               });
}

// The direction is unknown, so this works only on Gloo, where all carriers are the same
// (refusals.h).
ReplayTransport::WorkPtr ReplayTransport::recvAnysource(Tensors& tensors, int tag) {
  return carry(carriers_.collectives, [all = as_one(tensors), tag](c10d::Backend& by) mutable {
    return by.recvAnysource(all, tag);
  });
}

void HeldCalls::HeldWork::start() {
  try {
    inner_ = call_();
  } catch (const std::exception&) {
    failed_ = std::current_exception();
  }
  call_ = nullptr;
  started_ = true;
}

bool HeldCalls::HeldWork::wait(std::chrono::milliseconds timeout) {
  if (failed_) std::rethrow_exception(failed_);
  LOCKSTEP_CHECK(inner_, "a held call is released before it is waited for");
  return inner_->wait(timeout);
}

HeldCalls::WorkPtr HeldCalls::start(Start call) {
  if (!holding_) return call();
  auto work = c10::make_intrusive<HeldWork>(std::move(call));
  held_.push_back(work);
  return work;
}

void HeldCalls::release() {
  holding_ = false;
  released_ = true;
  while (!held_.empty()) {
    const auto work = held_.front();
    held_.pop_front();
    work->start();
  }
}

}  // namespace lockstep::runtime
