#include "runtime/device/device.h"

#include "runtime/device/queued_calls.h"

namespace lockstep::runtime {
namespace {

class Cpu final : public Device {
 public:
  c10::Device torch_device() const override { return at::kCPU; }
  at::Tensor bring(const at::Tensor& tensor) const override { return tensor; }
};

}  // namespace

Result<std::unique_ptr<Device>> open_device(const DeviceChoice& choice) {
  const bool on_gpu =
      choice.kind == DeviceKind::cuda || choice.transport == Scenario::Backend::nccl;
  if (on_gpu && choice.queued != QueuedCalls::no) {
    return Error{std::string(kQueuedCallsVariable) +
                     " is set: it queues the calls of Gloo on the CPU, as a GPU would",
                 {},
                 "unset it, or use backend: gloo without --device cuda"};
  }
  if (choice.kind == DeviceKind::cuda) return open_cuda_device(choice);
  if (choice.transport == Scenario::Backend::nccl) {
    return Error{"backend is nccl, and the device is the CPU: NCCL carries GPUs' tensors only",
                 {},
                 "backend: gloo, or --device cuda"};
  }
  if (choice.queued != QueuedCalls::no) return queued_device(choice.queued);
  return std::unique_ptr<Device>(std::make_unique<Cpu>());
}

}  // namespace lockstep::runtime
