#include "trace/evidence/blocked_tasks.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/text.h"
#include "trace/formats/log_lines.h"

namespace lockstep::trace {

namespace {

// A stack of the kernel is shorter. Lines of other sources may stand in between.
constexpr int kMostLines = 64;

bool may_be_of_a_rank(std::string_view task) {
  static constexpr std::array<std::string_view, 4> kNames = {"python", "pt_", "ray::", "torchrun"};
  return std::any_of(kNames.begin(), kNames.end(),
                     [&](std::string_view name) { return task.starts_with(name); });
}

// "pt_main_thread:4711": the number, if the name may be a rank's. Names may hold colons.
std::optional<std::int64_t> pid_of(std::string_view task) {
  const std::size_t colon = task.rfind(':');
  if (colon == kNpos || !may_be_of_a_rank(task)) return std::nullopt;
  return number_after(task.substr(colon), ":");
}

// Functions in which the kernel waits, whatever for.
bool waits_for_anything(std::string_view function) {
  // The beginnings of their names.
  static constexpr std::array<std::string_view, 17> kWaits = {
      "__schedule", "schedule",    "io_schedule",      "context_switch", "__switch_to",
      "bit_wait",   "__wait_on",   "out_of_line_wait", "wait_on_",       "folio_wait",
      "wait_for_",  "__wait_for_", "mutex_lock",       "__mutex",        "rwsem_",
      "down_",      "__down"};
  return std::any_of(kWaits.begin(), kWaits.end(),
                     [&](std::string_view begin) { return function.starts_with(begin); });
}

// Whether it is the name of a function of the kernel, and not a file: "libc.so.6(+0x29d90)".
bool is_name(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return is_letter(c) || is_digit(c) || c == '_' || c == '.';
  });
}

// " rpc_wait_bit_killable+0x1e/0xa0 [sunrpc]" → "rpc_wait_bit_killable [sunrpc]". Empty: no frame,
// one that the kernel is not sure of ("? "), or one that waits for anything.
std::string function_in(std::string_view line) {
  constexpr std::size_t kLongest = 80;
  const std::size_t plus = line.find("+0x");
  if (plus == kNpos) return "";
  const std::size_t blank = line.substr(0, plus).find_last_of(" :");  // "RIP: 0010:do_wait+0x1/0x2"
  const std::size_t begin = blank == kNpos ? 0 : blank + 1;
  const std::string_view function = line.substr(begin, plus - begin);
  const bool unsure = blank != kNpos && blank > 0 && line[blank - 1] == '?';
  if (!is_name(function) || function.size() > kLongest || unsure || waits_for_anything(function))
    return "";
  const std::size_t open = line.find('[', plus);
  const std::size_t close = line.find(']', plus);
  if (open == kNpos || close == kNpos || close < open || close - open > kLongest)
    return std::string(function);
  return fmt::format("{} {}", function, line.substr(open, close - open + 1));
}

}  // namespace

std::optional<BlockedTasks::Blocked> BlockedTasks::take(std::string_view line) {
  if (const std::size_t at = line.find(kHung); at != kNpos) {
    constexpr std::string_view kTask = "INFO: task ";
    const std::size_t task = line.substr(0, at).rfind(kTask);
    if (task == kNpos) return std::nullopt;
    const auto pid = pid_of(line.substr(task + kTask.size(), at - task - kTask.size()));
    const auto seconds = number_after(line, kHung);
    if (!pid || !seconds) return std::nullopt;
    lines_left_ = kMostLines;
    return Blocked{*pid, fmt::format("blocked in the kernel for more than {} seconds", *seconds)};
  }
  if (const std::size_t at = line.find(kLockup); at != kNpos) {
    const std::size_t open = line.find('[', at);
    const std::size_t close = open == kNpos ? kNpos : line.find(']', open);
    if (close == kNpos) return std::nullopt;
    const auto pid = pid_of(line.substr(open + 1, close - open - 1));
    const auto seconds = number_after(line.substr(at), " stuck for ");
    if (!pid || !seconds) return std::nullopt;
    lines_left_ = kMostLines;
    return Blocked{*pid, fmt::format("busy in the kernel for {} seconds (soft lockup)", *seconds)};
  }
  if (const std::size_t at = line.find(kWorker); at != kNpos) {
    const auto pid = number_after(line.substr(0, at), "Worker pid=");
    const auto seconds = number_after(line, kWorker);
    if (!pid || !seconds) return std::nullopt;
    return Blocked{*pid, fmt::format("blocked in the kernel for {} seconds", *seconds)};
  }
  return std::nullopt;
}

std::optional<BlockedTasks::Detail> BlockedTasks::detail(std::string_view line) {
  --lines_left_;
  if (contains_text(line, "</TASK>")) {
    lines_left_ = 0;
    return std::nullopt;
  }
  constexpr std::string_view kProcess = " tgid:";  // padded with blanks by some kernels
  if (const std::size_t at = line.find(kProcess); at != kNpos && contains_text(line, "task:"))
    if (auto process = number_after(trimmed(line.substr(at + kProcess.size())), ""))
      return Detail{process, ""};
  std::string function = function_in(line);
  if (function.empty()) return std::nullopt;
  lines_left_ = 0;
  return Detail{std::nullopt, std::move(function)};
}

}  // namespace lockstep::trace
