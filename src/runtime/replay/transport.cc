#include "runtime/replay/transport.h"

#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include <ATen/ATen.h>

// Torch 2.15 has new names for the operations on whole tensors; 2.11 has only these.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace lockstep {
namespace {

// Of a call that nobody can carry. Whoever waits for it is ended by the watchdog.
class EndlessWork : public c10d::Work {
 public:
  bool isCompleted() override { return false; }
  bool isSuccess() const override { return false; }
  bool wait(std::chrono::milliseconds) override {
    for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
  }
};

bool gloo_knows(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
    case at::kDouble:
    case at::kHalf:
    case at::kChar:
    case at::kByte:
    case at::kInt:
    case at::kLong:
      return true;
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
      return at::kLong;  // wider ones are several of these
  }
}

at::Tensor carried(const at::Tensor& tensor) {
  if (gloo_knows(tensor.scalar_type())) return tensor;
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

// Several tensors as one of as many bytes.
std::vector<at::Tensor> as_one(const std::vector<at::Tensor>& tensors) {
  if (tensors.size() == 1) return carried(tensors);
  std::size_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += tensor.nbytes();
  return {at::zeros({static_cast<std::int64_t>(bytes)}, at::kByte)};
}

c10d::ReduceOp carried(const c10d::ReduceOp& op, const at::Tensor& tensor) {
  switch (op.op_) {
    case c10d::ReduceOp::PRODUCT:
    case c10d::ReduceOp::MIN:
    case c10d::ReduceOp::MAX:
      return op;
    case c10d::ReduceOp::BAND:
    case c10d::ReduceOp::BOR:
    case c10d::ReduceOp::BXOR:
      if (at::isIntegralType(tensor.scalar_type(), false)) return op;
      return c10d::ReduceOp::SUM;
    default:
      return c10d::ReduceOp::SUM;
  }
}

}  // namespace

ReplayTransport::WorkPtr ReplayTransport::carry(HeldCalls::Start call) {
  if (!gloo_) return c10::make_intrusive<EndlessWork>();
  return held_.start(std::move(call));
}

ReplayTransport::WorkPtr ReplayTransport::broadcast(Tensors& tensors,
                                                    const c10d::BroadcastOptions& opts) {
  return carry([this, all = as_one(tensors), options = opts]() mutable {
    return gloo_->broadcast(all, options);
  });
}

ReplayTransport::WorkPtr ReplayTransport::allreduce(Tensors& tensors,
                                                    const c10d::AllreduceOptions& opts) {
  return carry([this, all = as_one(tensors), options = opts]() mutable {
    options.reduceOp = carried(options.reduceOp, all.front());
    return gloo_->allreduce(all, options);
  });
}

ReplayTransport::WorkPtr ReplayTransport::reduce(Tensors& tensors,
                                                 const c10d::ReduceOptions& opts) {
  return carry([this, all = as_one(tensors), options = opts]() mutable {
    options.reduceOp = carried(options.reduceOp, all.front());
    return gloo_->reduce(all, options);
  });
}

ReplayTransport::WorkPtr ReplayTransport::allgather(TensorLists& outputs, Tensors& inputs,
                                                    const c10d::AllgatherOptions& opts) {
  return carry([this, out = carried(outputs), in = carried(inputs), options = opts]() mutable {
    return gloo_->allgather(out, in, options);
  });
}

ReplayTransport::WorkPtr ReplayTransport::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                          const c10d::AllgatherOptions& opts) {
  return carry([this, out = carried(output), in = carried(input), options = opts]() mutable {
    return gloo_->_allgather_base(out, in, options);
  });
}

ReplayTransport::WorkPtr ReplayTransport::gather(TensorLists& outputs, Tensors& inputs,
                                                 const c10d::GatherOptions& opts) {
  return carry([this, out = carried(outputs), in = carried(inputs), options = opts]() mutable {
    return gloo_->gather(out, in, options);
  });
}

ReplayTransport::WorkPtr ReplayTransport::scatter(Tensors& outputs, TensorLists& inputs,
                                                  const c10d::ScatterOptions& opts) {
  return carry([this, out = carried(outputs), in = carried(inputs), options = opts]() mutable {
    return gloo_->scatter(out, in, options);
  });
}

ReplayTransport::WorkPtr ReplayTransport::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                                         const c10d::ReduceScatterOptions& opts) {
  return carry([this, out = carried(outputs), in = carried(inputs), options = opts]() mutable {
    options.reduceOp = carried(options.reduceOp, out.front());
    return gloo_->reduce_scatter(out, in, options);
  });
}

ReplayTransport::WorkPtr ReplayTransport::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) {
  return carry([this, out = carried(output), in = carried(input), options = opts]() mutable {
    options.reduceOp = carried(options.reduceOp, out);
    return gloo_->_reduce_scatter_base(out, in, options);
  });
}

ReplayTransport::WorkPtr ReplayTransport::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                        std::vector<std::int64_t>& output_splits,
                                                        std::vector<std::int64_t>& input_splits,
                                                        const c10d::AllToAllOptions& opts) {
  // Rows of bytes: a view of another width could not be split as the tensor is.
  const auto rows = [](const at::Tensor& tensor) {
    if (gloo_knows(tensor.scalar_type()) || tensor.dim() == 0) return carried(tensor);
    const std::int64_t count = tensor.size(0);
    return count == 0 ? at::zeros({0}, at::kByte)
                      : tensor.flatten().view(at::kByte).view({count, -1});
  };
  return carry([this, out = rows(output), in = rows(input), splits_out = output_splits,
                splits_in = input_splits, options = opts]() mutable {
    return gloo_->alltoall_base(out, in, splits_out, splits_in, options);
  });
}

ReplayTransport::WorkPtr ReplayTransport::alltoall(Tensors& outputs, Tensors& inputs,
                                                   const c10d::AllToAllOptions& opts) {
  return carry([this, out = carried(outputs), in = carried(inputs), options = opts]() mutable {
    return gloo_->alltoall(out, in, options);
  });
}

ReplayTransport::WorkPtr ReplayTransport::barrier(const c10d::BarrierOptions& opts) {
  return carry([this, options = opts] { return gloo_->barrier(options); });
}

ReplayTransport::WorkPtr ReplayTransport::send(Tensors& tensors, int destination, int tag) {
  return carry([this, all = as_one(tensors), destination, tag]() mutable {
    return gloo_->send(all, destination, tag);
  });
}

ReplayTransport::WorkPtr ReplayTransport::recv(Tensors& tensors, int source, int tag) {
  return carry([this, all = as_one(tensors), source, tag]() mutable {
    return gloo_->recv(all, source, tag);
  });
}

ReplayTransport::WorkPtr ReplayTransport::recvAnysource(Tensors& tensors, int tag) {
  return carry(
      [this, all = as_one(tensors), tag]() mutable { return gloo_->recvAnysource(all, tag); });
}

}  // namespace lockstep
