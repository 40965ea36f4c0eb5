#include "runtime/groups/forwarding_backend.h"

#include <tuple>
#include <utility>

// Torch 2.15 has new names for the operations on whole tensors; 2.11 has only these.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace lockstep::runtime {
namespace {

using c10d::OpType;

std::vector<at::Tensor> flattened(const std::vector<std::vector<at::Tensor>>& lists) {
  std::vector<at::Tensor> all;
  for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

}  // namespace

template <typename Method, typename... Args>
class ForwardingBackend::ForwardOf final : public Forward {
 public:
  ForwardOf(Method method, Args&... args) : method_(method), args_(args...) {}

  WorkPtr now(c10d::Backend& backend) const override {
    return std::apply([&](auto&... args) { return (backend.*method_)(args...); }, args_);
  }
  std::function<WorkPtr()> later(c10::intrusive_ptr<c10d::Backend> backend) const override {
    return [backend = std::move(backend), method = method_,
            kept = std::tuple<std::remove_const_t<Args>...>(args_)]() mutable {
      return std::apply([&](auto&... args) { return ((*backend).*method)(args...); }, kept);
    };
  }

 private:
  Method method_;
  std::tuple<Args&...> args_;
};

template <typename Method, typename... Args>
ForwardingBackend::WorkPtr ForwardingBackend::pass(const BackendCall& call, Method method,
                                                   Args&... args) {
  return make(call, ForwardOf<Method, Args...>(method, args...));
}

ForwardingBackend::WorkPtr ForwardingBackend::broadcast(Tensors& tensors,
                                                        const c10d::BroadcastOptions& opts) {
  return pass({.type = OpType::BROADCAST,
               .op = trace::Op::broadcast,
               .in = tensors,
               .out = tensors,
               .root = opts.rootRank,
               .is_async = opts.asyncOp},
              &Backend::broadcast, tensors, opts);
}

ForwardingBackend::WorkPtr ForwardingBackend::allreduce(Tensors& tensors,
                                                        const c10d::AllreduceOptions& opts) {
  return pass({.type = OpType::ALLREDUCE,
               .op = trace::Op::all_reduce,
               .in = tensors,
               .out = tensors,
               .reduce = &opts.reduceOp,
               .is_async = opts.asyncOp},
              &Backend::allreduce, tensors, opts);
}

ForwardingBackend::WorkPtr ForwardingBackend::allreduce_sparse(Tensors& tensors,
                                                               const c10d::AllreduceOptions& opts) {
  return pass({.type = OpType::_ALLREDUCE_SPARSE,
               .op = trace::Op::all_reduce,
               .in = tensors,
               .out = tensors,
               .reduce = &opts.reduceOp,
               .is_async = opts.asyncOp},
              &Backend::allreduce_sparse, tensors, opts);
}

ForwardingBackend::WorkPtr ForwardingBackend::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  return pass({.type = OpType::ALLREDUCE_COALESCED,
               .op = trace::Op::all_reduce,
               .in = tensors,
               .out = tensors,
               .reduce = &opts.reduceOp,
               .is_async = opts.asyncOp},
              &Backend::allreduce_coalesced, tensors, opts);
}

ForwardingBackend::WorkPtr ForwardingBackend::reduce(Tensors& tensors,
                                                     const c10d::ReduceOptions& opts) {
  return pass({.type = OpType::REDUCE,
               .op = trace::Op::reduce,
               .in = tensors,
               .out = tensors,
               .reduce = &opts.reduceOp,
               .root = opts.rootRank,
               .is_async = opts.asyncOp},
              &Backend::reduce, tensors, opts);
}

ForwardingBackend::WorkPtr ForwardingBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                                        const c10d::AllgatherOptions& opts) {
  return pass({.type = OpType::ALLGATHER,
               .op = trace::Op::all_gather,
               .in = inputs,
               .out = flattened(outputs),
               .is_async = opts.asyncOp},
              &Backend::allgather, outputs, inputs, opts);
}

ForwardingBackend::WorkPtr ForwardingBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                              const c10d::AllgatherOptions& opts) {
  return pass({.type = OpType::_ALLGATHER_BASE,
               .op = trace::Op::all_gather_into_tensor,
               .in = input,
               .out = output,
               .is_async = opts.asyncOp},
              &Backend::_allgather_base, output, input, opts);
}

ForwardingBackend::WorkPtr ForwardingBackend::allgather_coalesced(
    TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  return pass({.type = OpType::ALLGATHER_COALESCED,
               .op = trace::Op::all_gather,
               .in = inputs,
               .out = flattened(outputs),
               .is_async = opts.asyncOp},
              &Backend::allgather_coalesced, outputs, inputs, opts);
}

