// What NCCL's RAS subsystem says of a running job, as its client prints it: `ncclras` (text; with
// `-v` all outliers) and `ncclras -f json`, NCCL 2.24 to 2.31.
//
//   #0-0 (78db921d1c117b4a) MISMATCH
//     Communicator ranks have different AllReduce operation counts
//     7 ranks have launched up to operation 64
//     Rank 7 has launched up to operation 60 -- GPU 3 managed by process 1650386 on node node1
//   #0-0 (1bdb83b038775869) INCOMPLETE
//     Missing communicator data from 1 rank
//     Rank 7 -- GPU 3 managed by process 3748990 on node node1
//
// Sources: nccl src/ras/client_support.cc, its user guide. A rank is one of its communicator: the
// largest communicator's is taken as the global one, others are known by their process. Counts are
// of calls launched, per type of operation and not their order; RAS asks a job that goes on
// meanwhile, so that a difference of a few calls shows no fault: notes alone come of it, unless a
// watchdog's counters show when it asked (launched_calls.h).

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"
#include "trace/evidence/evidence.h"
#include "trace/evidence/line_labels.h"
#include "trace/formats/json_scan.h"
#include "trace/formats/log_lines.h"
#include "trace/gpus.h"
#include "trace/trace_builder.h"

namespace lockstep::trace {

namespace {

constexpr std::string_view kConsideredDead =
    "considered dead: not to be reached over RAS's network";

namespace dom = simdjson::dom;

std::string_view without_indent(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  return first == kNpos ? std::string_view() : text.substr(first);
}

Rank rank_from(std::int64_t number) {
  return is_possible_rank(number, kMaxWorldSize) ? Rank(static_cast<std::int32_t>(number))
                                                 : Rank(kNone);
}

// ---- text ----

// "3", or "3 (NVML 5)" where CUDA_VISIBLE_DEVICES gives the GPU another index than nvidia-smi's. A
// process of several ("GPUs 0,1") has none of its own.
std::int32_t ras_gpu(std::string_view line) {
  const auto shown = number_after(line, " GPU ");
  return gpu_index(number_after(line, " (NVML ").value_or(shown.value_or(kNone)));
}

// "Process 3487984 on node 172.16.64.213 managing GPU 5": "172.16.64.213".
std::string_view ras_node(std::string_view line) {
  constexpr std::string_view kNode = " on node ";
  const std::size_t at = line.find(kNode);
  if (at == kNpos) return {};
  line.remove_prefix(at + kNode.size());
  constexpr std::size_t kLongestName = 253;  // of the domain name system
  return line.substr(0, std::min(line.find(' '), kLongestName));
}

class RasTextReader {
  static constexpr std::string_view kUpTo = "launched up to operation ";

 public:
  explicit RasTextReader(const TraceFile& file) : file_(file) {}

  FileEvidence read() {
    LogLines lines(file_.bytes);
    std::string buffer;
    const LabelForm form = label_form_of(file_.bytes);
    while (const auto line = lines.next()) {
      std::string_view text = plain_text(*line, buffer);
      if (const auto label = parse_label(text, form)) text = label->text;
      take(without_indent(text), lines.number());
    }
    end_subject();
    return std::move(out_);
  }

