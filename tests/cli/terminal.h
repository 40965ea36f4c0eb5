// The program in a terminal of its own: what a person sees, and types.
#pragma once

#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace lockstep::cli {

// 24 lines of so many columns. The program is killed with it.
class Terminal {
 public:
  explicit Terminal(std::vector<std::string> arguments, unsigned short columns = 100) {
    winsize size{};
    size.ws_row = 24;
    size.ws_col = columns;
    pid_ = forkpty(&descriptor_, nullptr, nullptr, &size);
    if (pid_ != 0) return;
    setenv("TERM", "xterm", 1);
    unsetenv("NO_COLOR");
    std::string program = LOCKSTEP_BINARY_DIR "/lockstep";
    std::vector<char*> argv = {program.data()};
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    execv(program.c_str(), argv.data());
    _exit(127);
  }
  ~Terminal() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(descriptor_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void press(const std::string& keys) {
    EXPECT_EQ(write(descriptor_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
  }
  // Reads until that is shown. False: half a minute passed, or the program ended.
  bool shows(const std::string& text) {
    shown_.clear();
    for (int tries = 0; tries < 600 && shown_.find(text) == std::string::npos; ++tries)
      if (!read_more(50)) return false;
    return shown_.find(text) != std::string::npos;
  }
  // Reads to the end. Returns the exit status.
  int ends() {
    while (read_more(30'000)) {
    }
    int status = 0;
    waitpid(std::exchange(pid_, 0), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  const std::string& shown() const { return shown_; }

 private:
  bool read_more(int milliseconds) {
    pollfd waiting{descriptor_, POLLIN, 0};
    if (poll(&waiting, 1, milliseconds) == 0) return milliseconds < 1000;
    std::array<char, 4096> room{};
    const ssize_t got = read(descriptor_, room.data(), room.size());
    if (got > 0) shown_.append(room.data(), static_cast<std::size_t>(got));
    return got > 0;
  }

  int descriptor_ = -1;
  pid_t pid_ = 0;
  std::string shown_;
};

}  // namespace lockstep::cli
