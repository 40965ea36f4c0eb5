#include "trace/evidence/gpu_lines.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"
#include "trace/formats/log_lines.h"

namespace lockstep::trace {

namespace {

// True for XIDs after which the GPU does no work until it is reset (NVIDIA's catalog: double-bit
// errors, a GPU off the bus, an uncontained error, GSP time-outs).
bool stops_the_gpu(std::int64_t xid) {
  static constexpr std::array<std::int64_t, 8> kFatal = {48, 62, 79, 95, 109, 119, 120, 140};
  return std::find(kFatal.begin(), kFatal.end(), xid) != kFatal.end();
}

}  // namespace

std::optional<XidLine> parse_xid(std::string_view line) {
  const std::size_t at = line.find(kXid);
  if (at == kNpos) return std::nullopt;
  const std::string_view text = line.substr(at);
  const std::size_t close = text.find("): ");
  if (close == kNpos) return std::nullopt;
  const auto number = number_after(text.substr(close), "): ");
  if (!number) return std::nullopt;
  // "pid='<unknown>'" and "pid=1234" both occur.
  const auto pid = number_after(text, "pid=");
  const std::int64_t process = pid ? *pid : number_after(text, "pid='").value_or(kNone);
  return XidLine{stops_the_gpu(*number) ? RankNote::Kind::gpu_fault : RankNote::Kind::gpu_warning,
                 process > 0 ? process : kNone, text};
}

std::optional<GpuLines::Fault> GpuLines::take(std::string_view line) {
  if (const std::size_t at = line.find(kException); at != kNpos)
    return Fault{RankNote::Kind::gpu_fault, std::string(line.substr(at))};
  if (const std::size_t at = line.find(kAccess); at != kNpos)
    return Fault{RankNote::Kind::crashed, std::string(line.substr(at))};
  if (contains_text(line, kNamed)) named_ = word_after(line, kNamed).substr(0, 32);
  if (!contains_text(line, kLost)) return std::nullopt;
  return Fault{RankNote::Kind::gpu_fault,
               fmt::format("GPU {} has fallen off the bus", std::exchange(named_, {}))};
}

}  // namespace lockstep::trace
