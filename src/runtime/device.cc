#include "runtime/device.h"

namespace lockstep {
namespace {

class Cpu final : public Device {
 public:
  c10::Device place() const override { return at::kCPU; }
  at::Tensor bring(const at::Tensor& tensor) const override { return tensor; }
};

}  // namespace

Result<std::unique_ptr<Device>> open_device(DeviceKind kind, Scenario::Backend transport,
                                            int local_rank) {
  if (kind == DeviceKind::cuda) return open_cuda_device(transport, local_rank);
  if (transport == Scenario::Backend::nccl) {
    return Error{"backend is nccl, and the device is the CPU: NCCL carries GPUs' tensors only",
                 {},
                 "backend: gloo, or --device cuda"};
  }
  return std::unique_ptr<Device>(std::make_unique<Cpu>());
}

}  // namespace lockstep
