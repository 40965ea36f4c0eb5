// QueueMark: a place in the queue of work that a thread gives to its device (on CUDA: an event on
// the thread's current stream). What was queued before it is done once it is reached.
#pragma once

#include <functional>
#include <memory>

#include "trace/ids.h"

namespace lockstep {

class QueueMark {
 public:
  virtual ~QueueMark() = default;
  // Whether the device is past it; from any thread, does not wait. Throws what the device throws
  // after a fault.
  virtual bool reached() const = 0;
  // How long the device took from the earlier mark to this one; blocks the host until it is
  // reached.
  virtual Nanos since(const QueueMark& earlier) const = 0;
};

// Marks the end of the calling thread's queue.
using MarkQueue = std::function<std::shared_ptr<const QueueMark>()>;

}  // namespace lockstep