ForwardingBackend::WorkPtr ForwardingBackend::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  return pass({.type = OpType::COALESCED,
               .op = trace::Op::all_gather_into_tensor,
               .in = inputs,
               .out = outputs,
               .is_async = opts.asyncOp},
              &Backend::allgather_into_tensor_coalesced, outputs, inputs, opts);
}

ForwardingBackend::WorkPtr ForwardingBackend::gather(TensorLists& outputs, Tensors& inputs,
                                                     const c10d::GatherOptions& opts) {
  return pass({.type = OpType::GATHER,
               .op = trace::Op::gather,
               .in = inputs,
               .out = flattened(outputs),
               .root = opts.rootRank,
               .is_async = opts.asyncOp},
              &Backend::gather, outputs, inputs, opts);
}

ForwardingBackend::WorkPtr ForwardingBackend::scatter(Tensors& outputs, TensorLists& inputs,
                                                      const c10d::ScatterOptions& opts) {
  return pass({.type = OpType::SCATTER,
               .op = trace::Op::scatter,
               .in = flattened(inputs),
               .out = outputs,
               .root = opts.rootRank,
               .is_async = opts.asyncOp},
              &Backend::scatter, outputs, inputs, opts);
}

ForwardingBackend::WorkPtr ForwardingBackend::reduce_scatter(
    Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& opts) {
  return pass({.type = OpType::REDUCE_SCATTER,
               .op = trace::Op::reduce_scatter,
               .in = flattened(inputs),
               .out = outputs,
               .reduce = &opts.reduceOp,
               .is_async = opts.asyncOp},
              &Backend::reduce_scatter, outputs, inputs, opts);
}

ForwardingBackend::WorkPtr ForwardingBackend::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) {
  return pass({.type = OpType::_REDUCE_SCATTER_BASE,
               .op = trace::Op::reduce_scatter_tensor,
               .in = input,
               .out = output,
               .reduce = &opts.reduceOp,
               .is_async = opts.asyncOp},
              &Backend::_reduce_scatter_base, output, input, opts);
}

ForwardingBackend::WorkPtr ForwardingBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& opts) {
  return pass({.type = OpType::REDUCE_SCATTER_TENSOR_COALESCED,
               .op = trace::Op::reduce_scatter_tensor,
               .in = inputs,
               .out = outputs,
               .reduce = &opts.reduceOp,
               .is_async = opts.asyncOp},
              &Backend::reduce_scatter_tensor_coalesced, outputs, inputs, opts);
}

ForwardingBackend::WorkPtr ForwardingBackend::alltoall_base(
    at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_splits,
    std::vector<std::int64_t>& input_splits, const c10d::AllToAllOptions& opts) {
  return pass({.type = OpType::ALLTOALL_BASE,
               .op = trace::Op::all_to_all_single,
               .in = input,
               .out = output,
               .is_async = opts.asyncOp,
               .splits_in = &input_splits,
               .splits_out = &output_splits},
              &Backend::alltoall_base, output, input, output_splits, input_splits, opts);
}

ForwardingBackend::WorkPtr ForwardingBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                                       const c10d::AllToAllOptions& opts) {
  return pass({.type = OpType::ALLTOALL,
               .op = trace::Op::all_to_all,
               .in = inputs,
               .out = outputs,
               .is_async = opts.asyncOp},
              &Backend::alltoall, outputs, inputs, opts);
}

ForwardingBackend::WorkPtr ForwardingBackend::barrier(const c10d::BarrierOptions& opts) {
  return pass({.type = OpType::BARRIER, .op = trace::Op::barrier, .is_async = opts.asyncOp},
              &Backend::barrier, opts);
}

ForwardingBackend::WorkPtr ForwardingBackend::send(Tensors& tensors, int destination, int tag) {
  return pass({.type = OpType::SEND,
               .op = trace::Op::send,
               .in = tensors,
               .peer = destination,
               .peer_tag = tag},
              &Backend::send, tensors, destination, tag);
}

ForwardingBackend::WorkPtr ForwardingBackend::recv(Tensors& tensors, int source, int tag) {
  return pass({.type = OpType::RECV,
               .op = trace::Op::recv,
               .out = tensors,
               .peer = source,
               .peer_tag = tag},
              &Backend::recv, tensors, source, tag);
}

ForwardingBackend::WorkPtr ForwardingBackend::recvAnysource(Tensors& tensors, int tag) {
  return pass(
      {.type = OpType::RECVANYSOURCE, .op = trace::Op::recv_any, .out = tensors, .peer_tag = tag},
      &Backend::recvAnysource, tensors, tag);
}

}  // namespace lockstep::runtime
