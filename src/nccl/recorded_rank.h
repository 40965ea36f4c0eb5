// A rank's ring file, and how many of its calls are on the device at this moment.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "trace/ring_writer.h"

namespace lockstep {

struct RecordedRank {
  std::unique_ptr<RingWriter> ring;        // null: it could not be made
  std::atomic<std::int64_t> on_device{0};  // began and not complete
};

}  // namespace lockstep
