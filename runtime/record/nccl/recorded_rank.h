// A rank's ring file, and how many of its calls are on the device at this moment: of those that
// NCCL's profiler tells of, those that began and are not complete; of those that the preloaded
// library sees, those that NCCL was given and that are not complete.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "trace/formats/ring/ring_writer.h"

namespace lockstep {

struct RecordedRank {
  std::unique_ptr<RingWriter> ring;  // null: it could not be made
  std::atomic<std::int64_t> on_device{0};
};

}  // namespace lockstep
