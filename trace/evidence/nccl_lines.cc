#include "trace/evidence/nccl_lines.h"

#include <cstddef>

#include <fmt/format.h>

#include "base/text.h"
#include "trace/formats/log_lines.h"
#include "trace/gpus.h"

namespace lockstep::trace {

namespace {

using NoteKind = RankNote::Kind;

// "gpu1:13135:13922 [0] src/transport/net_ib.cc:123 ", what stands before NCCL's message: host,
// process and CUDA's index of its GPU.
LoggedProcess process_of_nccl(std::string_view before) {
  const std::size_t bracket = before.rfind(" [");
  if (bracket == kNpos) return {};
  // A time may stand before it: "[2025-11-24 11:20:21] gpu1:13135:13922 [5]".
  std::string_view who = before.substr(0, bracket);
  who.remove_prefix(who.find_last_of(" \t") + 1);
  const std::size_t thread = who.rfind(':');
  if (thread == kNpos) return {};
  const std::size_t process = who.substr(0, thread).rfind(':');
  if (process == kNpos) return {};
  const auto pid = number_after(who.substr(process), ":");
  if (!pid || *pid <= 0) return {};
  // A launcher may write a prefix: "[default3]:gpu1".
  const std::string_view head = who.substr(0, process);
  const std::size_t host = head.find_last_of(" \t:") + 1;
  const auto device = number_after(before.substr(bracket), " [");
  return {*pid, head.substr(host), gpu_index(device.value_or(kNone))};
}

// Where " WARN " of NCCL before 2.3 stands, which does not name NCCL:
// "node1:12:34 [0] include/socket.h:360 WARN Call to connect failed : …".
std::size_t old_nccl_warning_in(std::string_view text) {
  const std::size_t at = text.find(kOldNcclWarning);
  if (at == kNpos || at == 0 || text[at - 1] < '0' || text[at - 1] > '9') return kNpos;
  const std::string_view before = text.substr(0, at);
  const std::size_t file = before.rfind(' ');
  const bool is_place = file != kNpos && contains_text(before.substr(file), ":") &&
                        before.substr(0, file).ends_with(']');
  return is_place && process_of_nccl(before).pid != kNone ? at : kNpos;
}

}  // namespace

std::optional<NcclMessage> nccl_message_in(std::string_view line) {
  if (const std::size_t at = line.find(kStuckWatchdog); at != kNpos)
    return NcclMessage{NoteKind::watchdog, std::string(line.substr(at, line.find(". ", at) - at))};
  if (const std::size_t at = line.find(kDeepEp); at != kNpos)
    return NcclMessage{NoteKind::watchdog, std::string(line.substr(at))};
  if (const std::size_t at = line.find(kStoreLost); at != kNpos)
    return NcclMessage{NoteKind::peer_lost, std::string(line.substr(at))};
  if (const std::size_t at = old_nccl_warning_in(line); at != kNpos)
    return NcclMessage{NoteKind::nccl_warning, fmt::format("NCCL{}", line.substr(at)),
                       process_of_nccl(line.substr(0, at))};
  if (const std::size_t at = line.find(kNcclWarning); at != kNpos)
    return NcclMessage{NoteKind::nccl_warning, std::string(line.substr(at)),
                       process_of_nccl(line.substr(0, at))};
  return std::nullopt;
}

bool has_old_nccl_warning(std::string_view text) {
  while (!text.empty())
    if (old_nccl_warning_in(take_until(text, '\n')) != kNpos) return true;
  return false;
}

}  // namespace lockstep::trace
