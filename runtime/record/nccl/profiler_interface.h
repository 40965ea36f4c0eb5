// NCCL's profiler interface, versions 4, 5 and 7, as far as a plugin needs it: Lockstep's own
// declarations of what NVIDIA/nccl publishes under plugins/profiler (README.md and
// example/nccl/profiler_v4.h, profiler_v5.h; version 4 since NCCL 2.27, version 5 since 2.28) and
// src/include/plugin/profiler/profiler_v7.h (since 2.31). The layout is the contract; the names of
// the three symbols are NCCL's, all others are ours.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace lockstep::runtime::nccl_profiler {

inline constexpr int kSuccess = 0;  // ncclSuccess; the only result that a profiler should return

enum EventType : std::uint64_t {
  kGroup = 1U << 0U,
  kColl = 1U << 1U,
  kP2p = 1U << 2U,
  kProxyOp = 1U << 3U,
  kProxyStep = 1U << 4U,
  kProxyCtrl = 1U << 5U,
  kKernelCh = 1U << 6U,  // a channel of a call's kernel
  kNetPlugin = 1U << 7U,
  kGroupApi = 1U << 8U,  // this and the following: version 5
  kCollApi = 1U << 9U,
  kP2pApi = 1U << 10U,
  kKernelLaunch = 1U << 11U,
};

// A collective or message that is launched. The order of members is the interface's.
struct CollTask {
  std::uint64_t seq_number;
  const char* func;  // "AllReduce"
  const void* send_buffer;
  void* receive_buffer;
  std::size_t count;
  int root;
  const char* datatype;  // "ncclFloat32"
  std::uint8_t channels;
  std::uint8_t warps;
  const char* algorithm;
  const char* protocol;
};
struct CollTask5 {
  CollTask task;
  void* parent_group;
};
struct P2pTask {
  const char* func;  // "Send", "Recv"
  void* buffer;
  const char* datatype;
  std::size_t count;
  int peer;
  std::uint8_t channels;
};
struct P2pTask5 {
  P2pTask task;
  void* parent_group;
};
struct ProxyOp {
  pid_t pid;
  std::uint8_t channel;
  int peer;
  int steps;
  int chunk_size;
  int is_send;
};
struct KernelChannel {
  std::uint8_t channel;
  std::uint64_t device_timer;
};
struct NetEvent {
  std::int64_t id;
  void* data;
};
// A collective as the program calls it.
struct CollCall {
  const char* func;
  std::size_t count;
  const char* datatype;
  int root;
  void* stream;
  bool graph_captured;
};
struct P2pCall {
  const char* func;
  std::size_t count;
  const char* datatype;
  void* stream;
  bool graph_captured;
};
struct GroupCall {
  bool graph_captured;
  int depth;
};

// Version 7: as 5, and what the program says of the call; 0: nothing.
struct CollCall7 {
  CollCall call;
  std::uint64_t user_tag;
};
struct CollTask7 {
  CollTask task;
  void* parent_group;
  const char* kernel_variant;
  bool is_symmetric;
  std::uint64_t user_tag;
};
struct P2pTask7 {
  P2pTask task;
  void* parent_group;
  std::uint64_t user_tag;
};

struct Event4 {
  std::uint8_t type;  // one EventType
  void* parent;       // what startEvent gave for the event above
  int rank;
  union {
    CollTask coll;
    P2pTask p2p;
    ProxyOp proxy_op;
    int proxy_step;
    KernelChannel kernel;
    NetEvent net;
  };
};
struct Event5 {
  std::uint64_t type;
  void* parent;
  int rank;
  union {
    GroupCall group_api;
    CollCall coll_api;
    P2pCall p2p_api;
    void* launch_stream;
    CollTask5 coll;
    P2pTask5 p2p;
    ProxyOp proxy_op;
    int proxy_step;
    KernelChannel kernel;
    NetEvent net;
  };
};

struct Event7 {
  std::uint64_t type;
  void* parent;
  int rank;
  union {
    CollCall7 coll_api;
    CollTask7 coll;
    P2pTask7 p2p;
    KernelChannel kernel;
  };
};

static_assert(sizeof(CollTask) == 80 && offsetof(CollTask, algorithm) == 64);
static_assert(sizeof(CollTask5) == 88 && sizeof(P2pTask) == 40 && sizeof(P2pTask5) == 48);
static_assert(offsetof(CollCall7, user_tag) == 48 && offsetof(CollTask7, user_tag) == 104 &&
              offsetof(P2pTask7, user_tag) == 48);
static_assert(offsetof(Event7, coll) == 24 && sizeof(Event7) == 136);
static_assert(offsetof(Event4, coll) == 24 && sizeof(Event4) == 104);
static_assert(offsetof(Event5, coll) == 24 && sizeof(Event5) == 112);

using Logger = void (*)(int level, unsigned long flags, const char* file, int line,
                        const char* format, ...);

// What the symbols ncclProfiler_v4, ncclProfiler_v5 and ncclProfiler_v7 are.
struct Plugin4 {
  const char* name;
  int (*init)(void** context, int* activation_mask, const char* comm_name, std::uint64_t comm_hash,
              int nodes, int ranks, int rank, Logger logger);
  int (*start_event)(void* context, void** handle, Event4* event);
  int (*stop_event)(void* handle);
  int (*record_event_state)(void* handle, int state, void* arguments);
  int (*finalize)(void* context);
};
template <class Event>
struct PluginFrom5 {
  const char* name;
  int (*init)(void** context, std::uint64_t comm_id, int* activation_mask, const char* comm_name,
              int nodes, int ranks, int rank, Logger logger);
  int (*start_event)(void* context, void** handle, Event* event);
  int (*stop_event)(void* handle);
  int (*record_event_state)(void* handle, int state, void* arguments);
  int (*finalize)(void* context);
};
using Plugin5 = PluginFrom5<Event5>;
using Plugin7 = PluginFrom5<Event7>;

}  // namespace lockstep::runtime::nccl_profiler
