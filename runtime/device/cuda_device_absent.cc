// Stands for cuda_device.cc in a build without CUDA.
#include <memory>

#include "runtime/device/device.h"

namespace lockstep::runtime {

Result<std::unique_ptr<Device>> open_cuda_device(const DeviceChoice&) {
  return Error{"this lockstep-worker was built without CUDA",
               {},
               "build it with `cmake --preset full-cuda` (docs/runtime.md, \"On GPUs\"), or use "
               "backend: gloo and --device cpu"};
}

}  // namespace lockstep::runtime
