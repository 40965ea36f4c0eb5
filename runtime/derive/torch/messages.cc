#include "runtime/derive/torch/messages.h"

#include <algorithm>
#include <stdexcept>

#include <ATen/ATen.h>

namespace lockstep {

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