 private:
  void take(std::string_view line, int number) {
    if (line.starts_with("Group ") && line.find("Comms") != kNpos) {
      in_table_ = true;
      return;
    }
    if (in_table_ && take_row(line)) return;
    if (line.starts_with('#')) {
      const std::size_t open = line.find('(');
      const std::size_t close = line.find(')');
      if (open == kNpos || close == kNpos || close < open) return;
      communicator_ = line.substr(open + 1, std::min<std::size_t>(close - open - 1, 64));
      section_ = without_indent(line.substr(close + 1)).substr(0, 64);
      // "#0-…": of the largest ones. Their ranks are those of the job where they have all of them.
      global_ = largest_ > 0 && line.starts_with("#0-") && largest_ >= largest_total_;
      start_subject({});
      return;
    }
    static constexpr std::array<std::string_view, 3> kSections = {"INCOMPLETE", "DEAD", "TIMEOUT"};
    if (std::find(kSections.begin(), kSections.end(), line) != kSections.end()) {
      communicator_.clear();
      section_ = line;
      start_subject({});
      return;
    }
    if (line.empty() || section_.empty()) return;
    if (line.starts_with("Rank ")) return take_rank(line, number);
    if (line.starts_with("Process ")) return take_process(line, number);
    if (line.starts_with("The missing rank")) return take_missing(line, number);
    const bool group = line.front() >= '0' && line.front() <= '9';
    if (group && line.find(" rank") != kNpos) {
      if (majority_.empty()) majority_ = line.substr(0, 128);
      several_ = line.substr(0, 128);
    } else {
      start_subject(line.substr(0, 128));
    }
  }

  void start_subject(std::string_view subject) {
    end_subject();
    subject_ = subject;
    majority_.clear();
    several_.clear();
  }

  // All ranks that are compared with each other are known now.
  void end_subject() {
    for (const auto& [note, launched] : launched_)
      out_.notes[note].calls_behind = most_launched_ - launched;
    launched_.clear();
    most_launched_ = 0;
  }

  // A row of the summary: group, communicators, nodes, ranks per node, ranks per communicator,
  // ranks in the group, status, errors.
  bool take_row(std::string_view line) {
    if (line.starts_with('#') && line.find("in group") != kNpos) return true;
    std::vector<std::string_view> words;
    for (std::size_t at = 0; at < line.size() && words.size() < 8;) {
      const std::size_t end = std::min(line.find(' ', at), line.size());
      if (end > at) words.push_back(line.substr(at, end - at));
      at = end + 1;
    }
    if (words.size() < 8) {
      in_table_ = false;
      return false;
    }
    const auto number = [](std::string_view word) {
      return number_after(fmt::format("={}", word), "=").value_or(0);
    };
    const std::int64_t size = number(words[4]);
    if (size > 0 && size <= kMaxWorldSize) {
      largest_ = std::max(largest_, size);
      largest_total_ =
          std::max(largest_total_, std::min(number(words[5]), std::int64_t{kMaxWorldSize}));
      out_.world_size = static_cast<std::int32_t>(largest_);
    }
    return true;
  }

  std::string where() const {
    return communicator_.empty() ? std::string() : fmt::format(", communicator {}", communicator_);
  }

  // "Rank 7 has launched up to operation 60 -- GPU 3 managed by process 1650386 on node node1"
  void take_rank(std::string_view line, int number) {
    const std::int64_t rank = number_after(line, "Rank ").value_or(kNone);
    const std::size_t dashes = line.find(" -- ");
    std::string_view says = line.substr(0, dashes);
    const std::size_t blank = says.find(' ', 5);
    std::string text = fmt::format("{}{}: ", section_, where());
    if (!subject_.empty()) text += fmt::format("{}; ", subject_);
    if (!majority_.empty() && (majority_ != several_ || blank != kNpos))
      text += fmt::format("{}; ", majority_);
    if (blank != kNpos) {
      text += fmt::format("this rank {}", says.substr(blank + 1));
    } else {
      text += several_.empty() ? "this rank is one of them"
                               : fmt::format("this is one of {}", several_);
    }
    const Rank own = global_ ? rank_from(rank) : Rank(kNone);
    // "Communicator ranks have different AllReduce operation counts": where all calls were of that
    // operation, it is how many calls there were.
    const auto launched = number_after(says, kUpTo);
    const auto most = number_after(majority_, kUpTo);
    if (own.value != kNone && launched && most && *launched < *most)
      take_launched({own, *launched, *most, file_.name});
    const std::size_t note = out_.notes.size();
    add(own, number_after(line, "managed by process ").value_or(kNone), std::move(text), number,
        line);
    if (launched && note < out_.notes.size()) {
      launched_.emplace_back(note, *launched);
      most_launched_ = std::max({most_launched_, *launched, most.value_or(0)});
    }
  }

