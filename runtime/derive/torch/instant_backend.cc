
#include "runtime/derive/torch/instant_backend.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace lockstep {
namespace {

class InstantWork : public c10d::Work {
 public:
  InstantWork(int rank, c10d::OpType op, std::vector<at::Tensor> result)
      : Work(rank, op), result_(std::move(result)) {}

  bool isCompleted() override { return true; }
  bool isSuccess() const override { return true; }
  bool wait(std::chrono::milliseconds) override { return true; }
  void synchronize() override {}
  std::vector<at::Tensor> result() override { return result_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    auto future =
        c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    future->markCompleted(c10::IValue(result_));
    return future;
  }

 private:
  std::vector<at::Tensor> result_;
};

// A message of a rank that is played beside this one: it comes when it is waited for.
class MessageWork : public c10d::Work {
 public:
  MessageWork(Messages& messages, Messages::Key key, at::Tensor into)
      : Work(key.to, c10d::OpType::RECV),
        messages_(messages),
        key_(std::move(key)),
        into_(std::move(into)) {}

  bool isCompleted() override { return received_; }
  bool isSuccess() const override { return received_; }
  int sourceRank() const override { return key_.from; }
  bool wait(std::chrono::milliseconds) override {
    if (!received_) messages_.receive(key_, into_);
    received_ = true;
    return true;
  }

 private:
  Messages& messages_;
  const Messages::Key key_;
  const at::Tensor into_;
  bool received_ = false;
};

void copy_to_all(const std::vector<at::Tensor>& outputs, const at::Tensor& input) {
  const at::NoGradGuard no_grad;
  for (at::Tensor output : outputs) output.copy_(input);
}

}  // namespace

InstantBackend::WorkPtr InstantBackend::done(c10d::OpType op, Tensors result) const {
  return c10::make_intrusive<InstantWork>(getRank(), op, std::move(result));
}

void InstantBackend::combine(Tensors& tensors, const c10d::ReduceOp& how) const {
  const at::NoGradGuard no_grad;
  using Kind = c10d::ReduceOp::RedOpType;
  for (at::Tensor& tensor : tensors) {
    if (how.op_ == Kind::SUM) tensor.mul_(getSize());
    if (how.op_ == Kind::MIN && others_.dissent()) tensor.zero_();
    if (how.op_ == Kind::MAX && others_.dissent()) tensor.fill_(1);
  }
}

void InstantBackend::share(at::Tensor& tensor, bool is_root) {
  const Broadcasts::Key key{group_, broadcasts_++};
  if (others_.broadcasts == nullptr || tensor.is_meta() ||
      !at::isIntegralType(tensor.scalar_type(), true)) {
    return;
  }
  const at::NoGradGuard no_grad;
  if (is_root) {
    const at::Tensor bytes = tensor.contiguous();
    others_.broadcasts->keep(key,
                             {static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes()});
    return;
  }
  const std::string* sent = others_.broadcasts->find(key);
  if (sent == nullptr || sent->size() != tensor.nbytes()) return;
  const at::Tensor bytes = at::empty(tensor.sizes(), tensor.options());
  std::memcpy(bytes.mutable_data_ptr(), sent->data(), sent->size());
  tensor.copy_(bytes);
}

InstantBackend::WorkPtr InstantBackend::broadcast(Tensors& tensors,
                                                  const c10d::BroadcastOptions& opts) {
  for (at::Tensor& tensor : tensors) share(tensor, getRank() == opts.rootRank);
  return done(c10d::OpType::BROADCAST, tensors);
}

InstantBackend::WorkPtr InstantBackend::allreduce(Tensors& tensors,
                                                  const c10d::AllreduceOptions& opts) {
  combine(tensors, opts.reduceOp);
  return done(c10d::OpType::ALLREDUCE, tensors);
}

InstantBackend::WorkPtr InstantBackend::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  combine(tensors, opts.reduceOp);
  return done(c10d::OpType::ALLREDUCE_COALESCED, tensors);
}

InstantBackend::WorkPtr InstantBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  if (getRank() == opts.rootRank) combine(tensors, opts.reduceOp);
  return done(c10d::OpType::REDUCE, tensors);
}

InstantBackend::WorkPtr InstantBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                                  const c10d::AllgatherOptions&) {
  copy_to_all(outputs.front(), inputs.front());
  return done(c10d::OpType::ALLGATHER, outputs.front());
}

InstantBackend::WorkPtr InstantBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                        const c10d::AllgatherOptions&) {
  // Thousands of parts without values are not worth being made.
  if (!input.is_meta()) copy_to_all(output.view({-1}).chunk(getSize()), input.view({-1}));
  return done(c10d::OpType::_ALLGATHER_BASE, {output});
}

