// The part of a Kineto profile that is about communication, as in the file. Internal to the readers
// of profiles, of execution traces and of Nsight Systems' reports.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "trace/formats/format.h"
#include "trace/run.h"

namespace lockstep::trace {

// A process group, from all records of the file that mention it.
struct KinetoGroup {
  std::string desc;
  std::int64_t size = kNone;
  std::optional<std::vector<Rank>> ranks;  // nothing where the list is abbreviated
};

// One communication call (host) or the kernel that carried it out (device).
struct KinetoComm {
  std::int64_t external_id = kNone;
  Nanos begin = kNoTime, end = kNoTime;  // since the file's base time
  std::int64_t thread = kNone;
  StringId op, dtype, group;  // as in the file; `group` is its "Process Group Name"
  std::int64_t in = kNone, out = kNone;
  IntListId splits_in, splits_out;  // not set where abbreviated or empty
  std::int32_t rank = kNone;        // rooted operations: the root's group rank
  std::int32_t peer = kNone;        // send, recv: global rank
  std::int64_t seq = kNone;         // 1-based, in its group; coalesced calls share one
  StringId redop;                   // kernels: from the kernel's name
  // For kernels, where work is read: the runtime's call that queued it, and its CUDA stream.
  std::int64_t correlation = kNone, stream = kNone;
  Nanos queued = kNoTime;  // when it was in its stream, or the host had issued the call; see work.h
};

// A kernel, copy or fill that is not communication.
struct KinetoWork {
  Nanos begin = 0, end = 0;
  std::int64_t correlation = kNone, stream = kNone;
  StringId name;
};

// A call of CUDA's or ROCm's runtime that concerns work in streams.
struct KinetoRuntimeCall {
  enum class Kind : std::uint8_t {
    queue,        // puts a kernel or a fill into a stream
    copy,         // puts a copy into a stream, and may wait for it
    sync,         // the host waits for a stream or an event
    sync_device,  // … for all streams
    wait_event,   // makes a stream wait for another
  };
  Nanos begin = 0, end = 0;
  std::int64_t correlation = kNone;
  std::int64_t thread = kNone;
  Kind kind{};
};

// The kind of a runtime or driver call, by its name; nothing if it does not concern work.
std::optional<KinetoRuntimeCall::Kind> runtime_call_kind(std::string_view call);

// The operation in a kernel's name: "ncclKernel_AllReduce_RING_LL_Sum_float(…)", or
// "ncclAllReduceRingLLKernel_sum_f32(…)" before NCCL 2.12; of other libraries
// "mcclKernel_AllReduce_RING_SIMPLE_Sum___mt_bfloat16", "oneccl_allreduce_pcie<…>". "Generic" where
// the library has one kernel for several ("ncclDevKernel_Generic_4(…)", RCCL). Empty if it is no
// kernel of a collective.
std::string_view op_of_comm_kernel(std::string_view name);

// The reduce operation in a kernel's name: "ncclDevKernel_AllReduce_Sum_f32_RING_LL(…)",
// "ncclKernel_AllReduce_RING_LL_Sum_float(…)". Empty for minimum and maximum, which share a kernel.
// An average is a sum that is divided before (PreMulSum) or after (SumPostDiv).
std::string_view redop_of_comm_kernel(std::string_view name);

struct KinetoStep {
  std::int64_t n = 0;
  Nanos begin = 0, end = 0;
};

struct KinetoEvents {
  std::int64_t rank = kNone, world_size = kNone;
  std::string backend, host;
  std::int64_t pid = kNone;
  std::int64_t gpu = kNone;                   // of NCCL's kernels, by CUDA's index
  std::map<std::string, KinetoGroup> groups;  // by name
  std::vector<KinetoComm> calls, kernels;     // in the order of the file
  // NCCL kernels that do not name their call, as before PyTorch 2.3. The operation is taken from
  // the kernel's name, the group is its stream.
  std::vector<KinetoComm> plain_kernels;
  std::vector<KinetoStep> steps;
  std::vector<KinetoWork> work;            // only if scan_kineto() is asked for it
  std::vector<KinetoRuntimeCall> runtime;  // the same
  std::uint64_t without_details = 0;       // calls whose collective was not recorded (old PyTorch)
  std::string inconclusive;                // as RankTrace::inconclusive
  bool timed = true;                       // KinetoComm::begin is a time; false: only an order
  bool whole = false;                      // false: the file is cut off
  std::vector<std::string> damage;         // what was lost, one per record; the first few
  std::uint64_t damage_count = 0;          // all lost records
};

// Finds the events in a file, interning names into `tables`. `work`: also KinetoEvents::work and
// runtime. Errors: not such a profile.
Result<KinetoEvents> scan_kineto(std::string_view bytes, const std::string& file, Tables& tables,
                                 bool work);

// True if the first 64 KiB look like a profile.
bool looks_like_kineto(std::string_view bytes);

// Makes the trace of one rank. Errors: the rank cannot be determined.
Result<std::vector<RankTrace>> assemble_kineto(KinetoEvents events, const TraceFile& file,
                                               Tables& tables);
// Format::link for the traces that assemble_kineto made.
void link_kineto(std::span<RankTrace> traces, Tables& tables);

}  // namespace lockstep::trace
