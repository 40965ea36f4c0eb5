// GpuOfRank: writes into a rank's ring file which GPU it uses, as soon as that is known.
//
// What its tensors or its process groups are on is a fact; the first CUDA device stays, since a
// rank that copies between devices still has one of its own. Until then, by the custom of NCCL's
// programs, it is the device with the process's number on its machine (LOCAL_RANK). A rank without
// either has none: nothing is made up for the CPU.
#pragma once

#include <atomic>
#include <mutex>

#include <c10/core/Device.h>

#include "base/launcher.h"
#include "trace/formats/ring/writer.h"

namespace lockstep::runtime {

class GpuOfRank {
 public:
  // `ring` must outlive this. `get`: CUDA_VISIBLE_DEVICES, and what the launcher set.
  GpuOfRank(trace::RingWriter& ring, Environment get);

  // Both may be called from any thread.

  // The rank's tensors, or a process group of it, are on that device. Others than CUDA's tell
  // nothing. Cheap once a device is known.
  void uses(c10::Device device);
  // It has a process group over NCCL.
  void uses_nccl();

 private:
  void write(int device);

  trace::RingWriter& ring_;
  const Environment get_;
  std::mutex mutex_;  // guards what is written, so that no guess comes after the fact
  std::atomic<bool> is_known_{false};
};

}  // namespace lockstep::runtime
