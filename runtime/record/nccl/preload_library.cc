// The preloaded recorder for NCCL programs, and the search for the real NCCL.

#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/record/nccl/device_calls.h"
#include "runtime/record/nccl/job_record.h"
#include "trace/nccl_calls.h"

namespace lockstep::runtime {

// The real function of that name: the next one in the program's search order, else that of a loaded
// libnccl.so.2 outside of it (Python modules load it that way). Null: there is none; reported on
// standard error, once per name.
void* find_real_nccl(const char* name);

// liblockstep_nccl.so: intercepts libnccl.so.2 in a program that is linked with it.
//
//   LD_PRELOAD=/path/to/liblockstep_nccl.so LOCKSTEP_RECORD_DIR=traces ./program
//
//   LOCKSTEP_RECORD_COMPLETION=0   do not record when calls complete, and put no events into the
//                                  program's streams
//
// Each function below records the call and then makes it, so the call is in the ring file before
// NCCL sees it. An event after it in its stream shows when it completes (device_calls.h); the calls
// of an ncclGroup are in their streams when the outermost ncclGroupEnd returns.
//
// Calls that NCCL makes to itself inside these functions are not the program's, and are not
// recorded. Failures here never reach the program, except that a function which its NCCL does not
// have returns ncclInternalError.

namespace {

using nccl::Comm;
using nccl::ResultCode;
using nccl::Stream;
using nccl::UniqueId;

thread_local int depth = 0;  // number of our functions on this thread's stack
struct Inside {
  Inside() { ++depth; }
  ~Inside() { --depth; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
};

// Calls the real function that ours of that name intercepts.
template <class... Parameters, class... Arguments>
ResultCode call_real(const char* name, ResultCode (*&real)(Parameters...), Arguments... arguments) {
  auto* found = __atomic_load_n(&real, __ATOMIC_RELAXED);
  if (found == nullptr) {
    found = reinterpret_cast<ResultCode (*)(Parameters...)>(find_real_nccl(name));
    if (found == nullptr) return nccl::kInternalError;
    __atomic_store_n(&real, found, __ATOMIC_RELAXED);
  }
  const Inside inside;
  return found(arguments...);
}

// Nothing where NCCL does not know yet: it makes the communicator in the background.
std::optional<int> device_of(Comm comm) {
  static ResultCode (*real_device)(Comm, int*) = nullptr;
  int device = 0;
  if (call_real("ncclCommCuDevice", real_device, comm, &device) != nccl::kSuccess)
    return std::nullopt;
  return device;
}

std::optional<KnownCommunicators::GroupMember> ask_nccl(Comm comm) {
  static ResultCode (*real_rank)(Comm, int*) = nullptr;
  static ResultCode (*real_count)(Comm, int*) = nullptr;
  KnownCommunicators::GroupMember group_rank;
  if (call_real("ncclCommUserRank", real_rank, comm, &group_rank.group_rank) != nccl::kSuccess ||
      call_real("ncclCommCount", real_count, comm, &group_rank.size) != nccl::kSuccess)
    return std::nullopt;
  group_rank.device = device_of(comm);
  return group_rank;
}

NcclJobRecord& job() { return NcclJobRecord::of_process("liblockstep_nccl"); }

KnownCommunicators& communicators() {
  static auto* const known = new KnownCommunicators(job(), ask_nccl);
  return *known;
}

// Runs `body`, unless NCCL itself makes the call. After an exception (out of memory) the record is
// incomplete, and the program continues.
template <class Body>
void guarded(Body body) noexcept {
  if (depth > 0) return;
  try {
    body();
  } catch (...) {  // NOLINT(bugprone-empty-catch): the program goes on
  }
}

using Recorded = DeviceCalls::Call;  // rank null: not recorded

thread_local Communicator* last = nullptr;     // of this thread's last call
thread_local int groups = 0;                   // ncclGroups that this thread has open
thread_local std::vector<Recorded> of_groups;  // their calls

Recorded record(Comm comm, const NcclCall& call, Stream stream) {
  Recorded out;
  guarded([&] {
    Communicator* const communicator = communicators().find(comm);
    if (communicator == nullptr) return;
    out = {&communicator->rank(), communicator->issue(call), stream};
    DeviceCalls::enter(out);
    last = communicator;
  });
  return out;
}

// Follows a call to its completion, once it is in its stream; inside a group that is later.
void given_to_nccl(const Recorded& call, ResultCode result) {
  if (result != nccl::kSuccess) return DeviceCalls::leave(call);
  if (groups > 0) return of_groups.push_back(call);
  DeviceCalls::of_process().follow({&call, 1});
}

void groups_are_given_to_nccl(ResultCode result) {
  const std::vector<Recorded> calls = std::exchange(of_groups, {});
  if (result == nccl::kSuccess) return DeviceCalls::of_process().follow(calls);
  for (const Recorded& call : calls) DeviceCalls::leave(call);
}

std::string refused(const char* name, ResultCode result) {
  return std::string(name) + " returned ncclResult_t " + std::to_string(result);
}

// An error that NCCL returns is recorded as an exception of the call.
ResultCode checked(const Recorded& call, const char* name, ResultCode result) {
  if (call.rank == nullptr) return result;
  guarded([&] {
    given_to_nccl(call, result);
    if (result != nccl::kSuccess && result != nccl::kInProgress)
      call.rank->ring->exception(refused(name, result), call.id);
  });
  return result;
}

std::int64_t elements(std::size_t count) {
  return static_cast<std::int64_t>(std::min<std::size_t>(count, INT64_MAX));
}

NcclCall collective(trace::Op op, std::size_t count, int dtype, int redop = trace::kNone,
                    int root = trace::kNone) {
  return {op, {}, elements(count), dtype, redop, root, trace::kNone};
}

NcclCall message(trace::Op op, std::size_t count, int dtype, int peer) {
  return {op, {}, elements(count), dtype, trace::kNone, trace::kNone, peer};
}

bool is_made(ResultCode result, const Comm* comm) {
  return (result == nccl::kSuccess || result == nccl::kInProgress) && comm != nullptr &&
         *comm != nullptr;
}

void note_made(ResultCode result, const Comm* comm, std::span<const nccl::UniqueId> ids,
               int group_rank, int size) {
  if (!is_made(result, comm)) return;
  guarded([&] {
    communicators().made(*comm, KnownCommunicators::name_of(ids),
                         {group_rank, size, device_of(*comm)});
  });
}

void note_gone(Comm comm) {
  guarded([&] { communicators().gone(comm); });
}

// Called before NCCL splits: the parent counts its children, whether or not the split succeeds.
std::string next_child(Comm parent, const char* how, std::optional<int> color = std::nullopt) {
  std::string name;
  guarded([&] { name = communicators().child_name(parent, how, color); });
  return name;
}

void note_child(ResultCode result, const Comm* child, std::string name, Comm parent) {
  if (!is_made(result, child) || name.empty()) return;
  guarded([&] { communicators().made_from(*child, std::move(name), parent); });
}

}  // namespace
}  // namespace lockstep::runtime

using namespace lockstep;
using namespace lockstep::runtime;

// NOLINTBEGIN(readability-identifier-naming): NCCL's names
extern "C" {
#pragma GCC visibility push(default)

ResultCode ncclCommInitRank(Comm* comm, int size, nccl::UniqueId id, int group_rank) {
  static ResultCode (*real)(Comm*, int, nccl::UniqueId, int) = nullptr;
  const ResultCode result = call_real("ncclCommInitRank", real, comm, size, id, group_rank);
  note_made(result, comm, {&id, 1}, group_rank, size);
  return result;
}

ResultCode ncclCommInitRankConfig(Comm* comm, int size, nccl::UniqueId id, int group_rank,
                                  void* config) {
  static ResultCode (*real)(Comm*, int, nccl::UniqueId, int, void*) = nullptr;
  const ResultCode result =
      call_real("ncclCommInitRankConfig", real, comm, size, id, group_rank, config);
  note_made(result, comm, {&id, 1}, group_rank, size);
  return result;
}

ResultCode ncclCommInitRankScalable(Comm* comm, int size, int group_rank, int ids,
                                    nccl::UniqueId* id, void* config) {
  static ResultCode (*real)(Comm*, int, int, int, nccl::UniqueId*, void*) = nullptr;
  const ResultCode result =
      call_real("ncclCommInitRankScalable", real, comm, size, group_rank, ids, id, config);
  if (id != nullptr && ids > 0)
    note_made(result, comm, {id, static_cast<std::size_t>(ids)}, group_rank, size);
  return result;
}

// One process has all ranks, so no other process needs to know the communicators' name.
ResultCode ncclCommInitAll(Comm* comms, int devices, const int* list) {
  static ResultCode (*real)(Comm*, int, const int*) = nullptr;
  const ResultCode result = call_real("ncclCommInitAll", real, comms, devices, list);
  if (result != nccl::kSuccess || comms == nullptr) return result;
  guarded([&] {
    static std::atomic<int> made{0};
    const std::string name = "comm all " + std::to_string(made++);
    for (int i = 0; i < devices; ++i)
      communicators().made(comms[i], name, {i, devices, list != nullptr ? list[i] : i});
  });
  return result;
}

ResultCode ncclCommSplit(Comm comm, int color, int key, Comm* child, void* config) {
  static ResultCode (*real)(Comm, int, int, Comm*, void*) = nullptr;
  std::string name = next_child(comm, "split", color);
  const ResultCode result = call_real("ncclCommSplit", real, comm, color, key, child, config);
  if (color != nccl::kNoColor) note_child(result, child, std::move(name), comm);
  return result;
}

ResultCode ncclCommShrink(Comm comm, int* excluded, int count, Comm* child, void* config,
                          int flags) {
  static ResultCode (*real)(Comm, int*, int, Comm*, void*, int) = nullptr;
  std::string name = next_child(comm, "shrink");
  const ResultCode result =
      call_real("ncclCommShrink", real, comm, excluded, count, child, config, flags);
  note_child(result, child, std::move(name), comm);
  return result;
}

// Forget it first: NCCL may reuse the address as soon as it has freed the communicator.
ResultCode ncclCommDestroy(Comm comm) {
  static ResultCode (*real)(Comm) = nullptr;
  note_gone(comm);
  return call_real("ncclCommDestroy", real, comm);
}

ResultCode ncclCommAbort(Comm comm) {
  static ResultCode (*real)(Comm) = nullptr;
  note_gone(comm);
  return call_real("ncclCommAbort", real, comm);
}

ResultCode ncclAllReduce(const void* in, void* out, std::size_t count, int dtype, int redop,
                         Comm comm, Stream stream) {
  static ResultCode (*real)(const void*, void*, std::size_t, int, int, Comm, Stream) = nullptr;
  const Recorded call =
      record(comm, collective(trace::Op::all_reduce, count, dtype, redop), stream);
  return checked(call, "ncclAllReduce",
                 call_real("ncclAllReduce", real, in, out, count, dtype, redop, comm, stream));
}

ResultCode ncclReduce(const void* in, void* out, std::size_t count, int dtype, int redop, int root,
                      Comm comm, Stream stream) {
  static ResultCode (*real)(const void*, void*, std::size_t, int, int, int, Comm, Stream) = nullptr;
  const Recorded call =
      record(comm, collective(trace::Op::reduce, count, dtype, redop, root), stream);
  return checked(call, "ncclReduce",
                 call_real("ncclReduce", real, in, out, count, dtype, redop, root, comm, stream));
}

ResultCode ncclBroadcast(const void* in, void* out, std::size_t count, int dtype, int root,
                         Comm comm, Stream stream) {
  static ResultCode (*real)(const void*, void*, std::size_t, int, int, Comm, Stream) = nullptr;
  const Recorded call =
      record(comm, collective(trace::Op::broadcast, count, dtype, trace::kNone, root), stream);
  return checked(call, "ncclBroadcast",
                 call_real("ncclBroadcast", real, in, out, count, dtype, root, comm, stream));
}

ResultCode ncclBcast(void* buffer, std::size_t count, int dtype, int root, Comm comm,
                     Stream stream) {
  static ResultCode (*real)(void*, std::size_t, int, int, Comm, Stream) = nullptr;
  const Recorded call =
      record(comm, collective(trace::Op::broadcast, count, dtype, trace::kNone, root), stream);
  return checked(call, "ncclBcast",
                 call_real("ncclBcast", real, buffer, count, dtype, root, comm, stream));
}

ResultCode ncclAllGather(const void* in, void* out, std::size_t count, int dtype, Comm comm,
                         Stream stream) {
  static ResultCode (*real)(const void*, void*, std::size_t, int, Comm, Stream) = nullptr;
  const Recorded call =
      record(comm, collective(trace::Op::all_gather_into_tensor, count, dtype), stream);
  return checked(call, "ncclAllGather",
                 call_real("ncclAllGather", real, in, out, count, dtype, comm, stream));
}

ResultCode ncclReduceScatter(const void* in, void* out, std::size_t count, int dtype, int redop,
                             Comm comm, Stream stream) {
  static ResultCode (*real)(const void*, void*, std::size_t, int, int, Comm, Stream) = nullptr;
  const Recorded call =
      record(comm, collective(trace::Op::reduce_scatter_tensor, count, dtype, redop), stream);
  return checked(call, "ncclReduceScatter",
                 call_real("ncclReduceScatter", real, in, out, count, dtype, redop, comm, stream));
}

ResultCode ncclGroupStart() {
  static ResultCode (*real)() = nullptr;
  const ResultCode result = call_real("ncclGroupStart", real);
  if (depth == 0 && result == nccl::kSuccess) ++groups;
  return result;
}

// Errors of a group's calls are returned here; NCCL does not say which call.
ResultCode ncclGroupEnd() {
  static ResultCode (*real)() = nullptr;
  const ResultCode result = call_real("ncclGroupEnd", real);
  if (depth == 0 && groups > 0 && --groups == 0) guarded([&] { groups_are_given_to_nccl(result); });
  if (result == nccl::kSuccess || result == nccl::kInProgress || last == nullptr) return result;
  guarded([&] { last->ring().exception(refused("ncclGroupEnd", result)); });
  return result;
}

// These three: NCCL 2.28 and later.
ResultCode ncclAlltoAll(const void* in, void* out, std::size_t count, int dtype, Comm comm,
                        Stream stream) {
  static ResultCode (*real)(const void*, void*, std::size_t, int, Comm, Stream) = nullptr;
  const Recorded call =
      record(comm, collective(trace::Op::all_to_all_single, count, dtype), stream);
  return checked(call, "ncclAlltoAll",
                 call_real("ncclAlltoAll", real, in, out, count, dtype, comm, stream));
}

ResultCode ncclGather(const void* in, void* out, std::size_t count, int dtype, int root, Comm comm,
                      Stream stream) {
  static ResultCode (*real)(const void*, void*, std::size_t, int, int, Comm, Stream) = nullptr;
  const Recorded call =
      record(comm, collective(trace::Op::gather, count, dtype, trace::kNone, root), stream);
  return checked(call, "ncclGather",
                 call_real("ncclGather", real, in, out, count, dtype, root, comm, stream));
}

ResultCode ncclScatter(const void* in, void* out, std::size_t count, int dtype, int root, Comm comm,
                       Stream stream) {
  static ResultCode (*real)(const void*, void*, std::size_t, int, int, Comm, Stream) = nullptr;
  const Recorded call =
      record(comm, collective(trace::Op::scatter, count, dtype, trace::kNone, root), stream);
  return checked(call, "ncclScatter",
                 call_real("ncclScatter", real, in, out, count, dtype, root, comm, stream));
}

ResultCode ncclSend(const void* buffer, std::size_t count, int dtype, int peer, Comm comm,
                    Stream stream) {
  static ResultCode (*real)(const void*, std::size_t, int, int, Comm, Stream) = nullptr;
  const Recorded call = record(comm, message(trace::Op::send, count, dtype, peer), stream);
  return checked(call, "ncclSend",
                 call_real("ncclSend", real, buffer, count, dtype, peer, comm, stream));
}

ResultCode ncclRecv(void* buffer, std::size_t count, int dtype, int peer, Comm comm,
                    Stream stream) {
  static ResultCode (*real)(void*, std::size_t, int, int, Comm, Stream) = nullptr;
  const Recorded call = record(comm, message(trace::Op::recv, count, dtype, peer), stream);
  return checked(call, "ncclRecv",
                 call_real("ncclRecv", real, buffer, count, dtype, peer, comm, stream));
}

#pragma GCC visibility pop
}  // extern "C"
// NOLINTEND(readability-identifier-naming)

// Intercepts the C library's, which runs no exit handlers.
extern "C" __attribute__((visibility("default"))) void _exit(int status) {
  NcclJobRecord::at_immediate_exit(status);
  for (;;) ::syscall(SYS_exit_group, status);
}
extern "C" __attribute__((visibility("default"))) void _Exit(int status) noexcept {
  ::_exit(status);
}

namespace lockstep::runtime {

namespace {

bool first_time(const char* name) {
  static std::mutex mutex;
  // Never destroyed: calls may come until the process is gone.
  static auto* const warned = new std::set<std::string>;
  const std::lock_guard lock(mutex);
  return warned->insert(name).second;
}

}  // namespace

void* find_real_nccl(const char* name) {
  if (void* const next = ::dlsym(RTLD_NEXT, name)) return next;
  // RTLD_NOLOAD: loading one would give another NCCL than the program's.
  if (void* const loaded = ::dlopen("libnccl.so.2", RTLD_LAZY | RTLD_NOLOAD)) {
    if (void* const found = ::dlsym(loaded, name)) return found;
  }
  if (first_time(name))
    std::fprintf(stderr, "liblockstep_nccl: this process has no NCCL with %s\n", name);
  return nullptr;
}

}  // namespace lockstep::runtime