  void take_launched(LaunchedCalls launched) {
    if (out_.launched.size() < FileEvidence::kMaxNotes)
      out_.launched.push_back(std::move(launched));
  }

  // "Process 3487984 on node 172.16.64.213 managing GPU 5"
  void take_process(std::string_view line, int number) {
    const bool dead = section_ == "DEAD";
    std::string text =
        dead ? std::string(kConsideredDead) : fmt::format("{}: no data of this process", section_);
    text += fmt::format("; {}", line.substr(0, 200));
    add(Rank(kNone), number_after(line, "Process ").value_or(kNone), std::move(text), number, line,
        dead ? RankNote::Says::gives_no_answer : RankNote::Says::only_its_text);
  }

  // "The missing rank: 21", "The missing ranks: 1-3,7" (NCCL 2.24 and 2.25)
  void take_missing(std::string_view line, int number) {
    const std::size_t colon = line.find(':');
    if (colon == kNpos) return;
    std::string_view list = line.substr(colon + 1);
    while (!list.empty()) {
      const std::string part = fmt::format("={}", without_indent(take_until(list, ',')));
      const std::int64_t first = number_after(part, "=").value_or(kNone);
      const std::int64_t last = number_after(part, "-").value_or(first);
      if (!is_possible_rank(first, kMaxWorldSize)) continue;
      for (std::int64_t r = first; r <= last && r - first < 64; ++r) {
        add(global_ ? rank_from(r) : Rank(kNone), kNone,
            fmt::format("{}{}: no data of this rank", section_, where()), number);
      }
    }
  }

  // `line`: says on which node and GPU, or nothing.
  void add(Rank rank, std::int64_t pid, std::string text, int number, std::string_view line = {},
           RankNote::Says says = RankNote::Says::only_its_text) {
    out_.add({.kind = RankNote::Kind::ras,
              .rank = rank,
              .pid = pid > 0 ? pid : kNone,
              .text = std::move(text),
              .location = {file_.name, number},
              .host = std::string(ras_node(line)),
              .gpu = ras_gpu(line),
              .says = says});
  }

  const TraceFile& file_;
  FileEvidence out_;
  bool in_table_ = false, global_ = false;
  std::int64_t largest_ = 0, largest_total_ = 0;
  std::string communicator_, section_;
  std::string subject_;   // "Communicator ranks have different AllReduce operation counts"
  std::string majority_;  // the first "7 ranks have launched up to operation 64"
  std::string several_;   // … and the last one
  std::vector<std::pair<std::size_t, std::int64_t>> launched_;  // notes, and their ranks' calls
  std::int64_t most_launched_ = 0;
};

// ---- JSON ----

std::int64_t ras_integer_at(const dom::object& object, std::string_view key) {
  std::int64_t out = kNone;
  return object.at_key(key).get(out) == simdjson::SUCCESS ? out : kNone;
}

bool flag_at(const dom::object& object, std::string_view key) {
  bool out = false;
  return object.at_key(key).get(out) == simdjson::SUCCESS && out;
}

class RasJsonReader {
 public:
  explicit RasJsonReader(const TraceFile& file) : file_(file) {}

  FileEvidence read() {
    JsonMembers top(file_.bytes);
    while (const auto member = top.next()) {
      if (member->key == "communicators") walk(member->begin, &RasJsonReader::look);
    }
    JsonMembers again(file_.bytes);
    while (const auto member = again.next()) {
      if (member->key == "communicators") walk(member->begin, &RasJsonReader::take);
    }
    out_.world_size = static_cast<std::int32_t>(largest_);
    return std::move(out_);
  }

