#include "runtime/device/nvrtc.h"

#include <dlfcn.h>

#include <array>

#include <fmt/format.h>

#include "base/text.h"

namespace lockstep::runtime {

namespace {

// One per CUDA version that LibTorch is built for, the newest first.
constexpr std::array kNames = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};

template <class Call>
bool find(void* library, const char* name, Call& call) {
  call = reinterpret_cast<Call>(::dlsym(library, name));
  return call != nullptr;
}

}  // namespace

Result<Nvrtc> Nvrtc::open(const std::vector<std::string>& folders) {
  std::vector<std::string> files(kNames.begin(), kNames.end());
  for (const std::string& folder : folders) {
    for (const char* name : kNames) files.push_back(folder + "/" + name);
  }
  for (const std::string& file : files) {
    void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) continue;
    Calls calls{};
    const bool whole = find(library, "nvrtcCreateProgram", calls.create) &&
                       find(library, "nvrtcCompileProgram", calls.compile) &&
                       find(library, "nvrtcGetProgramLogSize", calls.log_size) &&
                       find(library, "nvrtcGetProgramLog", calls.log) &&
                       find(library, "nvrtcGetPTXSize", calls.ptx_size) &&
                       find(library, "nvrtcGetPTX", calls.ptx) &&
                       find(library, "nvrtcGetCUBINSize", calls.cubin_size) &&
                       find(library, "nvrtcGetCUBIN", calls.cubin) &&
                       find(library, "nvrtcDestroyProgram", calls.destroy) &&
                       find(library, "nvrtcGetErrorString", calls.error_text);
    if (whole) return Nvrtc(calls, file);
    ::dlclose(library);
  }
  std::string looked = "where the dynamic loader looks";
  for (const std::string& folder : folders) looked += fmt::format(", in {}", printable(folder));
  return Error{fmt::format("NVIDIA's run-time compiler ({}) is not there: looked {}",
                           kNames.front(), looked),
               {},
               "scripts/fetch-torch --cuda run fetches it, as does "
               "pip install nvidia-cuda-nvrtc; LD_LIBRARY_PATH names its folder"};
}

std::string Nvrtc::fetch(Program program, int (*size)(Program, std::size_t*),
                         int (*bytes)(Program, char*)) const {
  std::size_t n = 0;
  if (size(program, &n) != 0) return {};
  std::string out(n, '\0');
  if (bytes(program, out.data()) != 0) return {};
  return out;
}

Result<std::string> Nvrtc::compile(const KernelText& kernel,
                                   const std::string& architecture) const {
  std::vector<const char*> texts;
  std::vector<const char*> names;
  for (const KernelText::Header& header : kernel.headers) {
    texts.push_back(header.text);
    names.push_back(header.name);
  }
  Program program = nullptr;
  int status = calls_.create(&program, kernel.text, kernel.name, static_cast<int>(texts.size()),
                             texts.data(), names.data());
  const auto error = [&](const std::string& log) {
    std::string message = fmt::format("{} does not compile for {}: {}", kernel.name, architecture,
                                      calls_.error_text(status));
    if (!log.empty()) message += fmt::format("\n{}", log);
    return Error{std::move(message), {}, fmt::format("this NVRTC is {}", printable(file_))};
  };
  if (status != 0) return error("");
  const std::string target = fmt::format("--gpu-architecture={}", architecture);
  // -default-device: functions that say nothing are the device's, as the shared headers' are.
  const std::array<const char*, 3> options = {target.c_str(), "--std=c++17", "-default-device"};
  status = calls_.compile(program, static_cast<int>(options.size()), options.data());
  std::string log;
  std::string out;
  if (status != 0) {
    log = fetch(program, calls_.log_size, calls_.log);
    if (!log.empty() && log.back() == '\0') log.pop_back();
  } else if (architecture.starts_with("sm_")) {
    out = fetch(program, calls_.cubin_size, calls_.cubin);
  } else {
    out = fetch(program, calls_.ptx_size, calls_.ptx);
  }
  calls_.destroy(&program);
  if (status != 0 || out.empty()) return error(log);
  return out;
}

}  // namespace lockstep::runtime
