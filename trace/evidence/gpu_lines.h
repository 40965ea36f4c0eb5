// Lines of the driver and of ROCm, which name processes and GPUs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
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

// Other lines about GPUs that stopped working, or that stopped a process:
//
//   HW Exception by GPU node-9 (Agent handle: 0x631351bb5a20) reason :GPU Hang          ROCm
//   Memory access fault by GPU node-2 (Agent handle: 0x55) on address 0x7f. Reason: …   ROCm
//   NVRM: The NVIDIA GPU 0000:b3:00.0                     the driver, without an Xid
//                  NVRM: fallen off the bus and is not responding to commands.
class GpuLines {
 public:
  struct Fault {
    RankNote::Kind kind = RankNote::Kind::gpu_fault;
    std::string text;
  };
  std::optional<Fault> take(std::string_view line);

  static constexpr std::string_view kException = "HW Exception by GPU ";
  static constexpr std::string_view kAccess = "Memory access fault by GPU ";
  static constexpr std::string_view kNamed = "NVRM: The NVIDIA GPU ";
  static constexpr std::string_view kLost = "NVRM: fallen off the bus";

 private:
  std::string named_;  // the GPU of the driver's last message
};

}  // namespace lockstep::trace