 private:
  // Each whole communicator of the list, parsed by itself: the file may be cut off in the next.
  void walk(std::size_t at, void (RasJsonReader::*use)(const dom::object&)) {
    JsonElements communicators(file_.bytes, at);
    while (const auto text = communicators.next()) {
      dom::object communicator;
      dom::element element;
      if (parser_.parse(text->data(), text->size()).get(element) == simdjson::SUCCESS &&
          element.get(communicator) == simdjson::SUCCESS) {
        (this->*use)(communicator);
      }
    }
  }

  void look(const dom::object& communicator) {
    const std::int64_t size = ras_integer_at(communicator, "size");
    if (size > largest_ && size <= kMaxWorldSize) largest_ = size;
  }

  struct Member {
    std::int64_t rank = kNone, pid = kNone;
    std::string_view host;
    std::int32_t gpu = kNone;
    std::map<std::string, std::int64_t> counts;
    std::string state;  // what of its status is out of the ordinary
  };

  void take(const dom::object& communicator) {
    const bool global = ras_integer_at(communicator, "size") == largest_;
    std::string_view hash;
    if (communicator.at_key("hash").get(hash) != simdjson::SUCCESS) hash = "?";
    where_ = fmt::format("communicator {}: ", hash.substr(0, 64));
    std::vector<Member> members;
    dom::array ranks;
    if (communicator.at_key("ranks").get(ranks) == simdjson::SUCCESS) {
      for (const dom::element element : ranks) {
        dom::object rank;
        if (element.get(rank) == simdjson::SUCCESS) members.push_back(member(rank));
      }
    }
    std::map<std::string, std::int64_t> most;
    for (const Member& one : members) {
      for (const auto& [operation, count] : one.counts) {
        std::int64_t& known = most[operation];
        known = std::max(known, count);
      }
    }
    if (global) take_launched(members);
    for (const Member& one : members) {
      std::string text = one.state + behind(one, most);
      if (!text.empty())
        add({.text = where_ + text, .calls_behind = calls_behind(one, most)}, global, one);
    }
    dom::array missing;
    if (communicator.at_key("missing_ranks").get(missing) != simdjson::SUCCESS) return;
    for (const dom::element element : missing) {
      dom::object rank;
      if (element.get(rank) == simdjson::SUCCESS) take_missing(rank, global);
    }
  }

  // Sums the counts of all operations.
  void take_launched(const std::vector<Member>& members) {
    std::vector<std::int64_t> sums;
    for (const Member& one : members) {
      std::int64_t& sum = sums.emplace_back(0);
      for (const auto& [operation, count] : one.counts)
        sum += std::clamp<std::int64_t>(count, 0, INT32_MAX);
    }
    const auto most = std::max_element(sums.begin(), sums.end());
    for (std::size_t i = 0; i < members.size(); ++i) {
      const Rank rank = rank_from(members[i].rank);
      if (rank.value == kNone || sums[i] >= *most) continue;
      if (out_.launched.size() < FileEvidence::kMaxNotes)
        out_.launched.push_back({rank, sums[i], *most, file_.name});
    }
  }

  static Member process_of(const dom::object& rank) {
    Member out;
    out.rank = ras_integer_at(rank, "rank");
    out.pid = ras_integer_at(rank, "pid");
    if (rank.at_key("host").get(out.host) != simdjson::SUCCESS) out.host = {};
    const std::int64_t nvml = ras_integer_at(rank, "nvml_dev");
    out.gpu = gpu_index(nvml == kNone ? ras_integer_at(rank, "cuda_dev") : nvml);
    return out;
  }

