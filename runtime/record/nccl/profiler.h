// Profiler: turns the events of NCCL's profiler interface into recorded calls.
//
// When a call counts as issued:
// - version 5: a collective when the program makes it (CollApi), before NCCL connects or launches
//   anything; one that is captured in a CUDA graph at each launch of the graph.
// - version 4, and messages in both: when it is launched (Coll, P2p); only these events name the
//   peer. Within an ncclGroup NCCL launches in an order of its own, the same on all ranks.
// - version 7: as 5, and with the tag that the program gives the call.
// A call begins with the first of its channels' kernels and is complete with the last (KernelCh),
// as NCCL's proxy thread sees them. Messages of a rank to itself meet nobody and are left out.
//
// Handles are numbers with a tag, never addresses: whatever comes back is looked up, not followed.
// No call throws, blocks for long or fails: what cannot be recorded is left out.
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

// UserTags: what the tags stand for that a program gives its calls (NCCL 2.31, 64 bits each), so
// that the names of parameters come through an unmodified NCCL.
//
// The file is the program's, written before its first communicator: lines of a number, decimal or
// 0x…, and behind it the names of the parameters that a call with this tag carries, all separated
// by blanks:
//
//   17 image.conv1.weight image.conv1.bias
//
// Other lines are passed by. A tag that is not in the file is recorded as the call's tag, by its
// number.

namespace lockstep::runtime {

class UserTags {
 public:
  // `file` null, or one that cannot be read: no tag has names; the latter is said on standard
  // error.
  explicit UserTags(const char* file);
  UserTags(UserTags&& other) noexcept : names_(std::move(other.names_)) {}

  // What is recorded for the tag in that ring file; 0: nothing. From any thread.
  CallLabel of(trace::RingWriter& ring, std::uint64_t tag);

 private:
  static constexpr std::size_t kMostKnown =
      65'536;  // labels; of more tags, names alone are looked up
  std::unordered_map<std::uint64_t, std::vector<std::string>> names_;
  std::mutex mutex_;
  std::map<std::pair<const trace::RingWriter*, std::uint64_t>, CallLabel> known_;
};

class Profiler {
 public:
  // `completions`: ask for the kernels' events, too. The job outlives this.
  Profiler(NcclJobRecord& job, bool completions, UserTags tags)
      : job_(job), completions_(completions), tags_(std::move(tags)) {}

  // The context of a communicator: what the events below come with. Null: it is not recorded.
  void* open(std::uint64_t id, std::string_view name, std::int64_t place, std::int64_t size);
  static void close(void* context);

  // The events to ask for; 0 where nothing is recorded.
  int activation_mask(int version);

  // Each gives the event's handle; null: it is of no interest.
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
