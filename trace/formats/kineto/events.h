// The part of a Kineto profile that concerns communication, as it stands in the file. Internal to
// the reader of that format.
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

// A process group, by what any record of the file says of it.
struct KinetoGroup {
  std::string desc;
  std::int64_t size = kNone;
  std::optional<std::vector<Rank>> ranks;  // whole lists only
};

// One communication call (host) or the kernel that carried it out (device).
struct KinetoComm {
  std::int64_t external_id = kNone;
  Nanos begin = kNoTime, end = kNoTime;  // since the file's base time
  std::int64_t thread = kNone;
  StringId op, dtype, group;  // as in the file; `group` is its "Process Group Name"
  std::int64_t in = kNone, out = kNone;
  IntListId splits_in, splits_out;  // whole lists only, and not empty
  std::int32_t rank = kNone;        // rooted operations: the root's group rank
  std::int32_t peer = kNone;        // send, recv: global rank
  std::int64_t seq = kNone;         // 1-based, in its group; coalesced calls share one
  StringId redop;                   // kernels: as the kernel's name tells
};

struct KinetoStep {
  std::int64_t n = 0;
  Nanos begin = 0, end = 0;
};

struct KinetoEvents {
  std::int64_t rank = kNone, world_size = kNone;
  std::string backend, host;
  std::int64_t pid = kNone;
  std::map<std::string, KinetoGroup> groups;  // by name
  std::vector<KinetoComm> calls, kernels;     // as they stand in the file
  // Kernels of NCCL that do not say of which call they are, as before PyTorch 2.3: the operation is
  // that of the kernel's name, the group its stream.
  std::vector<KinetoComm> plain_kernels;
  std::vector<KinetoStep> steps;
  std::uint64_t without_details = 0;  // calls whose collective was not recorded (old PyTorch)
  std::string inconclusive;           // as RankTrace::inconclusive
  bool timed = true;                  // KinetoComm::begin is a time, and not just an order
  bool whole = false;                 // the file ends as it should
  std::vector<std::string> damage;    // what was lost; each counts as one record
  std::uint64_t damage_count = 0;     // … those that are not in `damage` included
};

// Errors: not such a profile at all.
Result<KinetoEvents> scan_kineto(std::string_view bytes, const std::string& file, Tables& tables);

bool looks_like_kineto(std::string_view bytes);

// The trace of one rank. Errors: nothing tells whose it is.
Result<std::vector<RankTrace>> assemble_kineto(KinetoEvents events, const TraceFile& file,
                                               Tables& tables);
// Format::link of what assemble_kineto made.
void link_kineto(std::span<RankTrace> traces, Tables& tables);

}  // namespace lockstep::trace
