// Asking about processes, and waiting for them; what the tests of the launcher share.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include "tests/support/temp_dir.h"

namespace lockstep::runtime::launch_testing {

// Whether the process runs; a zombie that nobody has reaped does not.
inline bool is_alive(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  const std::string line{std::istreambuf_iterator<char>(stat), {}};
  const std::size_t name_end = line.rfind(')');
  return name_end != std::string::npos && line.compare(name_end, 3, ") Z") != 0;
}

// Waits, up to a generous bound that only a failing test reaches.
inline bool eventually(const std::function<bool()>& condition,
                       std::chrono::seconds bound = std::chrono::seconds(20)) {
  const auto end = std::chrono::steady_clock::now() + bound;
  while (std::chrono::steady_clock::now() < end) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return condition();
}

}  // namespace lockstep::runtime::launch_testing