InstantBackend::WorkPtr InstantBackend::gather(TensorLists& outputs, Tensors& inputs,
                                               const c10d::GatherOptions& opts) {
  if (getRank() != opts.rootRank) return done(c10d::OpType::GATHER, inputs);
  copy_to_all(outputs.front(), inputs.front());
  return done(c10d::OpType::GATHER, outputs.front());
}

InstantBackend::WorkPtr InstantBackend::scatter(Tensors& outputs, TensorLists& inputs,
                                                const c10d::ScatterOptions& opts) {
  if (getRank() == opts.rootRank) {
    copy_to_all({outputs.front()}, inputs.front()[static_cast<std::size_t>(getRank())]);
  }
  return done(c10d::OpType::SCATTER, outputs);
}

InstantBackend::WorkPtr InstantBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                                       const c10d::ReduceScatterOptions& opts) {
  copy_to_all({outputs.front()}, inputs.front()[static_cast<std::size_t>(getRank())]);
  combine(outputs, opts.reduceOp);
  return done(c10d::OpType::REDUCE_SCATTER, outputs);
}

InstantBackend::WorkPtr InstantBackend::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) {
  if (!input.is_meta()) {
    const std::int64_t part = output.numel();
    copy_to_all({output.view({-1})}, input.view({-1}).narrow(0, getRank() * part, part));
  }
  Tensors outputs = {output};
  combine(outputs, opts.reduceOp);
  return done(c10d::OpType::_REDUCE_SCATTER_BASE, outputs);
}

InstantBackend::WorkPtr InstantBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                      std::vector<std::int64_t>&,
                                                      std::vector<std::int64_t>&,
                                                      const c10d::AllToAllOptions&) {
  const at::NoGradGuard no_grad;
  output.zero_();
  const std::int64_t common = std::min(output.numel(), input.numel());
  output.view({-1}).slice(0, 0, common).copy_(input.view({-1}).slice(0, 0, common));
  return done(c10d::OpType::ALLTOALL_BASE, {output});
}

InstantBackend::WorkPtr InstantBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                                 const c10d::AllToAllOptions&) {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].sizes() == inputs[i].sizes()) {
      outputs[i].copy_(inputs[i]);
    } else {
      outputs[i].zero_();
    }
  }
  return done(c10d::OpType::ALLTOALL, outputs);
}

InstantBackend::WorkPtr InstantBackend::barrier(const c10d::BarrierOptions&) {
  return done(c10d::OpType::BARRIER, {});
}

InstantBackend::WorkPtr InstantBackend::send(Tensors& tensors, int to, int tag) {
  if (others_.messages != nullptr)
    others_.messages->send({group_, getRank(), to, tag}, tensors.front());
  return done(c10d::OpType::SEND, tensors);
}

InstantBackend::WorkPtr InstantBackend::recv(Tensors& tensors, int from, int tag) {
  if (others_.messages != nullptr) {
    return c10::make_intrusive<MessageWork>(
        *others_.messages, Messages::Key{group_, from, getRank(), tag}, tensors.front());
  }
  const at::NoGradGuard no_grad;
  for (at::Tensor& tensor : tensors) tensor.zero_();
  return done(c10d::OpType::RECV, tensors);
}

bool Messages::is_there(const Key& key) const {
  const auto found = sent_.find(key);
  return found != sent_.end() && !found->second.empty();
}

void Messages::look() {
  stuck_ = stuck_ || (awaited_.size() == running_ &&
                      std::none_of(awaited_.begin(), awaited_.end(),
                                   [this](const Key& key) { return is_there(key); }));
  if (stuck_) changed_.notify_all();
}

void Messages::send(const Key& key, const at::Tensor& tensor) {
  at::Tensor copy = tensor.detach().clone();
  const std::lock_guard lock(mutex_);
  sent_[key].push_back(std::move(copy));
  changed_.notify_all();
}

void Messages::receive(const Key& key, const at::Tensor& tensor) {
  at::Tensor message;
  {
    std::unique_lock lock(mutex_);
    awaited_.push_back(key);
    look();
    changed_.wait(lock, [&] { return is_there(key) || stuck_; });
    awaited_.erase(std::find(awaited_.begin(), awaited_.end(), key));
    if (!is_there(key))
      throw std::runtime_error(
          "it waits for a message that nobody sends: the ranks that it exchanges messages with "
          "wait "
          "as well, or have ended");
    message = std::move(sent_[key].front());
    sent_[key].pop_front();
  }
  if (message.numel() != tensor.numel() || message.scalar_type() != tensor.scalar_type())
    throw std::runtime_error("a message of " + std::to_string(message.numel()) +
                             " elements comes where " + std::to_string(tensor.numel()) +
                             " are received, or one of another type");
  const at::NoGradGuard no_grad;
  tensor.view({-1}).copy_(message.view({-1}));
}

void Messages::end() {
  const std::lock_guard lock(mutex_);
  --running_;
  look();
}

}  // namespace lockstep
