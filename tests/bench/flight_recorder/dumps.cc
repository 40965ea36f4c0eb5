#include "tests/bench/flight_recorder/dumps.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "tests/trace/formats/pickle_writer.h"

namespace lockstep {

namespace {

constexpr int kBuckets = 20;      // calls of one step
constexpr int kNeighbours = 8;    // ranks of a tensor-parallel group
constexpr int kStepsBefore = 40;  // that the ring has forgotten
constexpr std::int64_t kCallNs = 400'000;
constexpr std::int64_t kStartNs = 1'760'000'000'000'000'000;

struct Group {
  std::string name, desc;
  std::vector<int> ranks;
};

std::vector<Group> groups_of(const DumpJob& job, int rank) {
  std::vector<Group> out(1);
  out[0] = {"0", "default_pg", {}};
  for (int r = 0; r < job.ranks; ++r) out[0].ranks.push_back(r);
  if (job.groups == 1) return out;
  const int first = rank / kNeighbours * kNeighbours;
  const int tensor_groups = (job.ranks + kNeighbours - 1) / kNeighbours;
  Group tensor{std::to_string(1 + rank / kNeighbours), "tp", {}};
  for (int r = first; r < std::min(first + kNeighbours, job.ranks); ++r) tensor.ranks.push_back(r);
  Group data{std::to_string(1 + tensor_groups + rank % kNeighbours), "dp", {}};
  for (int r = rank % kNeighbours; r < job.ranks; r += kNeighbours) data.ranks.push_back(r);
  out.push_back(std::move(tensor));
  out.push_back(std::move(data));
  return out;
}

std::string list_of(const std::vector<int>& ranks) {
  std::string out = "[";
  for (const int r : ranks) out += (out.size() > 1 ? ", " : "") + std::to_string(r);
  return out + "]";
}

// What a rank did, by the number of the call in the job's program.
class Writer {
 public:
  Writer(const DumpJob& job, int rank) : job_(job), rank_(rank), groups_(groups_of(job, rank)) {
    const bool last_rank = rank + 1 == job.ranks;
    const int calls = kStepsBefore * kBuckets + job.entries;
    // A healthy job is caught in its stride; the others stand still.
    if (job.fault == DumpFault::none) {
      issued_ = calls - rank % 3;
      completed_ = issued_ - 2;
    } else {
      issued_ = calls;
      completed_ = calls - 1;
      if (last_rank && job.fault == DumpFault::host_stall) issued_ = completed_;
      if (job.fault == DumpFault::skip) completed_ = calls - kBuckets / 2;
      if (last_rank && job.fault == DumpFault::skip) skipped_ = completed_;
      if (job.fault == DumpFault::device_stall) completed_ = calls - kBuckets - (last_rank ? 1 : 0);
      other_size_ = last_rank && job.fault == DumpFault::size ? calls - 1 : -1;
    }
  }

  std::string dump() {
    out_.begin_dict();
    out_.text("version").text("2.10");
    out_.text("pg_config").begin_dict();
    for (const Group& g : groups_) {
      out_.text(g.name).begin_dict();
      out_.text("name").text(g.name).text("desc").text(g.desc);
      out_.text("ranks").text(list_of(g.ranks)).end_dict();
    }
    out_.end_dict();
    out_.text("comm_lib_version").text("2.28.9");
    out_.text("pg_status").begin_dict();
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      out_.text(std::to_string(g)).begin_dict();
      out_.text("last_enqueued_collective").integer(sequence(g, issued_));
      out_.text("last_started_collective").integer(-1);
      out_.text("last_completed_collective").integer(sequence(g, completed_));
      out_.end_dict();
    }
    out_.end_dict();
    out_.text("entries").begin_list();
    for (int call = std::max(0, issued_ - job_.entries); call < issued_; ++call) {
      if (call != skipped_) entry(call);
    }
    out_.end_list().end_dict();
    return out_.finish();
  }

 private:
  std::size_t group_of(int call) const { return static_cast<std::size_t>(call) % groups_.size(); }
  // The calls of a group among the first `calls`, less what was left out.
  int sequence(std::size_t group, int calls) const {
    const int n = static_cast<int>(groups_.size());
    const int g = static_cast<int>(group);
    const int left_out = skipped_ >= 0 && skipped_ < calls && group_of(skipped_) == group ? 1 : 0;
    return calls / n + (calls % n > g ? 1 : 0) - left_out;
  }

