// What a cluster's own commands say about how a job's processes ended: the output of
//
//   kubectl describe pod   Name:             train-worker-3
//                          …
//                            Last State:     Terminated
//                              Reason:       OOMKilled
//   kubectl get pods       NAME             READY   STATUS      RESTARTS   AGE
//                          train-worker-3   0/1     OOMKilled   1          4h
//   sacct                  JobID           JobName      State ExitCode
//                          ------------ ---------- ---------- --------
//                          4711.0           python OUT_OF_ME+    0:125
//
// A pod's name is the name of its host, which tells the rank where one rank alone ran there
// (join_evidence). SLURM's table tells no rank; with its column NodeList, `-P` or not, the host.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"
#include "trace/evidence/evidence.h"
#include "trace/formats/log_lines.h"

namespace lockstep::trace {

namespace {

constexpr std::string_view kOomKilled = "OOMKilled";
constexpr std::string_view kPodName = "Name:";

std::string_view first_line(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  return text.substr(0, text.find_first_of("\r\n"));
}

bool is_pod(std::string_view head) {
  return first_line(head).starts_with(kPodName) && contains_text(head, "\nNamespace:");
}

bool is_list_of_pods(std::string_view head) {
  const std::string_view line = first_line(head);
  return line.starts_with("NAME") && contains_text(line, "READY") && contains_text(line, "STATUS");
}

bool is_accounting(std::string_view head) {
  const std::string_view line = first_line(head);
  return contains_text(line, "JobID") && contains_text(line, "State");
}

// The words of a line, which blanks separate.
std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> out;
  while (true) {
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    if (line.empty()) return out;
    const std::size_t length = std::min(line.find_first_of(" \t"), line.size());
    out.push_back(line.substr(0, length));
    line.remove_prefix(length);
  }
}

// The columns of SLURM's tables: between bars, or below the dashes of the second line.
class Columns {
 public:
  explicit Columns(std::string_view header) : header_(header) {
    bars_ = contains_text(header, "|");
    if (bars_) find_columns();
  }

  // Takes the line of dashes; false: it is none.
  bool take_rule(std::string_view line) {
    if (bars_ || !line.starts_with("---")) return false;
    starts_.clear();
    for (std::size_t at = 0; at < line.size(); ++at)
      if (line[at] == '-' && (at == 0 || line[at - 1] != '-')) starts_.push_back(at);
    starts_.push_back(line.size());
    find_columns();
    return true;
  }

  std::string_view job(std::string_view line) const { return cell(line, job_); }
  std::string_view state(std::string_view line) const { return cell(line, state_); }
  std::string_view nodes(std::string_view line) const { return cell(line, nodes_); }

 private:
  void find_columns() {
    for (std::size_t column = 0; column < kMostColumns; ++column) {
      const std::string_view name = cell(header_, column);
      if (name == "JobID") job_ = column;
      if (name == "State") state_ = column;
      if (name == "NodeList") nodes_ = column;
    }
  }

  std::string_view cell(std::string_view line, std::size_t column) const {
    if (bars_) {
      for (; column > 0 && !line.empty(); --column)
        line.remove_prefix(std::min(line.find('|'), line.size() - 1) + 1);
      return trimmed(line.substr(0, line.find('|')));
    }
    if (column >= kMostColumns || column + 1 >= starts_.size() || starts_[column] >= line.size())
      return {};
    return trimmed(line.substr(starts_[column], starts_[column + 1] - starts_[column]));
  }

  static constexpr std::size_t kMostColumns = 128;
  std::string_view header_;
  bool bars_ = false;
  std::vector<std::size_t> starts_;  // of each column, and the end of the last
  std::size_t job_ = kMostColumns, state_ = kMostColumns, nodes_ = kMostColumns;
};

class ClusterReader {
 public:
  explicit ClusterReader(const TraceFile& file) : file_(file), lines_(file.bytes) {}

  FileEvidence read() {
    if (is_pod(file_.bytes)) {
      read_pods();
    } else if (is_list_of_pods(file_.bytes)) {
      read_list();
    } else if (is_accounting(file_.bytes)) {
      read_accounting();
    }
    return std::move(out_);
  }

 private:
  void add(RankNote::Kind kind, std::string_view host, std::string text) {
    out_.add({.kind = kind,
              .rank = Rank(kNone),
              .text = std::move(text),
              .location = {file_.name, lines_.number()},
              .host = std::string(host)});
  }

  void read_pods() {
    std::string_view pod;
    bool said = false;  // of this pod: its containers and its last state may repeat it
    while (const auto line = lines_.next()) {
      if (line->starts_with(kPodName)) {
        pod = trimmed(line->substr(kPodName.size()));
        said = false;
      }
      const std::vector<std::string_view> words = words_of(*line);
      if (said || words.size() != 2 || words[0] != "Reason:" || words[1] != kOomKilled) continue;
      said = true;
      add(RankNote::Kind::out_of_memory, pod,
          fmt::format("{}, by Kubernetes: pod {}", words[1], pod));
    }
  }

  void read_list() {
    while (const auto line = lines_.next()) {
      const std::vector<std::string_view> words = words_of(*line);
      // With the namespace as the first column, the name is the second.
      const auto status = std::find(words.begin(), words.end(), kOomKilled);
      if (status == words.end() || status - words.begin() < 2) continue;
      const std::string_view pod = status[-2];
      add(RankNote::Kind::out_of_memory, pod,
          fmt::format("{}, by Kubernetes: pod {}", *status, pod));
    }
  }

  // A job's own line and that of its batch script repeat what a step's says.
  void read_accounting() {
    auto header = lines_.next();
    while (header && trimmed(*header).empty()) header = lines_.next();
    if (!header) return;
    Columns columns(*header);
    while (const auto line = lines_.next()) {
      if (columns.take_rule(*line)) continue;
      const std::string_view job = columns.job(*line);
      const std::string_view state = columns.state(*line);
      // Cut off to the column's width: "OUT_OF_ME+".
      const bool memory = state.starts_with("OUT_OF_ME");
      if (!memory && state != "NODE_FAIL") continue;
      if (job.ends_with(".batch") || job.ends_with(".extern")) continue;
      const bool is_step = contains_text(job, ".");
      if (!is_step && memory) continue;
      const std::string_view nodes = columns.nodes(*line);
      const bool one = nodes.find_first_of("[,+") == kNpos;
      add(memory ? RankNote::Kind::out_of_memory : RankNote::Kind::killed,
          one ? nodes : std::string_view(),
          fmt::format("{}, by SLURM: {} {}", state, is_step ? "step" : "job", job));
    }
  }

  const TraceFile& file_;
  LogLines lines_;
  FileEvidence out_;
};

}  // namespace

EvidenceSource cluster_source() {
  return {.name = "cluster",
          .summary = "kubectl describe pod, kubectl get pods, sacct",
          .recognises =
              [](std::string_view bytes, std::string_view) {
                return is_pod(bytes) || is_list_of_pods(bytes) || is_accounting(bytes);
              },
          .read = [](const TraceFile& file) { return ClusterReader(file).read(); }};
}

}  // namespace lockstep::trace
