#include "base/patience.h"

#include <unistd.h>

#include <chrono>
#include <iostream>

namespace lockstep {

Patience::Patience(std::string doing) : doing_(std::move(doing)) {
  if (::isatty(STDERR_FILENO) == 1) thread_ = std::thread([this] { show(); });
}

Patience::~Patience() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  ended_.notify_one();
  thread_.join();
}

void Patience::show() {
  std::unique_lock lock(mutex_);
  int seconds = 0;
  while (!ended_.wait_for(lock, std::chrono::seconds(1), [this] { return over_; }))
    std::cerr << "\r" << doing_ << ": " << ++seconds << " s" << std::flush;
  // Erases the line.
  if (seconds > 0) std::cerr << "\r\x1b[K" << std::flush;
}

}  // namespace lockstep
