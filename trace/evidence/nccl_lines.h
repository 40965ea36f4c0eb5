// Lines in which NCCL, PyTorch's process group or DeepEP says by itself what happened.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "trace/evidence/gpu_lines.h"
#include "trace/run.h"

namespace lockstep::trace {

//   host:12:34 [0] src/net.cc:12 NCCL WARN Net: …            a warning; before 2.3 "WARN"
//   … ProcessGroupNCCL's watchdog got stuck for 480 seconds without …     PyTorch's heartbeat
//   monitor … Failed to check the "should dump" flag on TCPStore …   the store's process ended
//   DeepEP timeout for dispatch …                            its rank is that of a group
struct NcclMessage {
  RankNote::Kind kind = RankNote::Kind::nccl_warning;
  std::string text;
  LoggedProcess process = {};  // that a warning names; its host is a view into the line
};
std::optional<NcclMessage> nccl_message_in(std::string_view line);

// One of these is in each such line, and kOldNcclWarning in others, too.
inline constexpr std::string_view kStuckWatchdog = "watchdog got stuck for ";
inline constexpr std::string_view kStoreLost =
    "Failed to check the \"should dump\" flag on TCPStore";
inline constexpr std::string_view kDeepEp = "DeepEP timeout ";
inline constexpr std::string_view kNcclWarning = "NCCL WARN ";
inline constexpr std::string_view kOldNcclWarning = " WARN ";

// Whether a line of the text is a warning of NCCL before 2.3, which does not name NCCL.
bool has_old_nccl_warning(std::string_view text);

}  // namespace lockstep::trace
