#include <cstdio>
#include <cstdlib>

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "base/text.h"
#include "runtime/device/device.h"
#include "runtime/device/device_fingerprints_cuda.h"

namespace lockstep {
namespace {

using Transport = Scenario::Backend;
using Nccl = c10d::ProcessGroupNCCL;

bool has_begun(c10d::Work& work) {
  auto* nccl = dynamic_cast<Nccl::WorkNCCL*>(&work);
  return nccl != nullptr && nccl->isStarted();
}

class EventMark final : public QueueMark {
 public:
  EventMark() { event_.record(); }
  bool reached() const override { return event_.query(); }
  Nanos since(const QueueMark& earlier) const override {
    event_.synchronize();
    constexpr double kNanosPerMs = 1e6;
    const auto& from = dynamic_cast<const EventMark&>(earlier);
    return static_cast<Nanos>(from.event_.elapsed_time(event_) * kNanosPerMs);
  }

 private:
  at::cuda::CUDAEvent event_{cudaEventDefault};  // with the time
};

class Cuda final : public Device {
 public:
  Cuda(Transport transport, c10::DeviceIndex index) : transport_(transport), index_(index) {
    c10::cuda::set_device(index_);  // of this thread; autograd's own follow the tensors
  }

  c10::Device place() const override { return {at::kCUDA, index_}; }

  at::Tensor bring(const at::Tensor& tensor) const override {
    if (!tensor.defined() || tensor.device() == place()) return tensor;
    if (!tensor.is_cpu()) return tensor.to(place());
    // The caching host allocator keeps the pinned copy until the stream is past it.
    return tensor.pin_memory().to(place(), /*non_blocking=*/true);
  }

  std::optional<DeviceMemory> memory() const override {
    using c10::CachingAllocator::StatType;
    const auto all = static_cast<std::size_t>(StatType::AGGREGATE);
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(index_);
    return DeviceMemory{stats.allocated_bytes[all].current, stats.allocated_bytes[all].peak,
                        stats.reserved_bytes[all].peak};
  }

  c10::intrusive_ptr<c10d::Backend> make_transport(
      const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
      std::chrono::milliseconds timeout) const override {
    if (transport_ == Transport::gloo) return {};
    auto options = Nccl::Options::create();
    options->timeout = timeout;
    auto nccl = c10::make_intrusive<Nccl>(store, rank, size, options);
    nccl->setBoundDeviceId(place());
    return nccl;
  }

  std::unique_ptr<DeviceFingerprints> make_fingerprints(std::uint32_t sketch) const override {
    auto made = make_cuda_fingerprints(index_, sketch);
    if (made) return std::move(*made);
    std::fprintf(stderr, "warning: values are copied to the host for their fingerprints: %s\n",
                 made.error().str().c_str());
    return nullptr;
  }

  std::function<bool(c10d::Work&)> begun() const override { return has_begun; }

  bool queues() const override { return transport_ == Transport::nccl; }
  std::shared_ptr<const QueueMark> mark() const override { return std::make_shared<EventMark>(); }

 private:
  Transport transport_;
  c10::DeviceIndex index_;
};

}  // namespace

Result<std::unique_ptr<Device>> open_cuda_device(const DeviceChoice& choice) {
  const int devices = c10::cuda::device_count();
  if (devices == 0) {
    c10::cuda::device_count_ensure_non_zero();  // throws what keeps CUDA from seeing one
    return Error{"there is no CUDA device on this machine, or its driver is not there",
                 {},
                 "nvidia-smi shows what there is; without one: backend: gloo and --device cpu"};
  }
  if (choice.transport == Transport::nccl && !choice.share_gpus && choice.local_rank >= devices) {
    return Error{
        "rank " + std::to_string(choice.local_rank) +
            " of this machine has no GPU of its own: " + "there " +
            (devices == 1 ? "is " : "are ") + plural(static_cast<std::uint64_t>(devices), "GPU") +
            ", and NCCL takes one rank on each",
        {},
        "start fewer ranks on this machine; or, to test, let ranks share GPUs: lockstep run "
        "--share-gpus, or backend: gloo and --device cuda"};
  }
  // Read when the process group is made: without timing, no work tells when it begins.
  setenv("TORCH_NCCL_ENABLE_TIMING", "1", /*overwrite=*/0);
  return std::unique_ptr<Device>(std::make_unique<Cuda>(
      choice.transport, static_cast<c10::DeviceIndex>(choice.local_rank % devices)));
}

}  // namespace lockstep
