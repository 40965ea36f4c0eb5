#include "runtime/record/thread_stacks.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"

namespace lockstep::runtime {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int kMaxFrames = 96;
// The handler's own frame, and the kernel's signal return.
constexpr int kHandlerFrames = 2;
// Far from the first real-time signals, which C libraries and profilers use.
int stop_signal() { return SIGRTMIN + 11; }

struct Taken {
  std::array<void*, kMaxFrames> addresses{};
  std::atomic<int> count{0};  // written last
};

void stop_here(int /*signal*/, siginfo_t* info, void* /*context*/) {
  if (info->si_code != SI_QUEUE || info->si_pid != getpid()) return;  // not sent by us
  auto* const taken = static_cast<Taken*>(info->si_value.sival_ptr);
  const int count = backtrace(taken->addresses.data(), kMaxFrames);
  taken->count.store(count, std::memory_order_release);
  for (;;) pause();
}

// Sends the signal to one thread, with the address where it writes its stack.
bool send_stop(pid_t thread, Taken& to) {
  siginfo_t info{};
  info.si_code = SI_QUEUE;
  info.si_pid = getpid();
  info.si_uid = getuid();
  info.si_value.sival_ptr = &to;
  return syscall(SYS_rt_tgsigqueueinfo, getpid(), thread, stop_signal(), &info) == 0;
}

std::string first_line(const std::string& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

std::string task_file(pid_t thread, const char* name) {
  return fmt::format("/proc/self/task/{}/{}", thread, name);
}

// The kernel's description of a thread that does not answer: "state D, in nv_wait".
std::string state_of(pid_t thread) {
  const std::string stat = first_line(task_file(thread, "stat"));
  const std::size_t name_end = stat.rfind(") ");
  std::string out = "state ";
  out += name_end == std::string::npos ? '?' : stat[name_end + 2];
  const std::string wait_channel = first_line(task_file(thread, "wchan"));
  if (!wait_channel.empty() && wait_channel != "0") out += fmt::format(", in {}", wait_channel);
  return out;
}

// The threads to stop, the main thread first.
std::vector<StoppedThread> program_threads() {
  const pid_t self = gettid();
  std::vector<StoppedThread> out;
  std::error_code failed;
  for (fs::directory_iterator it("/proc/self/task", failed), end; !failed && it != end;
       it.increment(failed)) {
    const std::string text = it->path().filename().string();
    pid_t id = 0;
    std::from_chars(text.data(), text.data() + text.size(), id);
    if (id == 0 || id == self) continue;
    std::string name = first_line(task_file(id, "comm"));
    // LibTorch's name for the threads that run a device's backward passes.
    if (id == getpid() || name.starts_with("pt_autograd")) {
      out.push_back({id, std::move(name), {}, ""});
    }
  }
  std::stable_partition(out.begin(), out.end(),
                        [](const StoppedThread& thread) { return thread.id == getpid(); });
  return out;
}

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), &std::free);
  return status == 0 ? text.get() : name;
}

// `called`: the address is a return address; the call is the instruction before it.
std::string frame_in_words(void* address, bool called) {
  const auto at = reinterpret_cast<std::uintptr_t>(address) - (called ? 1 : 0);
  Dl_info found{};
  const bool known = dladdr(reinterpret_cast<void*>(at), &found) != 0;
  const bool named = known && found.dli_sname != nullptr;
  std::string name = named ? demangled(found.dli_sname) : "??";
  if (name.find('(') == std::string::npos) name += " ()";
  return known && found.dli_fname != nullptr ? fmt::format("{} from {}", name, found.dli_fname)
                                             : name;
}

std::vector<std::string> frames_in_words(const Taken& taken, int count) {
  std::vector<std::string> out;
  for (int i = kHandlerFrames; i < count; ++i) {
    out.push_back(frame_in_words(taken.addresses[static_cast<std::size_t>(i)], i > kHandlerFrames));
  }
  return out;
}

}  // namespace

void prepare_to_stop_program() {
  std::array<void*, 1> one{};
  backtrace(one.data(), 1);  // the first call loads the unwinder, which allocates
  struct sigaction action {};
  action.sa_sigaction = stop_here;
  action.sa_flags = SA_SIGINFO;
  sigfillset(&action.sa_mask);
  LOCKSTEP_CHECK(sigaction(stop_signal(), &action, nullptr) == 0,
                 "a real-time signal takes a handler");
}

std::vector<StoppedThread> stop_program(std::chrono::milliseconds most) {
  std::vector<StoppedThread> threads = program_threads();
  // Never freed: a thread that answers too late still writes into it.
  auto& taken = *new std::deque<Taken>(threads.size());
  for (std::size_t i = 0; i < threads.size(); ++i) send_stop(threads[i].id, taken[i]);
  const Clock::time_point until = Clock::now() + most;
  for (std::size_t i = 0; i < threads.size(); ++i) {
    int count = 0;
    while ((count = taken[i].count.load(std::memory_order_acquire)) == 0 && Clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (count > 0) {
      threads[i].frames = frames_in_words(taken[i], count);
    } else {
      threads[i].instead = state_of(threads[i].id);
    }
  }
  return threads;
}

std::string to_text(const std::vector<StoppedThread>& threads) {
  std::string out;
  for (std::size_t i = 0; i < threads.size(); ++i) {
    const StoppedThread& thread = threads[i];
    out += fmt::format("Thread {} (LWP {}) \"{}\":\n", i + 1, thread.id, thread.name);
    if (!thread.instead.empty()) out += fmt::format("(no stack: {})\n", thread.instead);
    for (std::size_t f = 0; f < thread.frames.size(); ++f) {
      out += fmt::format("#{}{}{}\n", f, f < 10 ? "  " : " ", thread.frames[f]);
    }
    out += "\n";
  }
  return out;
}

}  // namespace lockstep::runtime
