#include "runtime/derive/torch/meta_device.h"

#include <ATen/ATen.h>

#include "runtime/derive/torch/meta_kernels.h"

namespace lockstep {
namespace {

class Meta final : public Device {
 public:
  c10::Device place() const override { return at::kMeta; }
  at::Tensor bring(const at::Tensor& tensor) const override {
    return tensor.defined() ? tensor.to(at::kMeta) : tensor;
  }
};

}  // namespace

// A mode key of LibTorch's that no program uses; meta_kernels.cc says what it does.
MakeOnMeta::MakeOnMeta() : on_(c10::DispatchKeySet(c10::DispatchKey::TESTING_ONLY_GenericMode)) {
  register_meta_kernels();
}

std::unique_ptr<Device> meta_device() { return std::make_unique<Meta>(); }

}  // namespace lockstep
