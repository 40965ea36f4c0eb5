#include "runtime/record/nccl/job_record.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <mutex>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/files/write_file.h"
#include "base/gpus.h"
#include "base/text.h"
#include "trace/formats/ring/writer.h"

namespace lockstep::runtime {
namespace {

// Records of a rank's ring, of 64 bytes each: 8 MiB, where LOCKSTEP_RECORD_EVENTS does not say.
constexpr std::uint64_t kEvents = 131'072;
// The largest number that readers accept (trace_builder.h)
constexpr std::int64_t kMaxRanks = 1 << 20;

std::uint64_t events_of(const char* text) {
  std::uint64_t events = kEvents;
  if (text != nullptr) std::from_chars(text, text + std::string_view(text).size(), events);
  return events;
}

// A forked child leaves the files to its parent.
const pid_t& own_pid() {
  static const pid_t pid = ::getpid();
  return pid;
}

std::atomic<NcclJobRecord*> recording_job{nullptr};

}  // namespace

NcclJobRecord::NcclJobRecord(std::string library, Environment get)
    : library_(std::move(library)),
      get_(std::move(get)),
      hung_after_(trace::hang_timeout(get_("LOCKSTEP_RECORD_HUNG_AFTER"))),
      capacity_(events_of(get_("LOCKSTEP_RECORD_EVENTS"))) {}

NcclJobRecord& NcclJobRecord::of_process(const char* library) {
  static NcclJobRecord* const job = [&] {
    auto* const made = new NcclJobRecord(library, ::getenv);
    own_pid();
    ::on_exit(&NcclJobRecord::at_exit, made);
    recording_job.store(made, std::memory_order_release);
    made->has_watcher_ = made->hung_after_ > 0;
    return made;
  }();
  return *job;
}

void NcclJobRecord::at_exit(int status, void* job) {
  if (::getpid() != own_pid()) return;
  static_cast<NcclJobRecord*>(job)->finish(status == 0 ? trace::End::clean : trace::End::exception);
}

void NcclJobRecord::at_immediate_exit(int status) {
  NcclJobRecord* const job = recording_job.load(std::memory_order_acquire);
  if (status == 0 && job != nullptr) at_exit(status, job);
}

void NcclJobRecord::start_watcher() {
  try {
    trace::look_at_times(hung_after_, [this](std::int64_t now) { look_for_hangs(now); });
  } catch (const std::system_error& error) {
    warn_once("watcher", std::string("hangs will not be marked: ") + error.what());
  }
}

void NcclJobRecord::look_for_hangs(std::int64_t now) {
  const std::lock_guard lock(mutex_);
  for (auto& [rank, lane] : lanes_) {
    if (!lane.ring || !lane.hang) continue;
    const std::int64_t on_device = lane.on_device.load(std::memory_order_relaxed);
    const trace::HangWatch::Verdict verdict = lane.hang->look(lane.ring->written(), on_device, now);
    if (verdict == trace::HangWatch::Verdict::hangs) lane.ring->finish(trace::End::hung);
    if (verdict == trace::HangWatch::Verdict::goes_on) lane.ring->resume();
  }
}

void NcclJobRecord::finish(trace::End end) {
  const std::lock_guard lock(mutex_);
  for (const auto& [rank, lane] : lanes_) {
    if (!lane.ring) continue;
    // It ended well, even if it was marked as hung.
    if (end == trace::End::clean) lane.ring->resume();
    lane.ring->finish(end);
  }
}

bool NcclJobRecord::records() {
  const std::lock_guard lock(mutex_);
  return !lanes_.empty() && lanes_.begin()->second.ring != nullptr;
}

void NcclJobRecord::warn_once(const char* kind, const std::string& what) {
  if (!warned_.insert(kind).second) return;
  std::fprintf(stderr, "%s: %s\n", library_.c_str(), what.c_str());
}

// Finds out where to write, and this process's rank. False: nothing is recorded.
bool NcclJobRecord::begin(const Opening& first) {
  state_ = State::refused;
  const char* const folder = get_("LOCKSTEP_RECORD_DIR");
  if (folder == nullptr || *folder == '\0') {
    warn_once("folder", "nothing is recorded: LOCKSTEP_RECORD_DIR is not set");
    return false;
  }
  if (const Status made = make_folder(folder); !made) {
    warn_once("folder", "nothing is recorded: " + made.error().summary());
    return false;
  }
  folder_ = folder;
  const auto launched = launched_rank(get_);
  if (!launched) {
    warn_once("rank", launched.error().summary() + "; the first communicator's ranks are taken");
  } else if (*launched && (*launched)->world_size >= first.size) {
    launched_ = *launched;
  }
  world_size_ = launched_ ? launched_->world_size : static_cast<std::int32_t>(first.size);
  if (!launched_) world_ = first.name;
  state_ = State::recording;
  if (has_watcher_) start_watcher();
  return true;
}

NcclJobRecord::Lane& NcclJobRecord::make_lane(std::int32_t rank) {
  const auto [known, is_new] = lanes_.try_emplace(rank);
  Lane& lane = known->second;
  if (!is_new) return lane;
  trace::RingWriter::Options options;
  options.path = folder_ + "/rank_" + std::to_string(rank) + ".ring";
  options.rank = trace::Rank(rank);
  options.world_size = world_size_;
  options.backend = "nccl";
  options.program = ::program_invocation_short_name;
  options.capacity = capacity_;
  if (const auto writer = trace::ring_file_writer(options.path)) {
    warn_once("taken",
              "rank " + std::to_string(rank) + " is not recorded: " +
                  (*writer == ::getpid() ? "this process" : "process " + std::to_string(*writer)) +
                  " writes " + printable(options.path) +
                  " at this moment; use one recorder, and a folder for each job");
    return lane;
  }
  auto ring = trace::RingWriter::create(options);
  if (ring) {
    lane.ring = std::move(*ring);
    if (hung_after_ > 0) lane.hang.emplace(static_cast<std::int64_t>(hung_after_ * 1e9));
  } else {
    warn_once("ring",
              "rank " + std::to_string(rank) + " is not recorded: " + ring.error().summary());
  }
  return lane;
}

NcclJobRecord::Lane* NcclJobRecord::lane_of(const Opening& opening) {
  const auto group_rank = static_cast<std::int32_t>(opening.group_rank);
  // Which rank makes the communicator? In this order: a rank cannot be in a larger world; a child
  // has its parent's rank; without a launcher the first communicator's positions are the ranks;
  // with a launcher the process has one rank; a process with a single rank has only that one.
  if (opening.size > world_size_) {
    warn_once("size",
              "communicators of more than " + std::to_string(world_size_) +
                  " ranks are not recorded: the first one had no more, and no launcher says "
                  "otherwise; set RANK and WORLD_SIZE");
    return nullptr;
  }
  if (const auto parent = lane_of_communicator_.find(opening.parent);
      parent != lane_of_communicator_.end())
    return parent->second;
  if (!launched_ && opening.name == world_) return &make_lane(group_rank);
  if (launched_) {
    const auto twin = communicators_.lower_bound({opening.name, INT32_MIN});
    if (twin == communicators_.end() || twin->first.first != opening.name)
      return &make_lane(launched_->rank);
    warn_once("twin",
              "only one group rank of each communicator is recorded: this process has several, "
              "and its launcher gives it one rank; unset RANK and its like");
    return nullptr;
  }
  if (lanes_.size() == 1) return &lanes_.begin()->second;
  warn_once("lanes",
            "communicators but the first are not recorded: this process has several ranks, "
            "and nothing says which of them made the communicator");
  return nullptr;
}

Communicator* NcclJobRecord::open(const Opening& opening) {
  const std::lock_guard lock(mutex_);
  if (state_ == State::refused || opening.name.empty()) return nullptr;
  if (opening.group_rank < 0 || opening.group_rank >= opening.size || opening.size > kMaxRanks) {
    warn_once("place", "a communicator is not recorded: it has no group rank " +
                           std::to_string(opening.group_rank) + " of " +
                           std::to_string(opening.size));
    return nullptr;
  }
  if (state_ == State::fresh && !begin(opening)) return nullptr;
  const auto group_rank = static_cast<std::int32_t>(opening.group_rank);
  const auto size = static_cast<std::int32_t>(opening.size);
  const auto known = communicators_.find({opening.name, group_rank});
  if (known != communicators_.end()) return known->second.get();
  Lane* const lane = lane_of(opening);
  if (lane == nullptr || !lane->ring) return nullptr;
  if (opening.device) {
    const auto gpu = gpu_of_device(*opening.device, get_);
    if (gpu) lane->ring->use_gpu(*gpu);
  }
  const trace::RingWriter::GroupRef group =
      lane->ring->make_communicator(opening.name, group_rank, size, opening.desc);
  if (group.id == 0) {
    warn_once("table", "further communicators are not recorded: the ring file's table is full");
    return nullptr;
  }
  auto made = std::make_unique<Communicator>(*lane, group, group_rank, size);
  Communicator* const out = made.get();
  communicators_.emplace(std::pair(opening.name, group_rank), std::move(made));
  lane_of_communicator_.emplace(out, lane);
  return out;
}

std::string KnownCommunicators::name_of(std::span<const nccl::UniqueId> ids) {
  std::uint64_t hash = 0xcbf29ce484222325U;  // FNV-1a
  for (const nccl::UniqueId& id : ids) {
    for (const char c : id.internal) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  }
  std::array<char, 16> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), hash, 16).ptr;
  return "comm 0x" + std::string(digits.data(), end);
}

