#include "runtime/replay/torch/held_calls.h"

#include <utility>

#include "base/check.h"

namespace lockstep {

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

}  // namespace lockstep
