#include "runtime/record/device_time.h"

namespace lockstep::runtime {

void DeviceTime::begin() {
  const std::lock_guard lock(mutex_);
  left_out_.clear();
  begin_ = mark_();
  running_ = true;
}

void DeviceTime::end() {
  const std::lock_guard lock(mutex_);
  end_ = mark_();
  running_ = false;
}

void DeviceTime::leave_out(const std::function<void()>& wait) {
  std::unique_lock lock(mutex_);
  if (!running_) {
    lock.unlock();
    return wait();
  }
  const Mark before = mark_();
  lock.unlock();
  wait();
  lock.lock();
  left_out_.emplace_back(before, mark_());
}

trace::Nanos DeviceTime::take() {
  const std::lock_guard lock(mutex_);
  if (!begin_ || !end_) return 0;
  trace::Nanos total = end_->since(*begin_);
  for (const auto& [before, after] : left_out_) total -= after->since(*before);
  return total;
}

}  // namespace lockstep::runtime
