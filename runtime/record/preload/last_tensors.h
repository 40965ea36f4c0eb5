// LastTensors: keeps the tensors of the last calls, so that a transport's thread never lets go of
// one that Python still has an object for.
//
// Gloo's thread releases the tensors of a call after it has woken whoever waits for it. If that is
// the end of the program, Python is ending meanwhile; and for the last reference beside Python's
// the thread has to take Python's lock, at which Python then ends the thread, in a way that C++
// answers with std::terminate(): a job that had done all its work dies of SIGABRT. This happens
// without a recorder, too, and more often with one, whose callback runs before the release.
#pragma once

#include <array>
#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace lockstep::runtime {

class LastTensors {
 public:
  // Keeps these until a few more calls were made. From any thread that Python may see.
  void keep(std::vector<at::Tensor> in, std::vector<at::Tensor> out) {
    Tensors released(std::move(in), std::move(out));
    const std::lock_guard lock(mutex_);
    std::swap(kept_[next_++ % kCalls], released);
    // `released` outlives the lock: to release it may take Python's.
  }

 private:
  // A thread that was stopped between its last two steps misses the few calls that others make
  // until the program ends, not many.
  static constexpr std::size_t kCalls = 4;
  using Tensors = std::pair<std::vector<at::Tensor>, std::vector<at::Tensor>>;

  std::mutex mutex_;
  std::array<Tensors, kCalls> kept_;
  std::size_t next_ = 0;
};

}  // namespace lockstep::runtime
