#include "tests/runtime/record/nccl/plugin_host.h"

#include <dlfcn.h>

#include <stdexcept>
#include <vector>

namespace lockstep::runtime {

using namespace nccl_profiler;

PluginHost::PluginHost(const std::string& library, int version)
    : library_(::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (library_ == nullptr) throw std::runtime_error(::dlerror());
  const std::string symbol = "ncclProfiler_v" + std::to_string(version);
  void* const plugin = ::dlsym(library_, symbol.c_str());
  if (plugin == nullptr) throw std::runtime_error(::dlerror());
  if (version == 4) {
    plugin4_ = static_cast<const nccl_profiler::Plugin4*>(plugin);
  } else {
    plugin5_ = static_cast<const nccl_profiler::Plugin5*>(plugin);
  }
}

PluginHost::~PluginHost() { ::dlclose(library_); }

PluginHost::Comm PluginHost::open(std::uint64_t id, int size, int group_rank, const char* name) {
  Comm comm{nullptr, group_rank, size};
  const int failed =
      plugin4_ != nullptr
          ? plugin4_->init(&comm.context, &mask_, name, id, 1, size, group_rank, nullptr)
          : plugin5_->init(&comm.context, id, &mask_, name, 1, size, group_rank, nullptr);
  if (failed != nccl_profiler::kSuccess) throw std::runtime_error("init failed");
  return comm;
}

void PluginHost::close(const Comm& comm) {
  if (comm.context == nullptr) return;
  if (plugin4_ != nullptr) {
    plugin4_->finalize(comm.context);
  } else {
    plugin5_->finalize(comm.context);
  }
}

void* PluginHost::start(void* context, nccl_profiler::Event5 event) {
  void* handle = nullptr;
  if (plugin5_ != nullptr) plugin5_->start_event(context, &handle, &event);
  return handle;
}

void* PluginHost::start(void* context, nccl_profiler::Event4 event) {
  void* handle = nullptr;
  if (plugin4_ != nullptr) plugin4_->start_event(context, &handle, &event);
  return handle;
}

int PluginHost::start_nothing() {
  void* handle = this;
  if (plugin4_ != nullptr) {
    const int a = plugin4_->start_event(nullptr, &handle, nullptr);
    const int b = plugin4_->start_event(nullptr, nullptr, nullptr);
    return a + b + (handle != nullptr) +
           plugin4_->init(nullptr, nullptr, nullptr, 1, 1, 2, 0, nullptr) +
           plugin4_->finalize(nullptr);
  }
  const int a = plugin5_->start_event(nullptr, &handle, nullptr);
  const int b = plugin5_->start_event(nullptr, nullptr, nullptr);
  return a + b + (handle != nullptr) +
         plugin5_->init(nullptr, 1, nullptr, nullptr, 1, 2, 0, nullptr) +
         plugin5_->finalize(nullptr);
}

void PluginHost::stop(void* handle) {
  (plugin4_ != nullptr ? plugin4_->stop_event : plugin5_->stop_event)(handle);
}

int PluginHost::record_state(void* handle) {
  constexpr int kKernelStop = 22;
  return (plugin4_ != nullptr ? plugin4_->record_event_state : plugin5_->record_event_state)(
      handle, kKernelStop, nullptr);
}

// What NCCL's proxy thread sees of a task's channels: all begin, then all end.
void PluginHost::kernels(void* task, std::uint8_t channels, Until until) {
  if (!wants(kKernelCh) || until < Until::begun) return;
  std::vector<void*> handles;
  for (std::uint8_t channel = 0; channel < channels; ++channel) {
    if (plugin4_ != nullptr) {
      nccl_profiler::Event4 event{kKernelCh, task, 0, {}};
      event.kernel = {channel, 1};
      handles.push_back(start(nullptr, event));
    } else {
      nccl_profiler::Event5 event{kKernelCh, task, 0, {}};
      event.kernel = {channel, 1};
      handles.push_back(start(nullptr, event));
    }
  }
  if (until < Until::done) return;
  for (void* const handle : handles) {
    if (handle == nullptr) continue;
    record_state(handle);
    stop(handle);
  }
}

void* PluginHost::start_coll(const Comm& comm, const Coll& coll, void* call) {
  const nccl_profiler::CollTask task{0,          coll.func, nullptr,       nullptr,
                                     coll.count, coll.root, coll.datatype, coll.channels,
                                     4,          "RING",    "SIMPLE"};
  if (plugin4_ != nullptr) {
    nccl_profiler::Event4 event{kColl, nullptr, comm.group_rank, {}};
    event.coll = task;
    return start(comm.context, event);
  }
  nccl_profiler::Event5 event{kColl, call, comm.group_rank, {}};
  event.coll = {task, nullptr};
  return start(comm.context, event);
}

void PluginHost::collective(const Comm& comm, const Coll& coll, Until until) {
  void* call = nullptr;
  if (plugin5_ != nullptr && wants(kCollApi)) {
    nccl_profiler::Event5 event{kCollApi, nullptr, 0, {}};
    event.coll_api = {coll.func, coll.count, coll.datatype, coll.root, nullptr, false};
    call = start(comm.context, event);
    if (call != nullptr) stop(call);
  }
  if (until == Until::called) return;
  void* const task = start_coll(comm, coll, call);
  if (task != nullptr) stop(task);
  kernels(task, coll.channels, until);
}

void PluginHost::captured(const Comm& comm, const Coll& coll, int runs) {
  nccl_profiler::Event5 event{kCollApi, nullptr, 0, {}};
  event.coll_api = {coll.func, coll.count, coll.datatype, coll.root, nullptr, true};
  void* const call = start(comm.context, event);
  stop(call);
  for (int run = 0; run < runs; ++run) {
    void* const task = start_coll(comm, coll, call);
    stop(task);
    kernels(task, coll.channels, Until::done);
  }
}

void PluginHost::message(const Comm& comm, const char* func, std::size_t count, int peer,
                         Until until) {
  const nccl_profiler::P2pTask fields{func, nullptr, "ncclFloat32", count, peer, 1};
  void* task = nullptr;
  if (plugin4_ != nullptr) {
    nccl_profiler::Event4 event{kP2p, nullptr, comm.group_rank, {}};
    event.p2p = fields;
    task = start(comm.context, event);
  } else {
    nccl_profiler::Event5 event{kP2p, nullptr, comm.group_rank, {}};
    event.p2p = {fields, nullptr};
    task = start(comm.context, event);
  }
  if (task != nullptr) stop(task);
  kernels(task, 1, until);
}

}  // namespace lockstep::runtime
