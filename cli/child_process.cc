#include "cli/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace lockstep::cli {

Result<pid_t> spawn(const std::vector<std::string>& command, const SpawnOptions& options) {
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  if (options.standard_output)
    ::posix_spawn_file_actions_adddup2(&actions, *options.standard_output, STDOUT_FILENO);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  if (options.own_group) {
    sigset_t none;
    sigemptyset(&none);
    ::posix_spawnattr_setsigmask(&attributes, &none);
    ::posix_spawnattr_setpgroup(&attributes, 0);
    ::posix_spawnattr_setflags(&attributes,
                               static_cast<short>(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP));
  }
  std::vector<char*> arguments;
  arguments.reserve(command.size() + 1);
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t process = -1;
  const int failed =
      ::posix_spawnp(&process, arguments[0], &actions, &attributes, arguments.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return system_error("cannot start the command", failed, command[0]);
  return process;
}

std::optional<int> wait_for(pid_t process) {
  int status = 0;
  while (::waitpid(process, &status, 0) < 0)
    if (errno != EINTR) return std::nullopt;
  return WIFEXITED(status) ? std::optional(WEXITSTATUS(status)) : std::nullopt;
}

std::optional<std::string> output_of(const std::vector<std::string>& command) {
  int ends[2];
  // The child gets its end as standard output, and neither of these two.
  if (::pipe2(ends, O_CLOEXEC) != 0) return std::nullopt;
  const Result<pid_t> child = spawn(command, {.standard_output = ends[1]});
  ::close(ends[1]);
  std::string out;
  std::array<char, 4096> buffer{};
  // Until the child closes its end: waiting for it first would block both where it prints more than
  // a pipe holds.
  for (ssize_t n = 0; child && (n = ::read(ends[0], buffer.data(), buffer.size())) > 0;)
    out.append(buffer.data(), static_cast<std::size_t>(n));
  ::close(ends[0]);
  if (!child || wait_for(*child) != 0) return std::nullopt;
  while (!out.empty() && (out.back() == '\n' || out.back() == '\r')) out.pop_back();
  return out;
}

}  // namespace lockstep::cli
