// What the recorders of NCCL programs cost per call: their entry points called as NCCL, or the
// program, would, without NCCL. CPU time of the calling thread.
//
// The recorder for torch: tests/bench/record/torch_recorder.
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <benchmark/benchmark.h>

#include "runtime/record/nccl/nccl_interface.h"
#include "runtime/record/nccl/profiler_interface.h"

namespace lockstep {
namespace {

void* load(const std::string& library) {
  void* const loaded = ::dlopen((LOCKSTEP_BINARY_DIR "/" + library).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) {
    std::fprintf(stderr, "%s\n", ::dlerror());
    std::exit(1);
  }
  return loaded;
}

// Where the ring files go, a folder for each recorder: their library's state is the process's.
class Folder {
 public:
  explicit Folder(const std::string& name)
      : path_(std::filesystem::temp_directory_path() /
              ("lockstep_bench_" + std::to_string(::getpid()) + "_" + name)) {
    ::setenv("LOCKSTEP_RECORD_DIR", path_.c_str(), 1);
    ::setenv("RANK", "0", 1);
    ::setenv("WORLD_SIZE", "2", 1);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

 private:
  std::filesystem::path path_;
};

void per_call(benchmark::State& state) {
  state.counters["per_call"] =
      benchmark::Counter(static_cast<double>(state.iterations()),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

// The plugin, version 5: the call, its launch, and `channels` kernels that begin and end.
void profiler_call(benchmark::State& state) {
  const Folder folder("profiler");
  static const auto* const plugin = static_cast<const runtime::nccl_profiler::Plugin5*>(
      ::dlsym(load("liblockstep_nccl_profiler.so"), "ncclProfiler_v5"));
  void* context = nullptr;
  int mask = 0;
  plugin->init(&context, 0x1234, &mask, nullptr, 1, 2, 0, nullptr);
  if (context == nullptr) return state.SkipWithError("nothing is recorded");
  const auto channels = static_cast<std::uint8_t>(state.range(0));
  void* kernels[64];
  for ([[maybe_unused]] auto _ : state) {
    runtime::nccl_profiler::Event5 call{runtime::nccl_profiler::kCollApi, nullptr, 0, {}};
    call.coll_api = {"AllReduce", 1024, "ncclFloat32", 0, nullptr, false};
    void* call_handle = nullptr;
    plugin->start_event(context, &call_handle, &call);
    plugin->stop_event(call_handle);
    runtime::nccl_profiler::Event5 task{runtime::nccl_profiler::kColl, call_handle, 0, {}};
    task.coll = {{0, "AllReduce", nullptr, nullptr, 1024, 0, "ncclFloat32", channels, 4, "", ""},
                 nullptr};
    void* task_handle = nullptr;
    plugin->start_event(context, &task_handle, &task);
    plugin->stop_event(task_handle);
    for (std::uint8_t c = 0; c < channels; ++c) {
      runtime::nccl_profiler::Event5 kernel{runtime::nccl_profiler::kKernelCh, task_handle, 0, {}};
      kernel.kernel = {c, 0};
      plugin->start_event(context, &kernels[c], &kernel);
    }
    for (std::uint8_t c = 0; c < channels; ++c) plugin->stop_event(kernels[c]);
  }
  per_call(state);
  plugin->finalize(context);
}
BENCHMARK(profiler_call)->Arg(0)->Arg(1)->Arg(8)->Arg(32);

using InitRank = int (*)(runtime::nccl::Comm*, int, runtime::nccl::UniqueId, int);
using AllReduce = int (*)(const void*, void*, std::size_t, int, int, runtime::nccl::Comm,
                          runtime::nccl::Stream);

// ncclAllReduce of an NCCL that does nothing: 0: itself, 1: through the preloaded library.
void preloaded_call(benchmark::State& state) {
  const Folder folder("preload");
  static void* const real = load("bench/record/libnccl.so.2");
  static void* const recorder = load("liblockstep_nccl.so");
  void* const library = state.range(0) == 0 ? real : recorder;
  runtime::nccl::Comm comm = nullptr;
  reinterpret_cast<InitRank>(::dlsym(library, "ncclCommInitRank"))(&comm, 2, {}, 0);
  const auto all_reduce = reinterpret_cast<AllReduce>(::dlsym(library, "ncclAllReduce"));
  for ([[maybe_unused]] auto _ : state)
    benchmark::DoNotOptimize(all_reduce(nullptr, nullptr, 1024, 7, 0, comm, nullptr));
  per_call(state);
}
BENCHMARK(preloaded_call)->Arg(0)->Arg(1);

}  // namespace
}  // namespace lockstep
