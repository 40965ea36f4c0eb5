#include "trace/evidence/jax_tasks.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <fmt/format.h>

#include "base/text.h"
#include "trace/formats/log_lines.h"
#include "trace/trace_builder.h"

namespace lockstep::trace {

namespace {

// "Barrier_id: x. Timed out …", since 2024 "Id: x::0. This usually …": x.
std::string barrier_in(std::string_view message) {
  constexpr std::size_t kLongest = 64;
  std::string_view id = word_after(message, "Barrier_id: ");
  if (id.empty()) id = word_after(message, " Id: ");
  if (id.ends_with('.')) id.remove_suffix(1);
  return std::string(id.substr(0, std::min(id.find("::"), kLongest)));
}

}  // namespace

std::optional<JaxTasks::Missed> JaxTasks::take(std::string_view line) {
  constexpr std::string_view kTask = "/task:";
  constexpr std::size_t kMostTold = 4096;  // more than a file's notes
  if (const std::size_t at = line.find(kBarrier); at != kNpos) {
    barrier_ = barrier_in(line.substr(at));
    what_.clear();
  }
  if (contains_text(line, kAbsent)) {
    what_ = barrier_.empty() ? "did not come to a barrier in time"
                             : fmt::format("did not come to barrier {} in time", barrier_);
    return std::nullopt;
  }
  if (contains_text(line, kUnhealthy)) {
    what_ = "stopped sending heartbeats";
    return std::nullopt;
  }
  if (what_.empty()) return std::nullopt;
  const auto task = number_after(line, kTask);
  if (!task || !is_possible_rank(*task, kMaxWorldSize)) {
    what_.clear();
    return std::nullopt;
  }
  const Rank rank(static_cast<std::int32_t>(*task));
  if (told_.size() >= kMostTold || !told_.emplace(rank, what_).second) return std::nullopt;
  return Missed{rank, what_};
}

}  // namespace lockstep::trace
