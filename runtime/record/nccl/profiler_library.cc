// liblockstep_nccl_profiler.so: what NCCL calls.
//
//   NCCL_PROFILER_PLUGIN=/path/to/liblockstep_nccl_profiler.so LOCKSTEP_RECORD_DIR=traces ./program
//
//   LOCKSTEP_RECORD_COMPLETION=0   leave out when calls began and completed: NCCL's proxy thread
//                                  then need not look after the kernels
//   LOCKSTEP_RECORD_TAGS=FILE      what the program's user tags stand for (profiler.h)
//
// NCCL unloads the plugin with the last communicator and may load it again; the library stays
// (-z nodelete), with all that it holds. Nothing that goes wrong here reaches NCCL.
#include <stdlib.h>

#include <atomic>
#include <string_view>

#include "runtime/record/nccl/profiler.h"

namespace lockstep::runtime {
namespace {

using namespace nccl_profiler;

Profiler& profiler() {
  static Profiler* const made = [] {
    const char* const completions = ::getenv("LOCKSTEP_RECORD_COMPLETION");
    const bool wanted = completions == nullptr || std::string_view(completions) != "0";
    return new Profiler(NcclJobRecord::of_process("liblockstep_nccl_profiler"), wanted,
                        UserTags(::getenv("LOCKSTEP_RECORD_TAGS")));
  }();
  return *made;
}

// Runs `body`; an exception (no memory) costs what was to be recorded.
template <class Body>
int guarded(Body body) noexcept {
  try {
    body();
  } catch (...) {  // NOLINT(bugprone-empty-catch): the job goes on
  }
  return nccl_profiler::kSuccess;
}

int open(int version, void** context, int* mask, std::uint64_t id, const char* name, int size,
         int group_rank) {
  if (context != nullptr) *context = nullptr;
  return guarded([&] {
    if (context != nullptr)
      *context = profiler().open(id, name != nullptr ? name : "", group_rank, size);
    // One mask counts for all communicators, so it stays where a single one is not recorded; and
    // NCCL's other threads read it at this moment.
    if (mask != nullptr)
      std::atomic_ref(*mask).store(profiler().activation_mask(version), std::memory_order_relaxed);
  });
}

int init4(void** context, int* mask, const char* name, std::uint64_t id, int /*nodes*/, int size,
          int group_rank, nccl_profiler::Logger /*logger*/) {
  return open(4, context, mask, id, name, size, group_rank);
}

int init5(void** context, std::uint64_t id, int* mask, const char* name, int /*nodes*/, int size,
          int group_rank, nccl_profiler::Logger /*logger*/) {
  return open(5, context, mask, id, name, size, group_rank);
}

template <class Event>
int start_event(void* context, void** handle, Event* event) {
  if (handle != nullptr) *handle = nullptr;
  return guarded([&] {
    if (handle != nullptr && event != nullptr) *handle = profiler().start(context, *event);
  });
}

int stop_event(void* handle) {
  return guarded([&] {
    if (handle != nullptr) profiler().stop(handle);
  });
}

int record_event_state(void* /*handle*/, int /*state*/, void* /*arguments*/) {
  return nccl_profiler::kSuccess;
}

int finalize(void* context) {
  return guarded([&] { Profiler::close(context); });
}

// What a version of the interface consists of; versions differ in init() and in their events.
template <class Plugin, class Init>
constexpr Plugin plugin(Init init) {
  return {"lockstep", init, start_event, stop_event, record_event_state, finalize};
}

}  // namespace
}  // namespace lockstep::runtime

// NOLINTBEGIN(readability-identifier-naming): NCCL's names
extern "C" __attribute__((visibility("default")))
const lockstep::runtime::nccl_profiler::Plugin4 ncclProfiler_v4 =
    lockstep::runtime::plugin<lockstep::runtime::nccl_profiler::Plugin4>(lockstep::runtime::init4);
extern "C" __attribute__((visibility("default")))
const lockstep::runtime::nccl_profiler::Plugin5 ncclProfiler_v5 =
    lockstep::runtime::plugin<lockstep::runtime::nccl_profiler::Plugin5>(lockstep::runtime::init5);
extern "C" __attribute__((visibility("default")))
const lockstep::runtime::nccl_profiler::Plugin7 ncclProfiler_v7 =
    lockstep::runtime::plugin<lockstep::runtime::nccl_profiler::Plugin7>(lockstep::runtime::init5);
// NOLINTEND(readability-identifier-naming)
