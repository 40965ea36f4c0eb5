#include "trace/device_times.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace lockstep::trace {

std::vector<Nanos> device_times(const RankTrace& trace) {
  std::vector<Nanos> began(trace.calls.size(), kNoTime);
  std::vector<Nanos> out(trace.calls.size(), kNoTime);
  for (std::size_t c = 0; c < std::min(out.size(), trace.device_times.size()); ++c)
    if (trace.device_times[c] > 0) out[c] = trace.device_times[c];
  for (const Event& event : trace.events) {
    if (event.time == kNoTime) continue;
    if (event.kind == EventKind::start) began[event.index] = event.time;
    if (event.kind != EventKind::complete || began[event.index] == kNoTime) continue;
    Nanos& nanos = out[event.index];
    if (event.time <= began[event.index]) {
      nanos = 0;
    } else if (__builtin_sub_overflow(event.time, began[event.index], &nanos)) {
      nanos = INT64_MAX;
    }
  }
  return out;
}

}  // namespace lockstep::trace