  void frames() {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kFrames = {{
        {"all_reduce", "torch/distributed/distributed_c10d.py"},
        {"wrapper", "torch/distributed/c10d_logger.py"},
        {"train_step", "/app/train.py"},
        {"<module>", "/app/launch.py"},
    }};
    out_.text("frames").begin_list();
    for (std::size_t f = 0; f < kFrames.size(); ++f) {
      if (frames_written_) {
        out_.get(frame_memo_[f]);
        continue;
      }
      out_.begin_dict();
      out_.text("name").text(kFrames[f].first);
      out_.text("filename").text(kFrames[f].second);
      out_.text("line").integer(100 + static_cast<int>(f)).end_dict();
      frame_memo_[f] = out_.memoize();
    }
    frames_written_ = true;
    out_.end_list();
  }

  void sizes(std::string_view key, int elements) {
    out_.text(key).begin_list().begin_list().integer(elements).end_list().end_list();
  }
  void dtypes(std::string_view key) { out_.text(key).begin_list().text("Float").end_list(); }

  void entry(int call) {
    const std::size_t group = group_of(call);
    const bool completed = call < completed_;
    const std::int64_t now = kStartNs + call * kCallNs + rank_ * 977;
    const int elements = 262144 * (1 + call % kBuckets) + (call == other_size_ ? 1 : 0);
    const int seq = sequence(group, call) + 1;
    out_.begin_dict();
    frames();
    out_.text("record_id").integer(call).text("pg_id").integer(static_cast<int>(group));
    out_.text("process_group").pair(groups_[group].name, groups_[group].desc);
    out_.text("thread_name").text("pt_autograd_0").text("thread_id").text("140211083208256");
    out_.text("collective_seq_id").integer(seq).text("p2p_seq_id").integer(0);
    out_.text("op_id").integer(seq).text("profiling_name").text("nccl:all_reduce");
    out_.text("time_created_ns").integer(now);
    sizes("input_sizes", elements);
    dtypes("input_dtypes");
    sizes("output_sizes", elements);
    dtypes("output_dtypes");
    out_.text("state").text(completed ? "completed" : "scheduled");
    out_.text("time_discovered_started_ns").none();
    out_.text("time_discovered_completed_ns");
    completed ? out_.integer(now + kCallNs / 2) : out_.none();
    out_.text("retired").boolean(completed).text("timeout_ms").integer(600'000);
    out_.text("is_p2p").boolean(false).end_dict();
  }

  const DumpJob& job_;
  int rank_;
  std::vector<Group> groups_;
  int issued_ = 0, completed_ = 0, skipped_ = -1, other_size_ = -1;
  bool frames_written_ = false;
  std::array<std::uint32_t, 4> frame_memo_{};
  trace::PickleWriter out_;
};

}  // namespace

std::string make_dump(const DumpJob& job, int rank) { return Writer(job, rank).dump(); }

Status write_dumps(const DumpJob& job, const std::string& folder) {
  if (job.ranks < 1 || job.entries < 1 || (job.groups != 1 && job.groups != 3)) {
    return Error{"a job needs ranks and entries, and 1 or 3 groups", {folder}, ""};
  }
  std::error_code problem;
  std::filesystem::create_directories(folder, problem);
  if (problem) return Error{"cannot create the folder: " + problem.message(), {folder}, ""};
  for (int r = 0; r < job.ranks; ++r) {
    const std::string path = fmt::format("{}/nccl_trace_rank_{}", folder, r);
    std::ofstream file(path, std::ios::binary);
    const std::string bytes = make_dump(job, r);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (!file.flush()) return Error{"cannot write the file", {path}, "is the disk full?"};
  }
  return Status::ok();
}

bool parse_fault(const std::string& word, DumpFault& out) {
  static const std::map<std::string, DumpFault> kFaults = {
      {"none", DumpFault::none},
      {"host-stall", DumpFault::host_stall},
      {"device-stall", DumpFault::device_stall},
      {"size", DumpFault::size},
      {"skip", DumpFault::skip}};
  const auto found = kFaults.find(word);
  if (found == kFaults.end()) return false;
  out = found->second;
  return true;
}

}  // namespace lockstep
