// Device: where a rank computes, and what carries the tensors that lie there to the other ranks.
//
// The CPU's is in device.cc. One that queues calls as a GPU does, on the CPU and for tests, is in
// queued/. A CUDA device's is in cuda_device.cc, which is compiled with
// LOCKSTEP_CUDA only (preset full-cuda); without it cuda_device_absent.cc says what to do. Nothing
// else of the trainer knows CUDA.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "base/result.h"
#include "runtime/device/memory_account.h"
#include "runtime/device/tensor_fingerprint.h"
#include "runtime/job/launch_settings.h"
#include "runtime/job/scenario.h"
#include "runtime/record/device_time.h"

namespace lockstep::runtime {

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
  // Of the works of its transport: whether the device has begun one. Empty: it cannot be told.
  virtual std::function<bool(c10d::Work&)> begun() const { return {}; }

  // What carries the host's tensors, given Gloo: itself, unless a test asks for another.
  virtual c10::intrusive_ptr<c10d::Backend> around_gloo(c10::intrusive_ptr<c10d::Backend> gloo,
                                                        const std::string& /*group*/) const {
    return gloo;
  }

  // Whether calls and computations are queued: they return before they are done, and a wait for a
  // call makes what is queued later come behind it, but does not block the host.
  virtual bool queues() const { return false; }
  // From now on `scope()` is asked for before the host blocks where the program does not show it
  // (an operation of a queued CPU), and what it gives lives as long. Reads of values that the
  // trainer makes itself stand in a Recorder::HostWait of their own.
  using HostBlocks = std::function<std::shared_ptr<void>()>;
  virtual void when_host_blocks(HostBlocks /*scope*/) {}
  // The end of the calling thread's queue; null where nothing is queued.
  virtual std::shared_ptr<const QueueMark> mark() const { return nullptr; }

  // Takes fingerprints of this device's tensors on it, with so many values of a sketch; null: they
  // are taken on the host.
  virtual std::unique_ptr<DeviceFingerprints> make_fingerprints(std::uint32_t /*sketch*/) const {
    return nullptr;
  }
};

struct DeviceChoice {
  DeviceKind kind = DeviceKind::cpu;
  Scenario::Backend transport = Scenario::Backend::gloo;
  int local_rank = 0;  // among the ranks of this machine: of several GPUs, the one of that number
  bool share_gpus = false;  // with NCCL: ranks may share a GPU, as with Gloo they always may
  QueuedCalls queued = QueuedCalls::no;  // of the CPU
};

// Device and transport of a rank.
// Errors: NCCL with the CPU, or without a GPU for each rank where they are not to share; CUDA in a
// build without it, or on a machine without a GPU; queued calls beside another device than the CPU.
Result<std::unique_ptr<Device>> open_device(const DeviceChoice& choice);

// The part that a build with CUDA and one without implement differently.
Result<std::unique_ptr<Device>> open_cuda_device(const DeviceChoice& choice);

}  // namespace lockstep::runtime