void KnownCommunicators::open(Known& known, GroupMember member) {
  known.tried = true;
  known.recorder =
      job_.open({known.name, {}, member.group_rank, member.size, known.parent, member.device});
}

void KnownCommunicators::made(nccl::Comm comm, std::string name, GroupMember member) {
  const std::unique_lock lock(mutex_);
  Known& known = known_[comm] = {};
  known.name = std::move(name);
  open(known, member);
}

std::string KnownCommunicators::child_name(nccl::Comm parent, const char* how,
                                           std::optional<int> color) {
  const std::unique_lock lock(mutex_);
  const auto known = known_.find(parent);
  if (known == known_.end() || known->second.name.empty()) return {};
  std::string name =
      known->second.name + "/" + how + " " + std::to_string(known->second.children[how]++);
  if (color) name += "." + std::to_string(*color);
  return name;
}

void KnownCommunicators::made_from(nccl::Comm comm, std::string name, nccl::Comm parent) {
  const std::unique_lock lock(mutex_);
  const auto from = known_.find(parent);
  Communicator* const recorder = from != known_.end() ? from->second.recorder : nullptr;
  Known& known = known_[comm] = {};
  known.name = std::move(name);
  known.parent = recorder;
}

void KnownCommunicators::gone(nccl::Comm comm) {
  const std::unique_lock lock(mutex_);
  const auto known = known_.find(comm);
  if (known == known_.end()) return;
  if (known->second.recorder != nullptr) known->second.recorder->close();
  known_.erase(known);
}

Communicator* KnownCommunicators::find(nccl::Comm comm) {
  {
    const std::shared_lock lock(mutex_);
    const auto known = known_.find(comm);
    if (known == known_.end()) return nullptr;
    if (known->second.tried) return known->second.recorder;
  }
  const std::optional<GroupMember> member = ask_(comm);
  const std::unique_lock lock(mutex_);
  const auto known = known_.find(comm);
  if (known == known_.end()) return nullptr;
  if (!known->second.tried && member) open(known->second, *member);
  return known->second.recorder;
}

}  // namespace lockstep::runtime
