#include "runtime/derive/torch/instant_backend.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace lockstep::runtime {
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

// A message from a rank that runs in another thread. It is received when it is waited for.
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

void copy_to_all(at::TensorList outputs, const at::Tensor& input) {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& output : outputs) output.copy_(input);
}

// This rank receives what it sends, as far as the sizes allow.
void exchange_with_itself(const at::Tensor& output, const at::Tensor& input) {
  const at::NoGradGuard no_grad;
  output.zero_();
  const std::int64_t common = std::min(output.numel(), input.numel());
  output.view({-1}).slice(0, 0, common).copy_(input.view({-1}).slice(0, 0, common));
}

std::string bytes_of(const at::Tensor& tensor) {
  const at::Tensor bytes = tensor.contiguous();
  return {static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes()};
}

// Without any effect where the sizes differ.
void copy_bytes(const std::string& from, const at::Tensor& to) {
  if (from.size() != to.nbytes()) return;
  const at::Tensor bytes = at::empty(to.sizes(), to.options());
  std::memcpy(bytes.mutable_data_ptr(), from.data(), from.size());
  const at::NoGradGuard no_grad;
  to.copy_(bytes);
}

}  // namespace

bool InstantBackend::has_answers(const at::Tensor& tensor) const {
  return others_.answers != nullptr && others_.answers->world() == getSize() && !tensor.is_meta() &&
         at::isIntegralType(tensor.scalar_type(), true);
}

void InstantBackend::answer_gather(const at::Tensor& own,
                                   const std::function<void(int, const std::string&)>& put) {
  if (!has_answers(own)) return;
  const Answers::Key key{"gather in " + group_, gathers_++};
  others_.answers->give(key, bytes_of(own));
  for (int rank = 0; rank < getSize(); ++rank) {
    const std::string* const given = rank == getRank() ? nullptr : others_.answers->of(rank, key);
    if (given != nullptr && given->size() == own.nbytes()) put(rank, *given);
  }
}

void InstantBackend::gather_into(const at::Tensor& out, const at::Tensor& own) {
  // On the meta device there is nothing to copy.
  if (own.is_meta()) return;
  const at::NoGradGuard no_grad;
  // Not part by part: there may be thousands.
  out.view({getSize(), -1}).copy_(own.reshape({1, -1}));
  if (!out.is_contiguous()) return;
  char* const parts = static_cast<char*>(out.mutable_data_ptr());
  answer_gather(own, [&](int rank, const std::string& given) {
    std::memcpy(parts + static_cast<std::size_t>(rank) * given.size(), given.data(), given.size());
  });
}

void InstantBackend::vote(const at::Tensor& tensor) {
  if (!has_answers(tensor)) return;
  const Answers::Key key{"vote in " + group_, votes_++};
  others_.answers->give(key, bytes_of(tensor));
  for (const std::string* const given : others_.answers->all(key)) {
    const at::Tensor other = tensor.clone();
    copy_bytes(*given, other);
    const at::NoGradGuard no_grad;
    tensor.copy_(at::minimum(tensor, other));
  }
}

void InstantBackend::follow_root(const at::Tensor& tensor) {
  const Broadcasts::Key key{group_ + " maxima", maxima_++};
  if (others_.broadcasts == nullptr || tensor.is_meta() || tensor.numel() != 1 ||
      !at::isFloatingType(tensor.scalar_type()))
    return;
  if (getRank() == 0) {
    others_.broadcasts->keep(key, tensor.item<double>() > 0 ? "1" : "0");
  } else if (const std::string* const known = others_.broadcasts->find(key)) {
    if (*known == "1") tensor.fill_(1);
  }
}

void InstantBackend::combine(const BackendCall& call) {
  const at::NoGradGuard no_grad;
  using Kind = c10d::ReduceOp::RedOpType;
  for (const at::Tensor& tensor : call.out) {
    if (call.reduce->op_ == Kind::SUM) tensor.mul_(getSize());
    if (call.reduce->op_ == Kind::MIN) {
      vote(tensor);
      if (others_.dissent()) tensor.zero_();
    }
    if (call.reduce->op_ != Kind::MAX) continue;
    if (others_.overflow) {
      tensor.fill_(others_.overflow() ? 1 : 0);
      continue;
    }
    follow_root(tensor);
    if (others_.dissent()) tensor.fill_(1);
  }
}

void InstantBackend::share(const at::Tensor& tensor, bool is_root) {
  const Broadcasts::Key key{group_, broadcasts_++};
  if (others_.broadcasts == nullptr || tensor.is_meta() ||
      !at::isIntegralType(tensor.scalar_type(), true)) {
    return;
  }
  if (is_root) {
    others_.broadcasts->keep(key, bytes_of(tensor));
    return;
  }
  const std::string* sent = others_.broadcasts->find(key);
  if (sent != nullptr) copy_bytes(*sent, tensor);
}

