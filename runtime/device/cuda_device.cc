// A CUDA device (device.h). Only compiled with LOCKSTEP_CUDA.
#include <cuda.h>
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "base/text.h"
#include "runtime/device/device.h"
#include "runtime/device/fingerprint_kernel.h"

namespace lockstep::runtime {
namespace {

using fingerprinting::KernelSums;

constexpr std::int64_t kBatch = 4096;  // tensors: 0.4 MB of results, and one copy of them

// The functions of CUDA's driver for which LibTorch has no wrapper.
struct Driver {
  decltype(&::cuGetErrorString) error_text = nullptr;
  decltype(&::cuDeviceGet) device = nullptr;
  decltype(&::cuDeviceGetAttribute) attribute = nullptr;
  decltype(&::cuCtxGetCurrent) current_context = nullptr;
  decltype(&::cuCtxSetCurrent) set_context = nullptr;
  decltype(&::cuModuleLoadData) load = nullptr;
  decltype(&::cuModuleGetFunction) function = nullptr;
  decltype(&::cuLaunchKernel) launch = nullptr;

  // From a library that stays loaded: LibTorch uses it, too.
  static Result<Driver> open() {
    void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    Driver out;
    const auto find = [&](const char* name, auto& call) {
      call = reinterpret_cast<std::remove_reference_t<decltype(call)>>(::dlsym(library, name));
      return call != nullptr;
    };
    if (library != nullptr && find("cuGetErrorString", out.error_text) &&
        find("cuDeviceGet", out.device) && find("cuDeviceGetAttribute", out.attribute) &&
        find("cuCtxGetCurrent", out.current_context) && find("cuCtxSetCurrent", out.set_context) &&
        find("cuModuleLoadData", out.load) && find("cuModuleGetFunction", out.function) &&
        find("cuLaunchKernel", out.launch)) {
      return out;
    }
    return Error{"CUDA's driver (libcuda.so.1) is not there", {}, "nvidia-smi shows what there is"};
  }

  void check(CUresult status, const char* doing) const {
    if (status == CUDA_SUCCESS) return;
    const char* text = nullptr;
    error_text(status, &text);
    TORCH_CHECK(false, doing, ": ", text != nullptr ? text : "an error of CUDA's driver");
  }
};

// The kernel for a type, and the tensor as the kernel reads it: integers of other sizes than its
// own, and what else there is, as doubles.
std::pair<const char*, at::Tensor> kernel_for(const at::Tensor& tensor) {
  const at::Tensor values = tensor.contiguous();
  switch (values.scalar_type()) {
    case at::kFloat:
      return {"fingerprint_float32", values};
    case at::kDouble:
      return {"fingerprint_float64", values};
    case at::kHalf:
      return {"fingerprint_float16", values};
    case at::kBFloat16:
      return {"fingerprint_bfloat16", values};
    case at::kLong:
      return {"fingerprint_int64", values};
    case at::kInt:
      return {"fingerprint_int32", values};
    case at::kShort:
      return {"fingerprint_int16", values};
    case at::kChar:
      return {"fingerprint_int8", values};
    case at::kByte:
    case at::kBool:
      return {"fingerprint_uint8", values};
    default:
      return {"fingerprint_float64", values.to(at::kDouble)};
  }
}

class CudaFingerprints final : public DeviceFingerprints {
 public:
  CudaFingerprints(Driver driver, const std::string& code, int index, unsigned multiprocessors,
                   std::uint32_t sketch)
      : driver_(driver),
        torch_device_(at::kCUDA, static_cast<c10::DeviceIndex>(index)),
        multiprocessors_(multiprocessors),
        sketch_(sketch) {
    driver_.check(driver_.current_context(&context_), "asking for CUDA's context");
    driver_.check(driver_.load(&module_, code.data()), "loading the kernel for fingerprints");
  }

  void take(const at::Tensor& tensor, std::uint64_t first) override {
    const at::NoGradGuard no_grad;
    const c10::DeviceGuard guard(torch_device_);
    const auto [kernel, values] = kernel_for(tensor);
    const auto elements = static_cast<std::uint64_t>(values.numel());
    const unsigned blocks = fingerprint_blocks(elements, multiprocessors_);
    fingerprinting::KernelSums* whole = next_result();
    // Allocated for this stream: after it is freed, later work of the stream gets its memory.
    const at::Tensor parts = bytes(blocks > 1 ? blocks : 0);
    fingerprinting::KernelSums* out = blocks > 1 ? sums(parts) : whole;
    launch(kernel, blocks, values.const_data_ptr(), elements, first, out);
    if (blocks > 1) {
      const void* joined = out;
      unsigned long long count = blocks;
      void* arguments[] = {&joined, &count, &whole};
      launch("fingerprint_join", 1, arguments);
    }
    elements_.push_back(elements);
  }

  std::vector<trace::Fingerprint> collect() override {
    const at::NoGradGuard no_grad;
    const c10::DeviceGuard guard(torch_device_);
    c10::cuda::device_synchronize();  // of every stream that was asked
    std::vector<trace::Fingerprint> out;
    out.reserve(elements_.size());
    const std::vector<std::uint64_t> elements = std::exchange(elements_, {});
    for (const at::Tensor& batch : results_) {
      const std::size_t n =
          std::min(elements.size() - out.size(), static_cast<std::size_t>(kBatch));
      const auto size = static_cast<std::int64_t>(n * sizeof(fingerprinting::KernelSums));
      const at::Tensor here = batch.narrow(0, 0, size).cpu();
      const auto* sums = static_cast<const fingerprinting::KernelSums*>(here.const_data_ptr());
      for (std::size_t i = 0; i < n; ++i) {
        out.push_back(fingerprint_of(sums[i], elements[out.size()], sketch_));
      }
    }
    return out;
  }

