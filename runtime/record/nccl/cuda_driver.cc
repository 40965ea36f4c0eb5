#include "runtime/record/nccl/cuda_driver.h"

#include <dlfcn.h>

namespace lockstep::runtime::cuda {
namespace {

template <class Function>
bool find(void* library, const char* name, Function*& out) {
  out = reinterpret_cast<Function*>(::dlsym(library, name));
  return out != nullptr;
}

}  // namespace

std::optional<Driver> find_driver() {
  void* const library = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return std::nullopt;
  Driver out{};
  const bool all = find(library, "cuStreamGetCtx", out.context_of) &&
                   find(library, "cuCtxPushCurrent_v2", out.push) &&
                   find(library, "cuCtxPopCurrent_v2", out.pop) &&
                   find(library, "cuStreamIsCapturing", out.is_capturing) &&
                   find(library, "cuThreadExchangeStreamCaptureMode", out.exchange_capture_mode) &&
                   find(library, "cuEventCreate", out.make_event) &&
                   find(library, "cuEventRecord", out.record) &&
                   find(library, "cuEventQuery", out.query);
  return all ? std::optional(out) : std::nullopt;
}

}  // namespace lockstep::runtime::cuda
