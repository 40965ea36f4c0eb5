// Device: where a rank computes, and what carries the device's tensors to other ranks.
//
// The CPU's is in device.cc. A CPU that queues calls like a GPU, for tests, is in queued_calls.h.
// A CUDA device's is in cuda_device.cc, which is only compiled with LOCKSTEP_CUDA (preset
// full-cuda); without it, cuda_device_absent.cc says what to do. Nothing else in the trainer knows
// CUDA.
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

  virtual c10::Device torch_device() const = 0;

  // Returns the tensor on this device; unchanged if it is there already. A host tensor is copied
  // from pinned memory without waiting; later work on the current stream runs after the copy.
  // Undefined tensors stay undefined.
  virtual at::Tensor bring(const at::Tensor& tensor) const = 0;

  // Nothing if the allocator does not count.
  virtual std::optional<DeviceMemory> memory() const { return std::nullopt; }

  // The transport for this device's tensors; null: Gloo carries them. Collective over the `size`
  // ranks that call it with the same `store`. `timeout`: of each collective. Throws what c10d
  // throws.
  virtual c10::intrusive_ptr<c10d::Backend> make_transport(
      const c10::intrusive_ptr<c10d::Store>& /*store*/, int /*rank*/, int /*size*/,
      std::chrono::milliseconds /*timeout*/) const {
    return {};
  }
  // A function that says whether the device has begun a Work of its transport; empty: unknown.
  virtual std::function<bool(c10d::Work&)> begun() const { return {}; }

  // The transport for host tensors, given Gloo: Gloo itself, unless a test wraps it.
  virtual c10::intrusive_ptr<c10d::Backend> around_gloo(c10::intrusive_ptr<c10d::Backend> gloo,
                                                        const std::string& /*group*/) const {
    return gloo;
  }

  // Whether calls and computations are queued: they return before they are done. A wait for a call
  // then only makes later work run after it, and does not block the host.
  virtual bool queues() const { return false; }
  // `scope()` is called before the host blocks in a way that the program does not show (an
  // operation on a queued CPU); its result lives until the host continues. Reads of values in the
  // trainer itself use Recorder::HostWait.
  using HostBlocks = std::function<std::shared_ptr<void>()>;
  virtual void when_host_blocks(HostBlocks /*scope*/) {}
  // A mark at the end of the calling thread's queue; null if nothing is queued.
  virtual std::shared_ptr<const QueueMark> mark() const { return nullptr; }

  // Computes fingerprints of this device's tensors on the device, with `sketch` values per sketch;
  // null: they are computed on the host.
  virtual std::unique_ptr<DeviceFingerprints> make_fingerprints(std::uint32_t /*sketch*/) const {
    return nullptr;
  }
};

struct DeviceChoice {
  DeviceKind kind = DeviceKind::cpu;
  Scenario::Backend transport = Scenario::Backend::gloo;
  int local_rank = 0;       // among the ranks of this machine; the number of its GPU
  bool share_gpus = false;  // with NCCL: ranks may share a GPU (with Gloo they always may)
  QueuedCalls queued = QueuedCalls::no;  // for the CPU
};

// Opens the device and transport of a rank. Errors: NCCL with the CPU, or without a GPU for each
// rank unless they may share; CUDA in a build without it, or on a machine without a GPU; queued
// calls on another device than the CPU.
Result<std::unique_ptr<Device>> open_device(const DeviceChoice& choice);

// Implemented differently in builds with and without CUDA.
Result<std::unique_ptr<Device>> open_cuda_device(const DeviceChoice& choice);

}  // namespace lockstep::runtime