  static Member member(const dom::object& rank) {
    Member out = process_of(rank);
    dom::object status;
    if (rank.at_key("status").get(status) == simdjson::SUCCESS) {
      const std::int64_t failed = ras_integer_at(status, "async_error");
      // 0 success, 7 in progress (nccl.h: ncclResult_t)
      if (failed > 0 && failed != 7) {
        out.state += fmt::format("asynchronous error {}; ", failed);
      }
      if (flag_at(status, "abort_flag")) out.state += "aborted; ";
      if (flag_at(status, "finalize_called")) out.state += "called ncclCommFinalize; ";
    }
    dom::object counts;
    if (rank.at_key("collective_counts").get(counts) == simdjson::SUCCESS) {
      for (const auto& [key, value] : counts) {
        std::int64_t count = 0;
        if (value.get(count) == simdjson::SUCCESS && out.counts.size() < 32) {
          out.counts.emplace(std::string(key.substr(0, 64)), count);
        }
      }
    }
    return out;
  }

  // "launched 60 AllReduce, and others up to 64"
  static std::string behind(const Member& one, const std::map<std::string, std::int64_t>& most) {
    std::string out;
    for (const auto& [operation, count] : one.counts) {
      const std::int64_t others = most.at(operation);
      if (others == count) continue;
      out += fmt::format("{}{}{} {}, and others up to {}", out.empty() ? "" : ", ", "launched ",
                         count, operation, others);
    }
    return out;
  }

  static std::int64_t calls_behind(const Member& one,
                                   const std::map<std::string, std::int64_t>& most) {
    std::int64_t out = 0;
    for (const auto& [operation, count] : one.counts)
      out = std::max(out, most.at(operation) - std::max<std::int64_t>(count, 0));
    return out;
  }

  void take_missing(const dom::object& rank, bool global) {
    const Member one = process_of(rank);
    dom::object status;
    std::string_view text = "no data of this rank";
    RankNote::Says says = RankNote::Says::only_its_text;
    if (rank.at_key("status").get(status) == simdjson::SUCCESS) {
      if (flag_at(status, "considered_dead")) {
        text = kConsideredDead;
        says = RankNote::Says::gives_no_answer;
      } else if (flag_at(status, "unresponsive")) {
        text = "its process does not answer";
        says = RankNote::Says::gives_no_answer;
      } else {
        text = "its process answers, and is no longer in this communicator";
      }
    }
    add({.text = fmt::format("{}{}", where_, text), .says = says}, global, one);
  }

  // Adds the note, of which text and meaning are given.
  void add(RankNote note, bool global, const Member& one) {
    if (note.text.ends_with("; ")) note.text.resize(note.text.size() - 2);
    note.kind = RankNote::Kind::ras;
    note.rank = global ? rank_from(one.rank) : Rank(kNone);
    note.pid = one.pid > 0 ? one.pid : kNone;
    note.location = {file_.name, 0};
    note.host = one.host;
    note.gpu = one.gpu;
    out_.add(std::move(note));
  }

  const TraceFile& file_;
  FileEvidence out_;
  dom::parser parser_;
  std::int64_t largest_ = 0;
  std::string where_;
};

bool is_json(std::string_view bytes) {
  constexpr std::size_t kLooked = 4096;
  const std::string_view head = bytes.substr(0, kLooked);
  return head.starts_with('{') && head.find("\"communicators_count\"") != kNpos &&
         head.find("\"nccl_version\"") != kNpos;
}

bool is_ras(std::string_view bytes, std::string_view /*name*/) {
  if (is_json(bytes)) return true;
  // It may stand below a job's output.
  return sample_of(bytes).any([](std::string_view text) {
    return contains_text(text, "Communicators...") &&
           (contains_text(text, "Job summary\n===") || contains_text(text, "Group     Comms"));
  });
}

FileEvidence read_ras(const TraceFile& file) {
  return is_json(file.bytes) ? RasJsonReader(file).read() : RasTextReader(file).read();
}

}  // namespace

EvidenceSource ras_source() {
  return {.name = "ras",
          .summary = "what NCCL's RAS says (ncclras, as text or JSON)",
          .recognises = is_ras,
          .read = read_ras};
}

}  // namespace lockstep::trace
