#include "runtime/launch/process.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/result.h"
#include "base/text.h"

namespace lockstep::runtime {

namespace {

using std::chrono::milliseconds;

// Why exec failed in the child, sent to the parent over a pipe that a successful exec closes.
struct SpawnFailure {
  int error;
};

// Runs in the child and does not return. Only async-signal-safe calls are allowed between fork and
// exec.
[[noreturn]] void become(char* const* argv, char* const* environment, int output, int failure_pipe,
                         pid_t parent) {
  const auto give_up = [&] {
    const SpawnFailure failure{errno};
    [[maybe_unused]] const ssize_t written = write(failure_pipe, &failure, sizeof failure);
    _exit(127);
  };
  // A process group of its own; killed when our thread ends; no signal blocked; no input.
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // the parent died before PR_SET_PDEATHSIG
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0 || dup2(output, STDOUT_FILENO) < 0 ||
      dup2(output, STDERR_FILENO) < 0)
    give_up();
  execve(argv[0], argv, environment);
  give_up();
  _exit(127);
}

Error cannot_start(const std::string& program, int error) {
  return system_error(fmt::format("cannot start {}", printable(program)), error, "");
}

// Our environment, with `more` added or replacing variables of the same name. Built before fork,
// because it allocates.
std::vector<std::string> environment_with(
    const std::vector<std::pair<std::string, std::string>>& more) {
  std::vector<std::string> out;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const std::string_view name = text.substr(0, text.find('='));
    if (std::none_of(more.begin(), more.end(), [&](const auto& own) { return own.first == name; }))
      out.emplace_back(text);
  }
  for (const auto& [name, value] : more) out.push_back(fmt::format("{}={}", name, value));
  return out;
}

std::vector<char*> pointers_to(std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (std::string& s : strings) out.push_back(s.data());
  out.push_back(nullptr);
  return out;
}

bool any_runs(std::vector<Process>& processes) {
  return std::any_of(processes.begin(), processes.end(), [](Process& p) { return p.running(); });
}

std::string signal_name(int number) {
  const char* name = sigabbrev_np(number);
  return name == nullptr ? fmt::format("signal {}", number) : fmt::format("SIG{}", name);
}

}  // namespace

std::string to_string(const ProcessEnd& end) {
  if (end.immortal) return "was killed, but the kernel does not let it go";
  if (end.signal == 0) return fmt::format("exited with status {}", end.exit_status);
  if (end.signal == SIGABRT) return "aborted (SIGABRT)";
  return fmt::format("was killed by {}", signal_name(end.signal));
}

Result<Process> Process::spawn(const std::vector<std::string>& argv, const std::string& output,
                               const SpawnOptions& options) {
  LOCKSTEP_CHECK(!argv.empty(), "a process needs a program");
  const int out = open(output.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (out < 0) return system_error("cannot write", errno, output);
  int failure_pipe[2];
  if (pipe2(failure_pipe, O_CLOEXEC) != 0) {
    const int error = errno;
    close(out);
    return cannot_start(argv[0], error);
  }
  std::vector<std::string> strings = argv;
  std::vector<std::string> variables = environment_with(options.environment);
  const std::vector<char*> arguments = pointers_to(strings);
  const std::vector<char*> environment = pointers_to(variables);

  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) become(arguments.data(), environment.data(), out, failure_pipe[1], parent);
  const int fork_error = errno;
  close(out);
  close(failure_pipe[1]);
  SpawnFailure failure{};
  // Blocks until exec: 0 bytes (exec closed the pipe) or a SpawnFailure.
  const ssize_t got = pid < 0 ? 0 : read(failure_pipe[0], &failure, sizeof failure);
  close(failure_pipe[0]);
  if (pid < 0) return cannot_start(argv[0], fork_error);
  Process process(pid, options.helpers_end_with_it);
  if (got == static_cast<ssize_t>(sizeof failure)) return cannot_start(argv[0], failure.error);
  return process;
}

Process::Process(Process&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      helpers_end_with_it_(other.helpers_end_with_it_),
      end_(other.end_) {}

Process& Process::operator=(Process&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(helpers_end_with_it_, other.helpers_end_with_it_);
  std::swap(end_, other.end_);
  return *this;
}

Process::~Process() {
  signal(SIGKILL);
  const auto until = std::chrono::steady_clock::now() + kKillTimeout;
  while (pid_ >= 0 && running() && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(milliseconds(1));
}

void Process::reap() {
  if (pid_ < 0 || (end_ && !end_->immortal)) return;
  // WNOWAIT sees that the process is dead without reaping it. Until it is reaped, its id, which is
  // its group's id, cannot be reused; so the group can be killed safely.
  siginfo_t ended{};
  if (waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      ended.si_pid != pid_)
    return;
  if (helpers_end_with_it_) kill(-pid_, SIGKILL);
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) != pid_) return;
  end_.emplace();
  if (WIFSIGNALED(status))
    end_->signal = WTERMSIG(status);
  else
    end_->exit_status = WEXITSTATUS(status);
}

const std::optional<ProcessEnd>& Process::poll() {
  reap();
  return end_;
}

void Process::signal(int number) {
  // It is not reaped, so neither its id nor its group's can belong to another process.
  if (pid_ < 0 || poll()) return;
  if (kill(-pid_, number) != 0) kill(pid_, number);  // the child has not made its group yet
}

bool Process::stopped() {
  if (pid_ < 0 || poll()) return true;
  siginfo_t state{};
  return waitid(P_PID, static_cast<id_t>(pid_), &state, WSTOPPED | WNOHANG | WNOWAIT) == 0 &&
         state.si_pid == pid_;
}

void end_all(std::vector<Process>& processes, milliseconds grace) {
  for (Process& p : processes) p.signal(SIGTERM);
  const auto until = std::chrono::steady_clock::now() + grace;
  while (any_runs(processes) && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(milliseconds(10));
  kill_all(processes);
}

void kill_all(std::vector<Process>& processes) {
  for (Process& p : processes) p.signal(SIGKILL);
  const auto until = std::chrono::steady_clock::now() + kKillTimeout;
  while (any_runs(processes) && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(milliseconds(1));
  for (Process& p : processes) {
    if (p.running()) p.end_ = ProcessEnd{.immortal = true};
  }
}

void stop_all(std::vector<Process>& processes, milliseconds most) {
  // Only the process, not its children: a child stopped between vfork and exec would block the
  // parent, too.
  for (Process& p : processes) {
    if (p.running()) kill(p.pid(), SIGSTOP);
  }
  const auto until = std::chrono::steady_clock::now() + most;
  const auto all_stand = [&] {
    return std::all_of(processes.begin(), processes.end(), [](Process& p) { return p.stopped(); });
  };
  while (!all_stand() && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(milliseconds(1));
}

}  // namespace lockstep::runtime
