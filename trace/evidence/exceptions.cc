#include "trace/evidence/exceptions.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"
#include "trace/formats/log_lines.h"
#include "trace/trace_builder.h"

namespace lockstep::trace {

namespace {

constexpr std::string_view kBoxCorner = "\xE2\x95\xAD";  // of rich: ╭
constexpr std::string_view kBoxSide = "\xE2\x94\x82";    // │
constexpr std::string_view kBoxEnd = "\xE2\x95\xB0";     // ╰

// "torch.OutOfMemoryError: CUDA out of memory", "KeyError: 'x'", "AssertionError".
bool looks_like_exception(std::string_view line) {
  const std::size_t end = line.find(':');
  const std::string_view type = line.substr(0, end);
  constexpr std::size_t kLongestType = 128;
  if (type.empty() || type.size() > kLongestType) return false;
  if (end != kNpos && end + 1 < line.size() && line[end + 1] != ' ') return false;
  return (is_letter(type.front()) || type.front() == '_') &&
         std::all_of(type.begin(), type.end(),
                     [](char c) { return is_letter(c) || c == '_' || c == '.' || is_digit(c); });
}

bool is_indented(std::string_view line) { return line.starts_with(' ') || line.starts_with('\t'); }

}  // namespace

bool mentions_a_peer(std::string_view text) {
  static constexpr std::array<std::string_view, 51> kSigns = {
      "closed by remote peer", "Call to recv from", "Got completion from peer",
      "Detected mismatch between collectives", "Connection closed by peer",
      "Connection reset by peer", "Connection refused", "Broken pipe", "Timed out waiting",
      "Timed out receiving",  // of the store, what another rank was to put there
      "Timed out after", "timed out after",
      "store based barrier",  // of init_process_group: others did not come
      "Timed out initializing",
      "waiting for clients",                    // of TCPStore
      "setting up NCCL communicator and retr",  // rank 0 did not come
      "EI0002",                                 // of HCCL: a peer's notification did not come
      "EI0006",                                 // of HCCL: a peer's connection did not come
      // Of Ascend's runtime: a task or a stream did not end in time, as all do that wait for a
      // peer.
      "error code:107020", "error code:507046", "error code:507048", "HCCL_E_TIMEOUT",
      "failed to pass monitoredBarrier", "reached monitoredBarrier, but",
      "RendezvousConnectionError", "RendezvousTimeoutError", "RendezvousClosedError",
      // Written by processes that report another one's end.
      "ActorDiedError", "WorkerCrashedError", "EngineDeadError", "ProcessRaisedException",
      "due to an exception in a background process", "has timed out", "Application timeout",
      "Socket Timeout", "socket timeout", "wait timeout", "pair closure", "got 0 bytes",
      "recvValue failed", "aught collective operation timeout", "remote process exited",
      "remote process has exited", "communicator was aborted", "NCCL error: remote",
      "ncclRemoteError", "ncclSystemError", "DistStoreError", "DistNetworkError",
      "ChildFailedError", "SignalException"};
  if (contains_text(text, "DataLoader")) return false;  // it waits for its own workers
  if (mentions_taken_port(text)) return false;
  return std::any_of(kSigns.begin(), kSigns.end(),
                     [&](auto sign) { return contains_text(text, sign); });
}

bool mentions_taken_port(std::string_view text) {
  return contains_text(text, "EADDRINUSE") || contains_text(text, "ddress already in use");
}

bool mentions_timeout(std::string_view text) {
  return contains_text(text, "Timed out waiting") ||
         contains_text(text, "failed to pass monitoredBarrier in");
}

Rank rank_said_by(std::string_view text) {
  const auto rank_from = [](std::optional<std::int64_t> number) {
    return number && is_possible_rank(*number, kMaxWorldSize)
               ? Rank(static_cast<std::int32_t>(*number))
               : Rank(kNone);
  };
  for (const std::string_view store : {"store on Rank ", "store based barrier on rank: "})
    if (contains_text(text, store)) return rank_from(number_after(text, store));
  // "RuntimeError: [Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 30000 ms"
  constexpr std::string_view kMonitor = ": [Rank ";
  if (contains_text(text, "monitoredBarrier")) return rank_from(number_after(text, kMonitor));
  constexpr std::string_view kRank = ": Rank ";
  const std::size_t at = text.find(kRank);
  if (at == kNpos || at != text.find(": ")) return Rank(kNone);
  const std::string_view rest = text.substr(at + kRank.size());
  const std::size_t digits = rest.find_first_not_of("0123456789");
  if (digits == kNpos || digits == 0) return Rank(kNone);
  const std::string_view behind = rest.substr(digits);
  const bool of_itself = behind.starts_with(": ") || behind.starts_with(", node ");
  return of_itself ? rank_from(number_after(text, kRank)) : Rank(kNone);
}

bool mentions_hardware(std::string_view text) {
  static constexpr std::array<std::string_view, 9> kSigns = {
      "uncorrectable ECC",
      "uncorrectable NVLink",
      "cudaErrorECCUncorrectable",
      "fallen off the bus",
      "GPU is lost",
      "cudaErrorDevicesUnavailable",
      "CUDA error: hardware",
      "Unable to determine the device handle",
      "HW Exception by GPU"};
  return std::any_of(kSigns.begin(), kSigns.end(),
                     [&](auto sign) { return contains_text(text, sign); });
}

bool mentions_unused_parameters(std::string_view text) {
  return contains_text(text, "Expected to have finished reduction in the prior iteration");
}

bool mentions_memory(std::string_view text) {
  static constexpr std::array<std::string_view, 6> kSigns = {
      "OutOfMemoryError",  "out of memory",         "MemoryError",
      "HIP out of memory", "can't allocate memory", "Cannot allocate memory"};
  return std::any_of(kSigns.begin(), kSigns.end(),
                     [&](auto sign) { return contains_text(text, sign); });
}

RankNote::Kind kind_of_exception(std::string_view text) {
  if (contains_text(text, "ProcessExitedException")) {
    if (contains_text(text, "signal SIGKILL")) return RankNote::Kind::killed;
    const bool crashed = contains_text(text, "signal SIGSEGV") ||
                         contains_text(text, "signal SIGBUS") ||
                         contains_text(text, "signal SIGILL");
    return crashed ? RankNote::Kind::crashed : RankNote::Kind::ended;
  }
  if (mentions_a_peer(text)) return RankNote::Kind::peer_lost;
  return mentions_memory(text) ? RankNote::Kind::out_of_memory : RankNote::Kind::exception;
}

bool is_written_at_end(std::string_view text) {
  if (is_indented(text)) return true;  // in a message, mostly a list
  text = trimmed(text);
  if (text.empty()) return true;
  // "[W" to "[I" and "E0" to "W1" begin log lines of C++ and Python: "[W709 …", "E0709 …".
  static constexpr std::array<std::string_view, 31> kBegins = {
      "CUDA kernel errors",
      "making sure all `forward`",  // of DistributedDataParallel, about unused parameters
      "If you already have done the above",
      "EI00",  // of HCCL
      "EZ99",
      "HIP kernel errors",
      "For debugging consider passing",
      "Compile with `TORCH_USE_",
      "Search for `cuda",
      "nccl",
      "Parameter indices which did not receive grad",
      "Parameters which did not receive grad",
      "Last error:",
      "[rank",
      "[W",
      "[E",
      "[F",
      "[I",
      "frame #",
      "Traceback",
      "terminate ",
      "what():",
      "Exception",
      "The above",
      "During handling",
      "WARNING:torch",
      "ERROR:torch",
      "E0",
      "W0",
      "E1",
      "W1"};
  if (std::any_of(kBegins.begin(), kBegins.end(), [&](auto b) { return text.starts_with(b); })) {
    return true;
  }
  static constexpr std::array<std::string_view, 9> kSigns = {
      "NCCL ",   "torch.distributed", "resource_tracker",
      "leaked ", "warnings.warn",     "destroy_process_group",
      "elastic", "Aborted",           "core dumped"};
  return std::any_of(kSigns.begin(), kSigns.end(),
                     [&](auto sign) { return contains_text(text, sign); });
}

namespace {

// Whether a type of a library is cut off in its name, as where a copy ended in the line:
// "torch.distributed.DistStoreEr". Names without a dot may be a program's own.
bool is_cut_type(std::string_view line) {
  static constexpr std::array<std::string_view, 6> kEnds = {"Error",     "Exception", "Warning",
                                                            "Interrupt", "Exit",      "Timeout"};
  const bool of_torch = line.starts_with("torch.") || line.starts_with("ray.exceptions.");
  return of_torch && line.find(':') == kNpos &&
         std::none_of(kEnds.begin(), kEnds.end(), [&](auto end) { return line.ends_with(end); });
}

}  // namespace

ExceptionReader::Taken ExceptionReader::take(std::string_view line) {
  if (begins(line)) return {.part = true};
  if (in_terminate_ || contains_text(line, kTerminate)) return take_terminate(line);
  return in_traceback_ ? take_traceback(line) : Taken();
}

bool ExceptionReader::begins(std::string_view line) {
  if (line.starts_with(kTraceback)) return in_traceback_ = true;
  // ╭──── Traceback (most recent call last) ────╮
  if (line.starts_with(kBoxCorner) && contains_text(line, kTraceback))
    return boxed_ = in_traceback_ = true;
  if (line.starts_with(kIgnored)) return ignored_ = true;
  if (line.starts_with(kInThread)) return in_thread_ = true;
  return false;
}

// "terminate called …", then a line with what().
ExceptionReader::Taken ExceptionReader::take_terminate(std::string_view line) {
  if (const std::size_t at = line.find(kTerminate); at != kNpos) {
    const std::string_view type = line.substr(at + kTerminate.size());
    in_terminate_ = true;
    terminated_by_ = type.substr(0, std::min(type.find('\''), RankNote::kLongest));
    return {.part = true};
  }
  in_terminate_ = false;
  constexpr std::string_view kWhat = "what():";
  const std::size_t at = line.find(kWhat);
  const std::string_view what = at == kNpos ? std::string_view() : line.substr(at + kWhat.size());
  return {.part = at != kNpos, .raised = fmt::format("{}: {}", terminated_by_, trimmed(what))};
}

ExceptionReader::Taken ExceptionReader::take_traceback(std::string_view line) {
  // Frames are indented. The first line that is not is the exception.
  if (line.empty() || is_indented(line)) return {.part = true};
  if (boxed_ && (line.starts_with(kBoxSide) || line.starts_with(kBoxEnd))) return {.part = true};
  if (contains_text(line, "RayTaskError(") && contains_text(line, "(pid=")) {
    of_task_ = line;
    return {.part = true};
  }
  in_traceback_ = boxed_ = false;
  if (!looks_like_exception(line) || is_cut_type(line)) return {};
  const bool thread = std::exchange(in_thread_, false);
  if (std::exchange(ignored_, false)) return {.part = true};
  if (line.starts_with("KeyboardInterrupt") || line.starts_with("SystemExit"))
    return {.part = true};
  return {.part = true,
          .raised = std::string(line),
          .in_thread = thread,
          .of_task = std::exchange(of_task_, {})};
}

}  // namespace lockstep::trace
