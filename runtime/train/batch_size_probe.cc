#include "runtime/train/batch_size_probe.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <filesystem>
#include <fstream>
#include <limits>
#include <new>
#include <stdexcept>
#include <system_error>
#include <thread>

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include "runtime/groups/process_groups.h"
#include "runtime/record/c10d/recording_work.h"
#include "runtime/train/result.h"
#include "runtime/train/train_loop.h"

namespace lockstep::runtime {
namespace {

namespace fs = std::filesystem;

// Often enough to end a process before it takes much more than the limit; 100 polls a second cost
// nothing.
constexpr auto kLookEvery = std::chrono::milliseconds(10);
// The timeout of calls. A try is a single rank, which waits for nobody.
constexpr auto kTimeout = std::chrono::hours(1);
// The child's exit status for "out of memory", apart from 1 for other errors.
constexpr int kExitOutOfMemory = 3;

// A temporary folder, removed by the destructor.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = (fs::temp_directory_path() / "lockstep-batch-size.XXXXXX").string();
    if (::mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// The scenario as a job of one rank, without what needs other ranks, writes files, or takes time
// without changing the memory that one micro-batch needs.
Scenario alone(Scenario scenario, const ProbeOptions& options) {
  scenario.ranks = 1;
  scenario.train.batch_size = options.batch_size;
  scenario.train.steps = options.steps;
  scenario.train.checkpoint = {};
  scenario.train.evaluate = false;
  scenario.train.accumulation = {};
  if (scenario.strategy.kind == Scenario::Strategy::Kind::pipeline) {
    scenario.strategy = {};
    scenario.strategy.kind = Scenario::Strategy::Kind::manual;
  }
  scenario.strategy.shard_ranks = 0;
  scenario.strategy.process_groups = Scenario::Strategy::Groups::one;
  // Rules for named ranks say nothing about the batch that needs most memory; what the sampler
  // draws does.
  std::erase_if(scenario.data.modality, [](const auto& rule) { return !rule.ranks.empty(); });
  return scenario;
}

// The CPU's allocator throws a plain c10::Error; only its text says that memory ran out.
bool is_out_of_memory(const std::exception& error) {
  const std::string what = error.what();
  return dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
         dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
         what.find("can't allocate memory") != std::string::npos ||
         what.find("not enough memory") != std::string::npos;
}

// Samples per second without the first step, which allocates and warms up.
double rate_after_first(const WorkerResult& result, int batch_size) {
  double ms = 0;
  for (std::size_t i = 1; i < result.step_ms.size(); ++i) ms += result.step_ms[i];
  const auto samples = static_cast<double>(result.step_ms.size() - 1) * batch_size;
  return ms > 0 ? samples / ms * 1e3 : 0;
}

// Runs in the child and does not return. Writes to the file "result": the rate, or the reason of
// the failure.
[[noreturn]] void be_probe(const Scenario& scenario, const ProbeOptions& options,
                           const std::string& folder) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // If the whole machine runs out of memory, the kernel should kill this process and no other.
  std::ofstream("/proc/self/oom_score_adj") << 1000;
  const int log = ::open((folder + "/log").c_str(), O_WRONLY | O_CREAT, 0600);
  if (log >= 0) ::dup2(log, STDERR_FILENO);
  int status = 1;
  std::ofstream out(folder + "/result");
  try {
    // One thread: after fork() the parent's thread pools do not exist in the child.
    at::set_num_threads(1);
    trace::RingWriter::Options ring;
    ring.path = folder + "/rank_0.ring";
    ring.rank = trace::Rank(0);
    ring.world_size = 1;
    ring.capacity = 1U << 14U;
    auto writer = trace::RingWriter::create(ring);
    if (!writer) throw std::runtime_error(writer.error().str());
    Recorder recorder(**writer);
    ProcessGroups groups(folder + "/store", {0, 1}, kTimeout, recorder);
    WorkerResult result;
    const Scenario job = alone(scenario, options);
    TrainLoop(job, groups, recorder, result).run();
    out << rate_after_first(result, options.batch_size);
    status = 0;
  } catch (const std::exception& error) {
    status = is_out_of_memory(error) ? kExitOutOfMemory : 1;
    out << message_of(error);
  }
  out.flush();
  // No destructors and no atexit handlers: those belong to the parent.
  std::_Exit(status);
}

// Waits for the process, and kills it when its resident memory passes the limit (0: no limit).
struct Ended {
  bool known = false;  // false: the kernel reaped it, which happens where SIGCHLD is ignored
  int status = 0;
  rusage usage{};
  bool over_limit = false;
};
Ended watch(pid_t process, std::int64_t limit_bytes) {
  Ended ended;
  pid_t got = 0;
  while ((got = ::wait4(process, &ended.status, WNOHANG, &ended.usage)) == 0) {
    if (limit_bytes > 0 && resident_bytes(process) > limit_bytes) {
      ended.over_limit = true;
      ::kill(process, SIGKILL);
    }
    std::this_thread::sleep_for(kLookEvery);
  }
  ended.known = got == process;
  return ended;
}

std::string text_of(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

ProbeResult probe_batch_size(const Scenario& scenario, const ProbeOptions& options) {
  using Outcome = ProbeResult::Outcome;
  ProbeResult result;
  const ScratchFolder folder;
  if (folder.path().empty()) {
    result.why = "no folder can be made for temporary files; set TMPDIR";
    return result;
  }
  const pid_t process = ::fork();
  if (process < 0) {
    result.why = "no process can be started";
    return result;
  }
  if (process == 0) be_probe(scenario, options, folder.path());
  const Ended ended = watch(process, options.limit_bytes);
  if (!ended.known) {
    result.why = "the system does not say how the process ended: SIGCHLD is ignored here";
    return result;
  }
  result.peak_bytes = ended.usage.ru_maxrss * std::int64_t{1024};  // Linux counts in KiB
  const std::string printed = text_of(folder.path() + "/result");
  const bool over = options.limit_bytes > 0 && result.peak_bytes > options.limit_bytes;
  // A process can also pass the limit between two polls and end well; ru_maxrss shows that.
  if (ended.over_limit || (WIFEXITED(ended.status) && WEXITSTATUS(ended.status) == 0 && over)) {
    result.outcome = Outcome::over_limit;
  } else if (WIFSIGNALED(ended.status)) {
    // SIGKILL that we did not send: the kernel's out-of-memory killer.
    const bool by_system = WTERMSIG(ended.status) == SIGKILL;
    result.outcome = by_system ? Outcome::killed : Outcome::failed;
    result.why = c10::str("ended by signal ", WTERMSIG(ended.status));
  } else if (WEXITSTATUS(ended.status) == kExitOutOfMemory) {
    result.outcome = Outcome::out_of_memory;
  } else if (WEXITSTATUS(ended.status) != 0) {
    result.why = printed;
  } else {
    result.outcome = Outcome::fits;
    result.samples_per_s = std::strtod(printed.c_str(), nullptr);
  }
  return result;
}

std::int64_t free_memory_bytes() {
  std::int64_t free = std::numeric_limits<std::int64_t>::max();
  std::ifstream meminfo("/proc/meminfo");
  std::string key;
  std::int64_t kib = 0;
  // Lines of /proc/meminfo: "MemAvailable:   12345678 kB".
  for (std::string unit; meminfo >> key >> kib; std::getline(meminfo, unit)) {
    if (key == "MemAvailable:") free = kib * 1024;
  }
  // cgroup version 2. memory.max may hold "max", which does not parse as a number: no limit.
  std::int64_t limit = 0;
  std::int64_t used = 0;
  std::ifstream max("/sys/fs/cgroup/memory.max");
  std::ifstream current("/sys/fs/cgroup/memory.current");
  if (max >> limit && current >> used)
    free = std::min(free, std::max<std::int64_t>(0, limit - used));
  return free;
}

}  // namespace lockstep::runtime
