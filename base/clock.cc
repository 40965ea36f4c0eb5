#include "base/clock.h"

#include <time.h>

namespace lockstep {

std::int64_t monotonic_nanos() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace lockstep