 private:
  at::Tensor bytes(std::int64_t count) const {
    return at::empty({count * static_cast<std::int64_t>(sizeof(fingerprinting::KernelSums))},
                     at::TensorOptions().dtype(at::kByte).device(torch_device_));
  }
  static fingerprinting::KernelSums* sums(const at::Tensor& bytes) {
    return static_cast<fingerprinting::KernelSums*>(bytes.mutable_data_ptr());
  }

  // Where the next tensor's result goes; kept from step to step.
  fingerprinting::KernelSums* next_result() {
    const std::size_t batch = elements_.size() / static_cast<std::size_t>(kBatch);
    if (batch == results_.size()) results_.push_back(bytes(kBatch));
    return sums(results_[batch]) + elements_.size() % static_cast<std::size_t>(kBatch);
  }

  void launch(const char* kernel, unsigned blocks, const void* values, unsigned long long elements,
              unsigned long long first, fingerprinting::KernelSums* out) {
    void* arguments[] = {&values, &elements, &first, &out};
    launch(kernel, blocks, arguments);
  }
  void launch(const char* kernel, unsigned blocks, void** arguments) {
    // A thread of autograd's may not have asked CUDA for anything yet.
    driver_.check(driver_.set_context(context_), "entering CUDA's context");
    CUfunction function = nullptr;
    driver_.check(driver_.function(&function, module_, kernel), kernel);
    const auto stream = c10::cuda::getCurrentCUDAStream(torch_device_.index()).stream();
    driver_.check(driver_.launch(function, blocks, 1, 1, kFingerprintThreads, 1, 1, 0, stream,
                                 arguments, nullptr),
                  kernel);
  }

  const Driver driver_;
  const c10::Device torch_device_;
  const unsigned multiprocessors_;
  const std::uint32_t sketch_;
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;            // of the context, until the process ends
  std::vector<at::Tensor> results_;      // of kBatch tensors each
  std::vector<std::uint64_t> elements_;  // of each tensor that was taken
};

// Fingerprints of the tensors on CUDA device `index`, taken by a kernel of our own
// (fingerprint_kernel.cu). Compiles it for the device: a few seconds. `sketch`: values of a sketch,
// at most kSketchValues. Errors: no driver, no NVRTC, or an NVRTC that does not know the device.
// Throws what LibTorch throws.
Result<std::unique_ptr<DeviceFingerprints>> make_cuda_fingerprints(int index,
                                                                   std::uint32_t sketch) {
  const c10::Device torch_device(at::kCUDA, static_cast<c10::DeviceIndex>(index));
  const c10::DeviceGuard guard(torch_device);
  // Makes the device's context, where nothing did before.
  at::empty({1}, at::TensorOptions().device(torch_device));
  const Result<Driver> driver = Driver::open();
  if (!driver) return driver.error();
  CUdevice device = 0;
  driver->check(driver->device(&device, index), "asking for the CUDA device");
  const auto attribute = [&](CUdevice_attribute which) {
    int value = 0;
    driver->check(driver->attribute(&value, which, device), "asking for what the CUDA device is");
    return value;
  };
  const std::string architecture =
      c10::str("sm_", attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
               attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
  // LibTorch's CUDA half has loaded it.
  const Result<Nvrtc> nvrtc = Nvrtc::open();
  if (!nvrtc) return nvrtc.error();
  const Result<std::string> code = nvrtc->compile(fingerprint_kernel(), architecture);
  if (!code) return code.error();
  const int multiprocessors = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  return std::unique_ptr<DeviceFingerprints>(std::make_unique<CudaFingerprints>(
      *driver, *code, index, static_cast<unsigned>(multiprocessors), sketch));
}

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
  trace::Nanos since(const QueueMark& earlier) const override {
    event_.synchronize();
    constexpr double kNanosPerMs = 1e6;
    const auto& from = dynamic_cast<const EventMark&>(earlier);
    return static_cast<trace::Nanos>(from.event_.elapsed_time(event_) * kNanosPerMs);
  }

 private:
  at::cuda::CUDAEvent event_{cudaEventDefault};  // with the time
};

class Cuda final : public Device {
 public:
  Cuda(Transport transport, c10::DeviceIndex index) : transport_(transport), index_(index) {
    c10::cuda::set_device(index_);  // of this thread; autograd's own follow the tensors
  }

  c10::Device torch_device() const override { return {at::kCUDA, index_}; }

  at::Tensor bring(const at::Tensor& tensor) const override {
    if (!tensor.defined() || tensor.device() == torch_device()) return tensor;
    if (!tensor.is_cpu()) return tensor.to(torch_device());
    // The caching host allocator keeps the pinned copy until the stream is past it.
    return tensor.pin_memory().to(torch_device(), /*non_blocking=*/true);
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
    nccl->setBoundDeviceId(torch_device());
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
        c10::str("rank ", choice.local_rank, " of this machine has no GPU of its own: there ",
                 devices == 1 ? "is " : "are ", plural(devices, "GPU"),
                 ", and NCCL takes one rank on each"),
        {},
        "start fewer ranks on this machine; or, to test, let ranks share GPUs: lockstep run "
        "--share-gpus, or backend: gloo and --device cuda"};
  }
  // Read when the process group is made: without timing, a Work does not record when it begins.
  setenv("TORCH_NCCL_ENABLE_TIMING", "1", /*overwrite=*/0);
  return std::unique_ptr<Device>(std::make_unique<Cuda>(
      choice.transport, static_cast<c10::DeviceIndex>(choice.local_rank % devices)));
}

}  // namespace lockstep::runtime
