#include "trace/gpus.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>

namespace lockstep::trace {

namespace {

// A value from several sources; unknown if they contradict each other.
template <class T>
class Agreed {
 public:
  explicit Agreed(T unknown) : unknown_(unknown), value_(unknown) {}
  void add(const T& given) {
    if (given == unknown_) return;
    contradicted_ |= value_ != unknown_ && value_ != given;
    value_ = given;
  }
  const T& value() const { return contradicted_ ? unknown_ : value_; }

 private:
  T unknown_, value_;
  bool contradicted_ = false;
};

struct AgreedLocation {
  Agreed<std::string_view> host{""};
  Agreed<std::int64_t> pid{kNone};
  Agreed<std::int32_t> gpu{kNone};

  template <class Source>
  void add(const Source& source) {
    host.add(source.host);
    pid.add(source.pid);
    gpu.add(source.gpu);
  }
};

}  // namespace

std::int32_t gpu_index(std::int64_t number) {
  constexpr std::int64_t kMaxGpus = 1024;  // of one host; the largest have some dozens
  return number >= 0 && number < kMaxGpus ? static_cast<std::int32_t>(number) : kNone;
}

void locate_ranks(Run& run, std::span<const RankLocation> others) {
  std::map<Rank, AgreedLocation> known;
  for (const RankNote& note : run.notes)
    if (note.rank.value != kNone) known[note.rank].add(note);
  for (const RankLocation& other : others)
    if (other.world_size >= run.world_size) known[other.rank].add(other);
  for (RankTrace& trace : run.ranks) {
    const auto found = known.find(trace.rank);
    if (found == known.end()) continue;
    if (trace.host.empty()) trace.host = found->second.host.value();
    if (trace.pid == kNone) trace.pid = found->second.pid.value();
    if (trace.gpu == kNone) trace.gpu = found->second.gpu.value();
  }
}

namespace {

// The ranks that claim a GPU, by its index.
using GpuUsers = std::map<std::int32_t, std::set<Rank>>;

// Whether the indices of a host's GPUs may not be those of nvidia-smi: each process probably counts
// its own GPUs from 0. So it is if two ranks share an index, or if all have index 0. Ranks whose
// host is not known may be on several hosts: there, only one index for all of them is doubtful.
bool is_doubtful(const std::string& host, const GpuUsers& users) {
  const bool one_index = users.size() == 1;
  const bool only_zero = one_index && users.begin()->first == 0;
  const bool shared = std::any_of(users.begin(), users.end(),
                                  [](const auto& gpu) { return gpu.second.size() > 1; });
  return only_zero || (shared && (one_index || !host.empty()));
}

}  // namespace

void keep_plausible_gpus(Run& run) {
  std::map<std::string, GpuUsers> users;  // by host
  const auto count = [&](const std::string& host, std::int32_t gpu, Rank rank) {
    if (gpu != kNone && rank.value != kNone) users[host][gpu].insert(rank);
  };
  for (const RankTrace& trace : run.ranks) count(trace.host, trace.gpu, trace.rank);
  for (const RankNote& note : run.notes) count(note.host, note.gpu, note.rank);
  std::set<std::string> doubtful;
  for (const auto& [host, by_gpu] : users)
    if (is_doubtful(host, by_gpu)) doubtful.insert(host);
  for (RankTrace& trace : run.ranks)
    if (doubtful.contains(trace.host)) trace.gpu = kNone;
  for (RankNote& note : run.notes)
    if (doubtful.contains(note.host)) note.gpu = kNone;
}

}  // namespace lockstep::trace