InstantBackend::WorkPtr InstantBackend::make(const BackendCall& call, const Forward&) {
  const auto own = static_cast<std::size_t>(getRank());
  const bool is_root = getRank() == call.root;
  at::TensorList result = call.out;
  TORCH_CHECK(
      call.type != c10d::OpType::ALLGATHER_COALESCED && call.type != c10d::OpType::COALESCED &&
          call.type != c10d::OpType::REDUCE_SCATTER_TENSOR_COALESCED,
      "a rank that is derived alone makes no call of several ", trace::op_name(call.op), "s");
  switch (call.op) {
    case trace::Op::broadcast:
      for (const at::Tensor& tensor : call.out) share(tensor, is_root);
      break;
    case trace::Op::all_reduce:
      combine(call);
      break;
    case trace::Op::reduce:
      if (is_root) combine(call);
      break;
    case trace::Op::all_gather:
      copy_to_all(call.out, call.in.front());
      answer_gather(call.in.front(), [&](int rank, const std::string& given) {
        copy_bytes(given, call.out[static_cast<std::size_t>(rank)]);
      });
      break;
    case trace::Op::all_gather_into_tensor:
      gather_into(call.out.front(), call.in.front());
      break;
    case trace::Op::gather:
      if (is_root) copy_to_all(call.out, call.in.front());
      if (!is_root) result = call.in;
      break;
    case trace::Op::scatter:
      if (is_root) copy_to_all(call.out.front(), call.in[own]);
      break;
    case trace::Op::reduce_scatter:
      copy_to_all(call.out.front(), call.in[own]);
      combine(call);
      break;
    case trace::Op::reduce_scatter_tensor: {
      const at::Tensor& output = call.out.front();
      if (!output.is_meta()) {
        const std::int64_t part = output.numel();
        copy_to_all(output.view({-1}),
                    call.in.front().view({-1}).narrow(0, getRank() * part, part));
      }
      combine(call);
      break;
    }
    case trace::Op::all_to_all_single:
      exchange_with_itself(call.out.front(), call.in.front());
      break;
    case trace::Op::all_to_all: {
      const at::NoGradGuard no_grad;
      for (std::size_t i = 0; i < call.out.size(); ++i) {
        if (call.out[i].sizes() == call.in[i].sizes()) {
          call.out[i].copy_(call.in[i]);
        } else {
          call.out[i].zero_();
        }
      }
      break;
    }
    case trace::Op::send:
      if (others_.messages != nullptr)
        others_.messages->send({group_, getRank(), call.peer, call.peer_tag}, call.in.front());
      result = call.in;
      break;
    case trace::Op::recv:
      return receive(call);
    case trace::Op::barrier:
      break;
    default:
      TORCH_CHECK(false, "a rank that is derived alone cannot make a ", trace::op_name(call.op));
  }
  return c10::make_intrusive<InstantWork>(getRank(), call.type, result.vec());
}

InstantBackend::WorkPtr InstantBackend::receive(const BackendCall& call) {
  if (others_.messages != nullptr) {
    return c10::make_intrusive<MessageWork>(
        *others_.messages, Messages::Key{group_, call.peer, getRank(), call.peer_tag},
        call.out.front());
  }
  const at::NoGradGuard no_grad;
  for (const at::Tensor& tensor : call.out) tensor.zero_();
  return c10::make_intrusive<InstantWork>(getRank(), call.type, call.out.vec());
}

bool Messages::has_arrived(const Key& key) const {
  const auto found = sent_.find(key);
  return found != sent_.end() && !found->second.empty();
}

void Messages::end_if_stuck() {
  // All ranks that still run wait, and none of their messages has been sent.
  stuck_ = stuck_ || (awaited_.size() == running_ &&
                      std::none_of(awaited_.begin(), awaited_.end(),
                                   [this](const Key& key) { return has_arrived(key); }));
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
    end_if_stuck();
    changed_.wait(lock, [&] { return has_arrived(key) || stuck_; });
    awaited_.erase(std::find(awaited_.begin(), awaited_.end(), key));
    if (!has_arrived(key))
      throw std::runtime_error(
          "it waits for a message that nobody sends: the ranks with which it exchanges messages "
          "wait as well, or have ended");
    message = std::move(sent_[key].front());
    sent_[key].pop_front();
  }
  if (message.scalar_type() != tensor.scalar_type())
    throw std::runtime_error("a message has another type than its receive");
  if (message.numel() != tensor.numel())
    throw std::runtime_error(c10::str("a message of ", message.numel(), " elements arrives where ",
                                      tensor.numel(), " are received"));
  const at::NoGradGuard no_grad;
  tensor.view({-1}).copy_(message.view({-1}));
}

void Messages::end() {
  const std::lock_guard lock(mutex_);
  --running_;
  end_if_stuck();
}

}  // namespace lockstep::runtime
