// Lines of the driver and of NCCL, which name processes and GPUs.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "trace/ids.h"
#include "trace/run.h"

namespace lockstep::trace {

// A process as a line names it. `host` is a view into the line.
struct LoggedProcess {
  std::int64_t pid = kNone;
  std::string_view host = {};
  std::int32_t gpu = kNone;
};

// NVRM: Xid (PCI:0000:3b:00): 79, pid=12, GPU has fallen off the bus.
struct XidLine {
  RankNote::Kind kind = RankNote::Kind::gpu_warning;  // gpu_fault: the GPU does no work until reset
  std::int64_t pid = kNone;
  std::string_view text;  // from "Xid" on
};
inline constexpr std::string_view kXid = "Xid (PCI:";
std::optional<XidLine> parse_xid(std::string_view line);

// "gpu1:13135:13922 [0] src/transport/net_ib.cc:123 ", what stands before NCCL's message: host,
// process and CUDA's index of its GPU.
LoggedProcess process_of_nccl(std::string_view before);

}  // namespace lockstep::trace
