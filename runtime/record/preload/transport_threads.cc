#include "runtime/record/preload/transport_threads.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>

namespace lockstep::runtime {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kPause(1);

// A thread's line in /proc: "12 (pt_gloo_runloop) S 1 …".
bool is_busy(const fs::path& thread) {
  std::string line;
  std::getline(std::ifstream(thread / "stat"), line);
  constexpr std::string_view kName = " (pt_gloo_runloop) ";
  const std::size_t at = line.find(kName);
  return at != std::string::npos && line.substr(at + kName.size(), 1) != "S";
}

bool any_is_busy() {
  std::error_code failed;
  for (fs::directory_iterator it("/proc/self/task", failed), end; !failed && it != end;
       it.increment(failed))
    if (is_busy(it->path())) return true;
  return false;
}

}  // namespace

void wait_for_transport_threads(std::chrono::milliseconds most) {
  const auto end = std::chrono::steady_clock::now() + most;
  // Twice, since between two steps a thread may wait for a lock that another is about to release.
  for (int quiet = 0; quiet < 2 && std::chrono::steady_clock::now() < end;) {
    quiet = any_is_busy() ? 0 : quiet + 1;
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace lockstep::runtime
