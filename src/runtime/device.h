// Device: where a rank computes, and what carries the tensors that lie there to the other ranks.
//
// The CPU's is in device.cc. A CUDA device's is in device_cuda.cc, which is compiled with
// LOCKSTEP_CUDA only (preset full-cuda); without it device_cuda_absent.cc says what to do. Nothing
// else of the trainer knows CUDA.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "base/result.h"
#include "job/scenario.h"
#include "runtime/device_memory.h"
#include "runtime/watch/device_fingerprints.h"

namespace lockstep {

enum class DeviceKind { cpu, cuda };

class Device {
 public:
  virtual ~Device() = default;

  virtual c10::Device place() const = 0;

  // The tensor on this device: itself where it is there. From the host it is copied out of pinned
  // memory without waiting; what the current stream does next comes behind the copy. Undefined
  // stays undefined.
  virtual at::Tensor bring(const at::Tensor& tensor) const = 0;

  // Nothing where the allocator does not count.
  virtual std::optional<DeviceMemory> memory() const { return std::nullopt; }

  // What carries this device's tensors where Gloo does not; null: Gloo does. Collective over the
  // `size` ranks that make it with the same `store`; `timeout`: of each collective. Throws what
  // c10d throws.
  virtual c10::intrusive_ptr<c10d::Backend> make_transport(
      const c10::intrusive_ptr<c10d::Store>& /*store*/, int /*rank*/, int /*size*/,
      std::chrono::milliseconds /*timeout*/) const {
    return {};
  }
  // Of the works of make_transport's: whether the device has begun one. Empty: it cannot be told.
  virtual std::function<bool(c10d::Work&)> begun() const { return {}; }

  // Takes fingerprints of this device's tensors on it, with so many values of a sketch; null: they
  // are taken on the host.
  virtual std::unique_ptr<DeviceFingerprints> make_fingerprints(std::uint32_t /*sketch*/) const {
    return nullptr;
  }
};

// Device and transport of a rank. `local_rank`: among the ranks of this machine; of several CUDA
// devices it takes the one of that number, and with Gloo, ranks may share one.
// Errors: NCCL without a CUDA device for each rank, or with the CPU; CUDA in a build without it, or
// on a machine without a device.
Result<std::unique_ptr<Device>> open_device(DeviceKind kind, Scenario::Backend transport,
                                            int local_rank);

// The part that a build with CUDA and one without implement differently.
Result<std::unique_ptr<Device>> open_cuda_device(Scenario::Backend transport, int local_rank);

}  // namespace lockstep
