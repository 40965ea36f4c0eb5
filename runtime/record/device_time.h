// DeviceTime: how long a device computes for this rank, without the time in which the rank's queue
// waits for calls to other ranks. The host's clock sees neither.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "trace/ids.h"

namespace lockstep::runtime {

// QueueMark: a position in the queue of work that a thread gives to its device (on CUDA: an event
// on the thread's current stream). When it is reached, everything queued before it is done.
class QueueMark {
 public:
  virtual ~QueueMark() = default;
  // Whether the device has reached it. From any thread; does not wait. Throws the device's error
  // after a fault.
  virtual bool reached() const = 0;
  // Device time from the earlier mark to this one. Blocks the host until this one is reached.
  virtual trace::Nanos since(const QueueMark& earlier) const = 0;
};

// Marks the end of the calling thread's queue.
using MarkQueue = std::function<std::shared_ptr<const QueueMark>()>;

class DeviceTime {
 public:
  explicit DeviceTime(MarkQueue mark) : mark_(std::move(mark)) {}

  // Work queued between the two counts. Outside of them nothing is marked.
  void begin();
  void end();
  // Calls `wait`, after which the queue may wait for other ranks; that time does not count. On the
  // thread that owns the queue.
  void leave_out(const std::function<void()>& wait);
  // The time between the last begin() and end(), 0 before the first. Blocks the host until the
  // device has reached the end.
  trace::Nanos take();

 private:
  using Mark = std::shared_ptr<const QueueMark>;

  MarkQueue mark_;
  std::mutex mutex_;  // guards what follows: backward may have threads of its own
  bool running_ = false;
  Mark begin_, end_;
  std::vector<std::pair<Mark, Mark>> left_out_;
};

}  // namespace lockstep::runtime
