#include "runtime/worker/fork_ranks.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>

#include <fmt/format.h>

#include "base/files/write_file.h"
#include "runtime/record/job_ring.h"

namespace lockstep::runtime {
namespace {

// Reads as "--rank R" what was "--fork-ranks FILE"; left alone if there is no room.
void show_rank(int rank, const std::vector<char*>& arguments) {
  const auto option = std::find_if(arguments.begin(), arguments.end(), [](const char* argument) {
    return std::string_view(argument) == "--fork-ranks";
  });
  if (option == arguments.end() || option + 1 == arguments.end()) return;
  const auto write_over = [](char* place, const std::string& text) {
    const std::size_t room = std::strlen(place);
    if (text.size() > room) return;
    std::fill(std::copy(text.begin(), text.end(), place), place + room, '\0');
  };
  write_over(*option, "--rank");
  write_over(option[1], std::to_string(rank));
}

// In a forked process: waits until all are forked and this is the launcher's child.
void wait_for_the_others(int all_forked, pid_t forker, pid_t launcher) {
  char byte = 0;
  if (::read(all_forked, &byte, 1) != 1) _exit(128 + SIGKILL);  // the forker died before
  close(all_forked);
  while (getppid() == forker) std::this_thread::sleep_for(std::chrono::microseconds(500));
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launcher) _exit(128 + SIGKILL);  // it is gone; workers do not outlive it
}

Status write_to_own_log(const std::string& log) {
  const int file = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file < 0 || dup2(file, STDOUT_FILENO) < 0 || dup2(file, STDERR_FILENO) < 0)
    return system_error("cannot write", errno, log);
  close(file);
  return Status::ok();
}

}  // namespace

Result<int> fork_ranks(int ranks, const std::string& folder, const std::string& file,
                       const std::vector<char*>& arguments) {
  const pid_t launcher = getppid();
  const pid_t forker = getpid();
  int all_forked[2];
  if (pipe2(all_forked, O_CLOEXEC) != 0) return system_error("cannot fork the ranks", errno, "");
  std::fflush(nullptr);
  std::string pids;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t pid = fork();
    if (pid < 0)
      return system_error(fmt::format("cannot fork rank {} of {}", rank, ranks), errno, "");
    if (pid == 0) {
      close(all_forked[1]);
      wait_for_the_others(all_forked[0], forker, launcher);
      setpgid(0, 0);
      show_rank(rank, arguments);
      if (const Status ok = write_to_own_log(file_of_rank(folder, rank, ".log")); !ok)
        return ok.error();
      return rank;
    }
    pids += fmt::format("{}\n", pid);
  }
  if (const Status ok = write_file(file, pids); !ok) return ok.error();
  const std::string bytes(static_cast<std::size_t>(ranks), '\0');
  if (::write(all_forked[1], bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
    return system_error("cannot release the ranks", errno, "");
  std::_Exit(0);
}

}  // namespace lockstep::runtime
