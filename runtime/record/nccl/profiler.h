// Profiler: converts the events of NCCL's profiler interface to recorded calls.
//
// When a call counts as issued:
// - version 5: a collective when the program makes it (CollApi), before NCCL connects or launches
//   anything; a call captured in a CUDA graph, at each launch of the graph.
// - version 4, and messages in both: when it is launched (Coll, P2p); only these events name the
//   peer. In an ncclGroup NCCL launches in its own order, which is the same on all ranks.
// - version 7: as 5, with the tag that the program gives the call.
// A call starts with the first of its channels' kernels and completes with the last (KernelCh), as
// NCCL's proxy thread sees them. A rank's messages to itself match nothing and are left out.
//
// Handles are tagged numbers, never addresses: what NCCL gives back is looked up, not dereferenced.
// No function throws, blocks for long or fails: what cannot be recorded is left out.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/record/nccl/call_slots.h"
#include "runtime/record/nccl/communicator.h"
#include "runtime/record/nccl/job_record.h"
#include "runtime/record/nccl/profiler_interface.h"

namespace lockstep::runtime {

// UserTags: the meaning of the tags that a program gives its calls (NCCL 2.31, 64 bits each), so
// that parameter names pass through an unmodified NCCL.
//
// The program writes the file before it creates its first communicator. Each line has a number,
// decimal or 0x…, and the names of the parameters that a call with this tag carries, separated by
// blanks:
//
//   17 image.conv1.weight image.conv1.bias
//
// Other lines are skipped. A tag that is not in the file is recorded as a number, as the call's
// tag.
class UserTags {
 public:
  // `file` null or unreadable: no tag has names; an unreadable file is reported on standard error.
  explicit UserTags(const char* file);
  UserTags(UserTags&& other) noexcept : names_(std::move(other.names_)) {}

  // The label of the tag in that ring file; 0: none. From any thread.
  CallLabel of(trace::RingWriter& ring, std::uint64_t tag);

 private:
  static constexpr std::size_t kMaxKnown =
      65'536;  // labels; of more tags, names alone are looked up
  std::unordered_map<std::uint64_t, std::vector<std::string>> names_;
  std::mutex mutex_;
  std::map<std::pair<const trace::RingWriter*, std::uint64_t>, CallLabel> known_;
};

class Profiler {
 public:
  // `completions`: also request the kernels' events. The job must outlive this.
  Profiler(NcclJobRecord& job, bool completions, UserTags tags)
      : job_(job), completions_(completions), tags_(std::move(tags)) {}

  // The context of a communicator, which its events carry. Null: it is not recorded. On the thread
  // with which NCCL makes the communicator: its CUDA device is the rank's.
  void* open(std::uint64_t id, std::string_view name, std::int64_t group_rank, std::int64_t size);
  static void close(void* context);

  // The events to request; 0 if nothing is recorded.
  int activation_mask(int version);

  // Each returns the event's handle; null: not interesting.
  void* start(void* context, const nccl_profiler::Event4& event);
  void* start(void* context, const nccl_profiler::Event5& event);
  void* start(void* context, const nccl_profiler::Event7& event);
  void stop(void* handle);

 private:
  void* start_call(Communicator& communicator, const nccl_profiler::CollCall& call,
                   std::uint64_t user_tag = 0);
  void* start_coll(Communicator& communicator, const nccl_profiler::CollTask& task,
                   std::optional<void*> call, std::uint64_t user_tag = 0);
  void* start_p2p(Communicator& communicator, const nccl_profiler::P2pTask& task,
                  std::uint64_t user_tag = 0);
  void* start_kernel(void* parent);
  void* launched(Communicator& communicator, std::uint32_t id, std::uint32_t channels);

  NcclJobRecord& job_;
  const bool completions_;
  UserTags tags_;
  CallSlots slots_;
};

}  // namespace lockstep::runtime
