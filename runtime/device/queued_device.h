// The CPU, with the calls of all its groups queued as on a GPU (call_queue.h). For tests.
#pragma once

#include <memory>

#include "runtime/device/device.h"

namespace lockstep {

// For the calling thread, which trains. `order`: not QueuedCalls::no.
std::unique_ptr<Device> queued_device(QueuedCalls order);

}  // namespace lockstep
