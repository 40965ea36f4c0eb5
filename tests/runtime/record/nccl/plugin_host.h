// Plays NCCL towards a profiler plugin: loads it, and calls its entry points in NCCL's order
// (src/plugin/profiler.cc and src/enqueue.cc of NVIDIA/nccl: version 4 as 2.27, version 5 as 2.28).
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "runtime/record/nccl/profiler_interface.h"

namespace lockstep::runtime {

class PluginHost {
 public:
  // Loads the plugin. `version`: 4 or 5. Throws where it cannot, or the symbol is not there.
  PluginHost(const std::string& library, int version);
  ~PluginHost();  // unloads it, as NCCL does with the last communicator
  PluginHost(const PluginHost&) = delete;
  PluginHost& operator=(const PluginHost&) = delete;

  struct Comm {
    void* context = nullptr;
    int group_rank = 0, size = 1;
  };
  Comm open(std::uint64_t id, int size, int group_rank, const char* name = nullptr);
  void close(const Comm& comm);

  enum class Until { called, launched, begun, done };
  struct Coll {
    const char* func = "AllReduce";
    std::size_t count = 8;
    const char* datatype = "ncclFloat32";
    int root = 0;
    std::uint8_t channels = 2;
  };
  void collective(const Comm& comm, const Coll& coll, Until until = Until::done);
  void message(const Comm& comm, const char* func, std::size_t count, int peer,
               Until until = Until::done);
  // Version 5: the call is captured in a graph that then runs so many times.
  void captured(const Comm& comm, const Coll& coll, int runs);

  // Whether the plugin asked for events of that type.
  bool wants(std::uint64_t type) { return (static_cast<unsigned>(mask()) & type) != 0; }
  bool wants_any() { return mask() != 0; }

  // The entry points themselves, for what NCCL would not do.
  void* start(void* context, nccl_profiler::Event5 event);
  void* start(void* context, nccl_profiler::Event4 event);
  int start_nothing();  // without an event, and without room for a handle
  void stop(void* handle);
  int record_state(void* handle);

 private:
  // Other threads open communicators at the same time.
  int mask() { return std::atomic_ref(mask_).load(std::memory_order_relaxed); }
  void kernels(void* task, std::uint8_t channels, Until until);
  void* start_coll(const Comm& comm, const Coll& coll, void* call);

  void* library_ = nullptr;
  const nccl_profiler::Plugin4* plugin4_ = nullptr;
  const nccl_profiler::Plugin5* plugin5_ = nullptr;
  int mask_ = 0;
};

}  // namespace lockstep::runtime
