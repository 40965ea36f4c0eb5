#include "trace/evidence/torchrun_summary.h"

#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"
#include "trace/formats/log_lines.h"
#include "trace/trace_builder.h"

namespace lockstep::trace {

TorchrunSummary::Taken TorchrunSummary::take(std::string_view line) {
  if (contains_text(line, "Root Cause (first observed failure)")) {
    present_ = true;
    return {.part = true};
  }
  // The number after a key, which may be anywhere in the line.
  const auto value = [&](std::string_view key) -> std::optional<std::int64_t> {
    const std::size_t at = line.find(key);
    if (at == kNpos) return std::nullopt;
    return number_after(line.substr(at), ": ");
  };
  constexpr std::string_view kTime = "time      : ";
  if (const std::size_t at = line.find(kTime); at != kNpos) {
    constexpr std::size_t kLongestTime = 32;
    time_ = trimmed(line.substr(at + kTime.size(), kLongestTime));
    return {.part = true};
  }
  constexpr std::string_view kHost = "host      : ";
  if (const std::size_t at = line.find(kHost); at != kNpos) {
    host_ = trimmed(line.substr(at + kHost.size()));
    return {.part = true};
  }
  if (contains_text(line, "(local_rank: ")) {
    if (const auto rank = value("rank  "); rank && is_possible_rank(*rank, kMaxWorldSize)) {
      rank_ = Rank(static_cast<std::int32_t>(*rank));
      local_rank_ = value("(local_rank").value_or(kNone);
      return {.part = true};
    }
  }
  if (rank_.value == kNone || !contains_text(line, "exitcode ") || !contains_text(line, "(pid: "))
    return {};
  Failure& out = failure_;
  out.pid = number_after(line, "(pid: ").value_or(kNone);
  const std::int64_t code = value("exitcode ").value_or(0);
  // torchrun ends the other ranks itself (SIGTERM), and the watchdog aborts those that wait
  // (SIGABRT): only the first failure is the cause.
  out.kind = code == -11 || code == -7 ? RankNote::Kind::crashed
             : code == -9 && present_  ? RankNote::Kind::killed
                                       : RankNote::Kind::ended;
  out.host = std::exchange(host_, {});
  out.first = present_;
  out.time = std::exchange(time_, {});
  out.text = fmt::format("{}by torchrun: exit code {}{}{}", out.first ? "the first failure, " : "",
                         code, out.time.empty() ? "" : " at ", out.time);
  out.rank = std::exchange(rank_, Rank(kNone));
  out.local_rank = std::exchange(local_rank_, kNone);
  if (present_ && code == 1) raised_first_ = out.rank;
  if (code == -6) aborted_.push_back(out.rank);
  return {.part = true, .failure = &out};
}

}  // namespace lockstep::trace
