#include "runtime/record/preload/job_record.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>

#include <ATen/Version.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/version.h>

#include "base/files/write_file.h"
#include "base/launcher.h"
#include "base/numbers.h"
#include "runtime/record/c10d/work_watch.h"
#include "runtime/record/preload/python_program.h"
#include "runtime/record/preload/rank_process.h"
#include "trace/formats/ring/ring_file.h"

namespace lockstep::runtime {
namespace {

// Records of a rank's ring, of 64 bytes each: 8 MiB, where LOCKSTEP_RECORD_EVENTS does not say.
constexpr std::uint64_t kEvents = 131'072;

// The version of the LibTorch that this process loaded; empty: it does not say.
std::string loaded_version() {
  const std::string config = at::show_config();
  constexpr std::string_view kKey = "TORCH_VERSION=";
  const std::size_t at = config.find(kKey);
  if (at == std::string::npos) return {};
  const std::size_t begin = at + kKey.size();
  return config.substr(begin, config.find_first_not_of("0123456789.", begin) - begin);
}

std::uint64_t capacity() {
  const char* const text = std::getenv("LOCKSTEP_RECORD_EVENTS");
  std::uint64_t events = kEvents;
  if (text != nullptr) std::from_chars(text, text + std::string_view(text).size(), events);
  return events;
}

// How often torchrun started the ranks before; nullptr: torchrun did not start this process.
const char* restarts() { return std::getenv("TORCHELASTIC_RESTART_COUNT"); }

// A mark for a run of the job: the time, this process and, under torchrun, which of its attempts it
// is. By that ranks that fail before they have a store are known to be of one run.
std::string new_run() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  // 19 digits until the year 2286, so that later runs are greater as texts.
  std::string mark =
      std::to_string(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count()) + "-" +
      std::to_string(::getpid());
  if (const char* const attempt = restarts(); attempt != nullptr)
    mark += "/" + std::to_string(::getppid()) + "-" + attempt;
  return mark;
}

// Which run of the job this is: the mark that the first rank that asks puts into the store over
// which the ranks found each other. Empty where there is no store.
template <typename Group>
std::string run_of_job(const Group& group) {
  if constexpr (requires { group.getStore(); }) {
    try {
      auto store = group.getStore();
      if (auto* const part = dynamic_cast<c10d::PrefixStore*>(store.get()); part != nullptr)
        store = part->getUnderlyingNonPrefixStore();
      if (!store) return {};
      // torchrun's store outlives the ranks, and is used again when they are restarted.
      const char* const attempt = restarts();
      const std::string key = std::string("lockstep/run/") + (attempt == nullptr ? "0" : attempt);
      const std::string mine = new_run();
      const std::vector<std::uint8_t> agreed =
          store->compareSet(key, std::vector<std::uint8_t>(), {mine.begin(), mine.end()});
      return {agreed.begin(), agreed.end()};
    } catch (const std::exception&) {  // a store that cannot do it, or whose server is gone
    }
  }
  return {};
}

std::atomic<JobRecord*> recording_job{nullptr};  // once it has a file

// trace::Call::thread of the calling thread. Autograd's threads belong to the thread that waits for
// them in backward, and count as the program's first.
std::uint16_t number_of_thread() {
  thread_local const std::uint16_t number = [] {
    if (::syscall(SYS_gettid) == ::getpid()) return std::uint16_t{0};
    constexpr std::size_t kLongestName = 16;  // Linux's
    char name[kLongestName] = {};
    ::pthread_getname_np(::pthread_self(), name, sizeof name);
    if (std::string_view(name).starts_with("pt_autograd")) return std::uint16_t{0};
    static std::atomic<std::uint32_t> threads{0};
    return static_cast<std::uint16_t>(std::min<std::uint32_t>(++threads, UINT16_MAX));
  }();
  return number;
}

// Whether Ctrl-C ended the rank: its user stopped the job, and it did nothing wrong.
bool is_interrupt(std::string_view exception) { return exception.starts_with("KeyboardInterrupt"); }

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

// Waits until Gloo's threads have nothing left to do, but not longer than `most`.
//
// Such a thread wakes whoever waits for a call, and lets go of the call afterwards. If that was the
// program's last, Python may be ending by then; and where what the thread releases belongs to
// Python, it asks for Python's lock. Python answers a thread that asks so late by ending it, which
// C++ answers with std::terminate(): a job that had done all its work dies of SIGABRT. It can
// happen without a recorder, too; with one the thread has more to do before it lets go.
//
// Whether a thread still has something to do is read from its state: one that waits for work
// sleeps, one that was only stopped in favour of others does not.
void wait_for_transport_threads(std::chrono::milliseconds most) {
  const auto end = std::chrono::steady_clock::now() + most;
  // Twice, since between two steps a thread may wait for a lock that another is about to release.
  for (int quiet = 0; quiet < 2 && std::chrono::steady_clock::now() < end;) {
    quiet = any_is_busy() ? 0 : quiet + 1;
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace

JobRecord& JobRecord::of_process() {
  static JobRecord* const job = new JobRecord;  // never destroyed, see above
  return *job;
}

void JobRecord::at_exit(int status, void* job) {
  auto& self = *static_cast<JobRecord*>(job);
  if (::getpid() != self.own_pid_) return;  // what fork() copied is the parent's
  const std::lock_guard lock(self.end_mutex_);
  if (self.interrupted_) return;
  self.ended_ = true;
  self.stands_still_ = false;
  self.ring_->resume();  // whatever it was taken for
  ::unlink(self.stack_file_.c_str());
  // sys.exit(3) is not an exception to Python's hook.
  if (status != 0 && !self.recorder_->has_raised())
    self.recorder_->raised("SystemExit: " + std::to_string(status));
  self.ring_->finish(status == 0 ? trace::End::clean : trace::End::exception);
}

void JobRecord::at_immediate_exit(int status) {
  JobRecord* const job = recording_job.load(std::memory_order_acquire);
  if (status == 0 && job != nullptr) at_exit(status, job);
}

void JobRecord::look_for_hang(std::int64_t now) {
  const std::lock_guard lock(end_mutex_);
  if (ended_) return;
  const std::int64_t on_device = recorder_->outstanding() ? 1 : 0;
  const trace::HangWatch::Verdict verdict = hang_->look(ring_->written(), on_device, now);
  if (verdict == trace::HangWatch::Verdict::hangs) ring_->finish(trace::End::hung);
  if (verdict == trace::HangWatch::Verdict::goes_on) ring_->resume();
}

namespace {

// Python may end this thread, by unwinding it, while it waits for the GIL at the program's end.
extern "C" void* write_stacks_of(void* job) {
  static_cast<JobRecord*>(job)->write_stacks();
  return nullptr;
}

}  // namespace

void JobRecord::write_stacks() {
  PythonProgram* const python = PythonProgram::of_process();
  if (python == nullptr) return;
  python->write_stacks(stack_file_.c_str());
  // While this waited for the GIL, the program may have gone on, or ended.
  const std::lock_guard lock(end_mutex_);
  if (!stands_still_) ::unlink(stack_file_.c_str());
}

void JobRecord::look_for_standstill(std::int64_t now) {
  const std::lock_guard lock(end_mutex_);
  if (ended_) return;
  const std::int64_t outside = recorder_->waiting() ? 0 : 1;
  const trace::HangWatch::Verdict verdict = standstill_->look(ring_->written(), outside, now);
  if (verdict == trace::HangWatch::Verdict::hangs) {
    stands_still_ = true;
    pthread_t thread{};
    if (::pthread_create(&thread, nullptr, &write_stacks_of, this) == 0) ::pthread_detach(thread);
  }
  if (verdict == trace::HangWatch::Verdict::goes_on) {
    stands_still_ = false;
    ::unlink(stack_file_.c_str());
  }
}

void JobRecord::start_hang_watch() {
  const double timeout = trace::hang_timeout(std::getenv("LOCKSTEP_RECORD_HUNG_AFTER"));
  if (timeout <= 0) return;
  constexpr double kNanos = 1e9;
  hang_.emplace(static_cast<std::int64_t>(timeout * kNanos));
  standstill_.emplace(static_cast<std::int64_t>(timeout * kNanos));
  try {
    trace::look_at_times(timeout, [this](std::int64_t now) {
      look_for_hang(now);
      look_for_standstill(now);
    });
  } catch (const std::system_error& error) {
    std::fprintf(stderr, "liblockstep_record: hangs will not be marked: %s\n", error.what());
  }
}

void JobRecord::follow_from_start() {
  if (::getenv("LOCKSTEP_RECORD_DIR") == nullptr) return;
  // A rank without a launcher may be a process of Python's multiprocessing.
  const bool launched = find_launcher(::getenv) != nullptr;
  loaded_by_ = ::getpid();
  if (launched) ::on_exit(&JobRecord::at_exit_without_group, this);
  when_python_imports_torch([this, launched] {
    loaded_version_ = loaded_version();
    if (PythonProgram* const python = PythonProgram::of_process(); python != nullptr)
      python->on_uncaught([this](const std::string& what) { raised(what); });
    if (launched) note_restart();
  });
}

void JobRecord::note_restart() {
  const char* const attempt = restarts();
  if (attempt == nullptr || std::string_view(attempt) == "0") return;
  const std::optional<LaunchedRank> rank = started_as_rank();
  const char* const folder = std::getenv("LOCKSTEP_RECORD_DIR");
  if (!rank || folder == nullptr) return;
  const std::string name = folder + ("/rank_" + std::to_string(rank->rank));
  std::error_code failed;
  if (!fs::exists(name + ".ring", failed)) return;
  std::ofstream(name + trace::ring::kStartedAgain) << attempt << "\n";
}

void JobRecord::raised(const std::string& what) {
  const std::lock_guard lock(mutex_);
  if (!recorder_) {
    raised_early_ = what;
    return;
  }
  if (::getpid() != own_pid_) return;  // a process that the rank started, with a copy of this
  if (is_interrupt(what)) return interrupted(what);
  // A call, or the store, fails also because somebody ends a job that hangs, one rank after the
  // other: then this rank was waiting, and its exception is no end of its own.
  const bool by_call = recorder_->raised(what);
  const bool by_peer = what.starts_with("DistNetworkError") || what.starts_with("DistStoreError") ||
                       what.starts_with("DistBackendError");
  if (by_call || by_peer) return;
  // Not only at the exit, which takes Python a while: launchers kill the ranks when one has failed.
  const std::lock_guard end_lock(end_mutex_);
  ring_->resume();
  ring_->finish(trace::End::exception);
}

// A rank that hung before keeps that mark, and its stack: that is why it was interrupted.
void JobRecord::interrupted(const std::string& what) {
  const std::lock_guard end_lock(end_mutex_);
  if (ended_) return;
  ended_ = interrupted_ = true;
  recorder_->raised(what);  // where it was
  ring_->finish(trace::End::interrupted);
}

// LibTorch's own objects may be gone by then.
void JobRecord::at_exit_without_group(int status, void* job) {
  auto& self = *static_cast<JobRecord*>(job);
  if (status == 0 || ::getpid() != self.loaded_by_) return;
  const std::unique_lock lock(self.mutex_, std::try_to_lock);
  if (!lock.owns_lock() || self.tried_ || !is_python()) return;
  const std::optional<LaunchedRank> rank = started_as_rank();
  if (!rank) return;
  self.tried_ = true;
  trace::RingWriter::Options options;
  options.rank = trace::Rank(rank->rank);
  options.world_size = rank->world_size;
  options.job = new_run();
  if (!self.make_ring(options)) return;
  self.recorder_->raised(!self.raised_early_.empty() ? self.raised_early_
                                                     : "SystemExit: " + std::to_string(status));
  self.ring_->finish(is_interrupt(self.raised_early_) ? trace::End::interrupted
                                                      : trace::End::exception);
}

namespace {

// Which attempt of this process's launcher made the ring file; nothing: another run did.
std::optional<int> attempt_that_made(const std::string& file) {
  constexpr std::size_t kAt = offsetof(trace::ring::Header, job);
  char job[sizeof(trace::ring::Header::job) + 1] = {};
  std::ifstream in(file, std::ios::binary);
  if (!in.seekg(kAt) || !in.read(job, sizeof job - 1)) return std::nullopt;
  const std::string mark = job, launcher = "/" + std::to_string(::getppid()) + "-";
  const std::size_t at = mark.find(launcher);
  return at == std::string::npos ? std::nullopt
                                 : parse_number<int>(mark.substr(at + launcher.size()));
}

// Moves what an earlier attempt left for this rank into a folder of its own, attempt_0: the failure
// for which the launcher started all again is told there alone.
void keep_earlier_attempt(const std::string& folder, const std::string& name) {
  const char* const now = restarts();
  const std::optional<int> own = now == nullptr ? std::nullopt : parse_number<int>(now);
  const std::string file = folder + "/" + name + ".ring";
  const std::optional<int> made_by = own ? attempt_that_made(file) : std::nullopt;
  if (!made_by || *made_by >= *own) return;
  const std::string kept = folder + "/attempt_" + std::to_string(*made_by);
  if (!make_folder(kept)) return;
  std::error_code failed;  // then it is overwritten, as that of an earlier run
  for (const char* const ending : {".ring", ".stack"})
    fs::rename(folder + "/" + name + ending, kept + "/" + name + ending, failed);
}

}  // namespace

bool JobRecord::make_ring(trace::RingWriter::Options options) {
  const char* const folder = std::getenv("LOCKSTEP_RECORD_DIR");
  const auto refuse = [](const std::string& why) {
    std::fprintf(stderr, "liblockstep_record: nothing is recorded: %s\n", why.c_str());
    return false;
  };
  if (folder == nullptr || *folder == '\0') return refuse("LOCKSTEP_RECORD_DIR is not set");
  if (!loaded_version_.empty() && loaded_version_ != TORCH_VERSION) {
    return refuse("it was built for LibTorch " TORCH_VERSION ", and this process has " +
                  loaded_version_ + "; scripts/build-recorder builds it for the one that you have");
  }
  if (const Status made = make_folder(folder); !made) return refuse(made.error().str());
  const std::string name = folder + ("/rank_" + std::to_string(options.rank.value));
  keep_earlier_attempt(folder, "rank_" + std::to_string(options.rank.value));
  options.path = name + ".ring";
  options.program = ::program_invocation_short_name;
  options.capacity = capacity();
  auto ring = trace::RingWriter::create(options);
  if (!ring) return refuse(ring.error().str());
  ring_ = std::move(*ring);
  own_pid_ = ::getpid();
  recorder_ = std::make_unique<Recorder>(*ring_);
  gpu_.emplace(*ring_, ::getenv);
  stack_file_ = name + ".stack";
  ::unlink(stack_file_.c_str());  // an earlier run's
  ::unlink((name + trace::ring::kStartedAgain).c_str());
  return true;
}

void JobRecord::open(const c10d::ProcessGroup& first) {
  const Result<std::optional<LaunchedRank>> launched = launched_rank(::getenv);
  int rank = first.getRank();
  world_size_ = first.getSize();
  if (launched && *launched && (*launched)->world_size >= world_size_) {
    rank = (*launched)->rank;
    world_size_ = (*launched)->world_size;
  }
  loaded_version_ = loaded_version();
  trace::RingWriter::Options options;
  options.rank = trace::Rank(rank);
  options.world_size = world_size_;
  options.backend = first.getBackendName();
  options.job = run_of_job(first);
  if (!make_ring(options)) return;
  ::on_exit(&JobRecord::at_exit, this);
  recording_job.store(this, std::memory_order_release);
  start_hang_watch();
  if (PythonProgram* const python = PythonProgram::of_process(); python != nullptr) {
    python->on_uncaught([this](const std::string& what) { raised(what); });
    python->at_end([this] { let_go_of_calls(); });
    const char* const values = std::getenv("LOCKSTEP_RECORD_VALUES");
    constexpr const char* kWatchAll = "lockstep_watch_all";
    if (values != nullptr && std::string_view(values) == "1" && !python->import(kWatchAll)) {
      std::fprintf(stderr, "liblockstep_record: values are not recorded: Python cannot import %s\n",
                   kWatchAll);
    }
  }
}

void JobRecord::let_go_of_calls() {
  if (::getpid() != own_pid_) return;  // fork() copied neither the threads nor who unlocks
  constexpr std::chrono::milliseconds kMax(1000);
  const std::lock_guard lock(mutex_);
  if (watch_) watch_->look_now(kMax);
  wait_for_transport_threads(kMax);
}

bool JobRecord::is_open() const { return recording_job.load(std::memory_order_acquire) == this; }

CallOrigin JobRecord::origin() {
  const PythonProgram* const python = PythonProgram::of_process();
  if (python == nullptr) return {{}, {}, number_of_thread()};
  const PythonProgram::CallSite site = python->call_site();
  const std::string_view tag = site.in_join      ? trace::ring::kJoinTag
                               : site.functional ? trace::ring::kFunctionalTag
                                                 : "";
  return {ring_->intern(site.line), ring_->intern(tag), number_of_thread()};
}

std::vector<std::int32_t> JobRecord::ranks_of(const c10d::ProcessGroup& group) const {
  std::vector<std::int32_t> out;
  try {
    for (const std::uint64_t rank :
         group.getDefaultBackend()->getBackendOptions()->global_ranks_in_group)
      out.push_back(static_cast<std::int32_t>(rank));
  } catch (const std::exception&) {  // a backend without options
    out.clear();
  }
  if (out.empty() && group.getSize() == world_size_) {
    out.resize(static_cast<std::size_t>(world_size_));
    std::iota(out.begin(), out.end(), 0);
  }
  return out;
}

bool JobRecord::hook_into_all(c10d::ProcessGroup& group) {
  bool has_completion = false;
  std::set<const c10d::Backend*> hooked;  // one may serve several devices
  for (const c10::Device& device : group.getDeviceTypes()) {
    try {
      const c10::intrusive_ptr<c10d::Backend> backend = group.getBackend(device.type());
      if (hooked.insert(backend.get()).second && reports_completion(*backend))
        has_completion |= hook_into(*backend, open_watch());
    } catch (const std::exception&) {  // it costs the hooks, and not the program
    }
  }
  return has_completion;
}

void JobRecord::try_to_open(const c10d::ProcessGroup& first) {
  if (tried_) return;
  tried_ = true;
  open(first);
}

void JobRecord::begin(const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  const std::lock_guard lock(mutex_);
  known_or_new(group, RecordedGroup::Made::created);
}

RecordedGroup* JobRecord::group(const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  const std::lock_guard lock(mutex_);
  return known_or_new(group, RecordedGroup::Made::first_use);
}

RecordedGroup* JobRecord::known_or_new(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                                       RecordedGroup::Made made) {
  try_to_open(*group);
  if (!recorder_) return nullptr;
  if (const auto known = groups_.find(group.get()); known != groups_.end())
    return known->second.recorded.get();
  if (const auto device = group->getBoundDeviceId()) gpu_->uses(*device);
  if (group->getBackendName() == "nccl") gpu_->uses_nccl();
  std::unique_ptr<RecordedGroup> recorded;
  std::string name = group->getGroupName().empty() ? "world" : group->getGroupName();
  // A program that destroys its groups and makes them again uses their names again.
  if (const int life = ++lives_[name]; life > 1) name += " (" + std::to_string(life) + ")";
  std::vector<std::int32_t> ranks = ranks_of(*group);
  if (static_cast<int>(ranks.size()) == group->getSize()) {
    recorded = std::make_unique<RecordedGroup>(*recorder_, name, std::move(ranks),
                                               group->getGroupDesc(), made);
  } else {
    std::fprintf(stderr,
                 "liblockstep_record: calls of group %s are not recorded: it does not tell which "
                 "ranks are in it\n",
                 name.c_str());
  }
  using Weak = c10::weak_intrusive_ptr<c10d::ProcessGroup>;
  const bool has_completion = recorded && hook_into_all(*group);
  return groups_.emplace(group.get(), Known{Weak(group), std::move(recorded), has_completion})
      .first->second.recorded.get();
}

WorkWatch* JobRecord::watch(const c10d::ProcessGroup& group, bool on_device) {
  const std::lock_guard lock(mutex_);
  const auto known = groups_.find(&group);
  const bool has_completion = known != groups_.end() && known->second.has_completion;
  return on_device || has_completion ? &open_watch() : nullptr;
}

WorkWatch& JobRecord::open_watch() {
  if (!watch_) watch_ = std::make_unique<WorkWatch>(*recorder_, std::function<bool(c10d::Work&)>());
  return *watch_;
}

}  // namespace lockstep::runtime
