// DeviceTime: how long a device computes for this rank, apart from the time in which the rank's
// queue stands still behind calls to other ranks. The host's clock sees neither.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "trace/ids.h"

// QueueMark: a place in the queue of work that a thread gives to its device (on CUDA: an event on
// the thread's current stream). What was queued before it is done once it is reached.

namespace lockstep::runtime {

class QueueMark {
 public:
  virtual ~QueueMark() = default;
  // Whether the device is past it; from any thread, does not wait. Throws what the device throws
  // after a fault.
  virtual bool reached() const = 0;
  // How long the device took from the earlier mark to this one; blocks the host until it is
  // reached.
  virtual trace::Nanos since(const QueueMark& earlier) const = 0;
};

// Marks the end of the calling thread's queue.
using MarkQueue = std::function<std::shared_ptr<const QueueMark>()>;

class DeviceTime {
 public:
  explicit DeviceTime(MarkQueue mark) : mark_(std::move(mark)) {}

  // What is queued between the two counts. Outside of them nothing is marked.
  void begin();
  void end();
  // Does what the queue may stand still behind, on the thread whose queue it is: that does not
  // count.
  void leave_out(const std::function<void()>& wait);
  // Of the last begin and end, 0 before them; blocks the host until the device is past the end.
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
