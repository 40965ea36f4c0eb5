// The messages of PyTorch's NCCL watchdog in a job's log, and of torch_npu's HCCL watchdog, for
// jobs that left nothing but their output. A file may hold one rank or several, in any order,
// between any other lines.
//
//   [rank3]:[E… ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught collective operation timeout:
//       WorkNCCL(SeqNum=12, OpType=ALLREDUCE, NumelIn=1024, NumelOut=1024, Timeout(ms)=600000)
//       ran for …
//   [rank3]:[E…] [PG ID 0 PG GUID 0(default_pg) Rank 3] failure detected by watchdog at
//       work sequence id: 12 PG status: last enqueued work: 14, last completed work: 11
//   [rank1]: Traceback (most recent call last):
//   [rank1]: ValueError: no more batches
//
// and the desync report (desync.h), which says of every rank of a group in which call it is.
//
// Sources: pytorch torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp (checkTimeout, logPrefix,
// watchdogHandler, heartbeatMonitor), 1.13 to 2.11, and logs that users showed in public issues.
// SeqNum counts a group's calls from 1. "last enqueued" and "last completed" are such numbers, -1
// before the first. In groups with point-to-point calls they mix two counters, so they are ignored
// where a send, receive or coalesced batch failed. "Rank" in brackets is the group rank. The global
// rank is that of the prefix "[rank3]:"; in the default group both are the same.
//
// A rank's trace holds the calls that timed out, how far it got in each group
// (RankTrace::progress), and its exceptions. link_logs.h adds what the other ranks' messages tell.

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"
#include "base/word_search.h"
#include "trace/evidence/line_labels.h"
#include "trace/formats/format.h"
#include "trace/formats/log_lines.h"
#include "trace/formats/torch_names.h"
#include "trace/formats/watchdog_log/desync.h"
#include "trace/formats/watchdog_log/lines.h"
#include "trace/formats/watchdog_log/link_logs.h"
#include "trace/formats/watchdog_log/planned_calls.h"
#include "trace/trace_builder.h"

namespace lockstep::trace {

namespace {

constexpr std::array<std::string_view, 5> kUnknownInWatchdogLog = {
    "all calls but those that timed out: not in the watchdog's messages",
    "ranks whose watchdog said nothing, and the size of the job: taken from the highest rank that "
    "is named",
    "members of groups other than the default one: not in the watchdog's messages",
    "element types, reduce operations, roots and splits: not in the watchdog's messages",
    "the groups of messages of PyTorch before 2.2: only calls of the same operation are compared",
};

constexpr std::int64_t kLargestSeq = INT32_MAX;
// A silent rank takes a thousand bytes: of a small file no more are taken at its word.
constexpr std::int64_t kMostSilentRanks = 4096;
constexpr std::string_view kRanks = " nranks ";
// A call of one rank that timed out.
struct Failed {
  WatchdogTimeout timeout;
  std::string op;  // a copy of WatchdogTimeout::op, which is a view into the line
  std::optional<std::string> group;
  bool counted = true;  // by the counter of collectives: no point-to-point call
};

struct OneRank {
  std::vector<Failed> failed;
  std::map<std::string, WatchdogProgress> progress;  // by group
  std::map<std::string, std::int64_t> group_ranks;   // by group, not of the default one
  std::vector<std::string> errors;
  bool in_traceback = false;
};

bool is_message_op(std::string_view op) {
  return op == "SEND" || op == "RECV" || op == "RECVANYSOURCE" || op == "COALESCED";
}

// Keeps the larger number: counters only grow, and lines may come in any order.
void raise(std::optional<std::int64_t>& known, std::optional<std::int64_t> seen) {
  if (seen && *seen <= kLargestSeq && (!known || *seen > *known)) known = seen;
}

class WatchdogLogReader {
 public:
  WatchdogLogReader(const TraceFile& file, Tables& tables) : file_(file), tables_(tables) {}

  Result<std::vector<RankTrace>> read() {
    const bool coloured = file_.bytes.find('\x1b') != std::string_view::npos;
    const std::string plain = coloured ? without_escapes(file_.bytes) : std::string();
    LogLines lines(coloured ? std::string_view(plain) : file_.bytes);
    bool any = false;
    DesyncReports reports;
    static const WordSearch search(
        {"atchdog", "CCL work: ", "enqueued work: ", "[rank", kRanks, DesyncReports::kBegin});
    WatchdogLineJoiner joiner;
    const auto take_line = [&](std::string_view line, int number) {
      const bool may_tell = search.occurs_in(line);  // most lines are other ones
      reports.take(line, may_tell);
      if (!may_tell) return;
      take_communicator(line);
      if (const auto parsed = parse_watchdog_line(line)) {
        any = true;
        take(*parsed, number);
      } else if (const auto rank = rank_in_prefix(line)) {
        highest_ = std::max(highest_, rank->value);
        take_traceback(*rank, line);
      }
    };
    while (const auto line = lines.next()) joiner.add(*line, lines.number(), take_line);
    joiner.finish(take_line);
    if (held_) take_whole(*held_, lines.number());
    for (const auto& [group, report] : reports.groups()) take_report(group, report);
    if (!any && ranks_.empty()) {
      return Error{"no message of PyTorch's NCCL watchdog in this log",
                   {file_.name},
                   "it says \"Watchdog caught collective operation timeout\""};
    }
    if (size_ == 0) size_ = size_by_elements();
    // A rank that wrote other lines alone belongs to the job, too, as the members of a communicator
    // do.
    const std::int32_t at_least = std::max(highest_ + 1, largest_communicator_);
    if (size_ == 0 && !ranks_.empty() && at_least > ranks_.rbegin()->first.value + 1)
      size_ = at_least;
    std::vector<RankTrace> out;
    for (auto& [rank, one] : ranks_) out.push_back(finish(rank, one));
    if (out.empty()) {
      return Error{"nothing says whose messages of the watchdog these are",
                   {file_.name},
                   "put the rank into the file's name: rank_3.log"};
    }
    if (lost_ > 0) {
      out.front().damaged_count += lost_;
      out.front().damaged.insert(out.front().damaged.end(), damage_.begin(), damage_.end());
    }
    return out;
  }

 private:
  void lose(std::string message, int line) {
    ++lost_;
    if (damage_.size() < RankTrace::kDamagedKept) {
      damage_.push_back({{file_.name, line}, std::move(message)});
    }
  }

  // The global rank of a line: by its prefix, by its group rank in the default group, or by the
  // file's name.
  std::optional<Rank> rank_of(const WatchdogLine& line) const {
    if (line.prefix) return line.prefix;
    std::int64_t in_group = kNone;
    bool is_default = true;
    if (line.group) {
      in_group = line.group->rank;
      is_default = watchdog_group_name(*line.group) == "world";
    } else if (line.timeout) {
      in_group = line.timeout->rank;
    }
    if (is_default && is_possible_rank(in_group, kMaxWorldSize)) {
      return Rank(static_cast<std::int32_t>(in_group));
    }
    return rank_of_file(file_);
  }

  // The message of a timeout does not name its group, and the next one of the rank does. Where no
  // prefix tells the rank and the file's name does, that decides whether "[Rank 0]" is the rank.
  void take(const WatchdogLine& line, int number) {
    if (held_) {
      WatchdogLine before = *std::exchange(held_, std::nullopt);
      if (line.group && !line.prefix && line.group->rank == before.timeout->rank)
        before.group = line.group;
      take_whole(before, number);
    }
    if (line.timeout && !line.group && !line.prefix && rank_of_file(file_)) {
      held_ = line;
    } else {
      take_whole(line, number);
    }
  }

  void take_whole(const WatchdogLine& line, int number) {
    if (line.cut) return lose("a message of the watchdog that is cut off", number);
    const std::optional<Rank> rank = rank_of(line);
    if (!rank) return lose("a message of the watchdog without a global rank", number);
    OneRank& one = ranks_[*rank];
    std::optional<std::string> group;
    if (line.group) group = watchdog_group_name(*line.group);
    if (group && *group != "world" && is_possible_rank(line.group->rank, kMaxWorldSize))
      one.group_ranks.emplace(*group, line.group->rank);
    if (line.timeout) take_timeout(one, *line.timeout, group);
    if (line.timeout) take_library(line.timeout->library);
    if (line.progress && group) take_progress(one, *group, *line.progress);
    if (!line.error.empty()) add_error(one, line.error);
  }

  // "NCCL INFO comm 0x5… rank 3 nranks 8 cudaDev 3 busId c5000 - Abort COMPLETE", which NCCL says
  // as the watchdog gives up: the job has at least as many ranks.
  void take_communicator(std::string_view line) {
    const std::size_t comm = line.find("NCCL INFO ");
    if (comm == kNpos || line.find("comm 0x", comm) == kNpos) return;
    const auto rank = number_after(line.substr(comm), " rank ");
    const auto ranks = number_after(line.substr(comm), kRanks);
    if (!rank || !ranks || *ranks > kMostSilentRanks || !is_possible_rank(*rank, *ranks)) return;
    largest_communicator_ = std::max(largest_communicator_, static_cast<std::int32_t>(*ranks));
  }

  // "HCCL" of "WorkHCCL(SeqNum=…".
  void take_library(std::string_view name) {
    static constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kOthers = {
        {{"HCCL", "hccl"}, {"MCCL", "mccl"}, {"CNCL", "cncl"}}};
    for (const auto& [library, backend] : kOthers)
      if (name == library) backend_ = backend;
  }

  // The size of the default group, by its gathered tensors: an all-gather's output holds every
  // rank's input. 0 where no message tells it, or two contradict each other.
  std::int32_t size_by_elements() const {
    std::set<std::int64_t> sizes;
    for (const auto& [rank, one] : ranks_) {
      for (const Failed& failed : one.failed) {
        const bool gathers = failed.op == "_ALLGATHER_BASE";
        if (failed.group != "world" || (!gathers && failed.op != "_REDUCE_SCATTER_BASE")) continue;
        const std::int64_t part = gathers ? failed.timeout.in : failed.timeout.out;
        const std::int64_t whole = gathers ? failed.timeout.out : failed.timeout.in;
        sizes.insert(part > 0 && whole % part == 0 ? whole / part : 0);
      }
    }
    const std::int64_t size = sizes.size() == 1 ? *sizes.begin() : 0;
    return size <= kMostSilentRanks ? static_cast<std::int32_t>(size) : 0;
  }

  // Group ranks of the default group are ranks; so are those of a log that names no group, where
  // PyTorch's "[Rank 3]" is taken for the rank, too. In others only ranks are known that say their
  // group rank themselves.
  void take_report(const std::string& name, const DesyncGroup& report) {
    const std::string group = name.empty() ? "world" : name;
    const bool is_world = group == "world";
    std::map<std::int64_t, Rank> speakers;
    for (const auto& [rank, one] : ranks_) {
      const auto own = one.group_ranks.find(group);
      if (is_world) speakers.emplace(rank.value, rank);
      if (!is_world && own != one.group_ranks.end()) speakers.emplace(own->second, rank);
    }
    // A silent rank takes a thousand bytes, and its mention in a hostile report two. If a
    // report names too many for the file's size, only those that speak count.
    constexpr std::size_t kFewRanks = 256;
    constexpr std::size_t kBytesPerRank = 64;
    const bool takes_all =
        is_world && report.ranks.size() <= std::max(kFewRanks, file_.bytes.size() / kBytesPerRank);
    if (takes_all) size_ = report.size;
    for (const auto& [group_rank, state] : report.ranks) {
      const auto speaker = speakers.find(group_rank);
      if (speaker == speakers.end() && !takes_all) continue;
      take_state(ranks_[speaker == speakers.end() ? Rank(group_rank) : speaker->second], group,
                 state);
    }
  }

  static void take_state(OneRank& one, const std::string& group, const DesyncState& state) {
    const std::int64_t completed = state.finished ? state.seq : state.seq - 1;
    take_progress(one, group, {kNone, state.seq, std::nullopt, completed});
    if (state.finished) return;
    WatchdogTimeout timeout;
    timeout.seq = state.seq;
    timeout.op = state.op;
    take_timeout(one, timeout, group);
  }

  // Adds a timed-out call, unless it is a repetition: PyTorch reports one twice, first without its
  // group and then with it.
  static void take_timeout(OneRank& one, const WatchdogTimeout& timeout,
                           const std::optional<std::string>& group) {
    // The desync report has no sizes, and messages before PyTorch 2.0 have no number.
    const auto agree = [](std::int64_t a, std::int64_t b) {
      return a == b || a == kNone || b == kNone;
    };
    for (Failed& known : one.failed) {
      WatchdogTimeout& before = known.timeout;
      if (!agree(before.seq, timeout.seq) || known.op != timeout.op) continue;
      if (!agree(before.in, timeout.in) || !agree(before.out, timeout.out)) continue;
      if (known.group && group && known.group != group) continue;
      if (!known.group) known.group = group;  // the same message again, now with its group
      before.seq = std::max(before.seq, timeout.seq);
      before.in = std::max(before.in, timeout.in);
      before.out = std::max(before.out, timeout.out);
      return;
    }
    constexpr std::size_t kMaxFailedCalls = 4096;  // per rank; keeps the search above bounded
    if (one.failed.size() == kMaxFailedCalls) return;
    Failed failed;
    failed.timeout = timeout;
    failed.op = timeout.op;
    failed.group = group;
    failed.counted = !is_message_op(timeout.op);
    one.failed.push_back(std::move(failed));
  }

  static void take_progress(OneRank& one, const std::string& group,
                            const WatchdogProgress& progress) {
    // This line names the group of the timeout with that number that came before without one.
    if (progress.failed != kNone) {
      for (Failed& failed : one.failed) {
        if (!failed.group && failed.timeout.seq == progress.failed) {
          failed.group = group;
          break;
        }
      }
    }
    WatchdogProgress& known = one.progress[group];
    known.failed = std::max(known.failed, progress.failed);
    raise(known.enqueued, progress.enqueued);
    raise(known.started, progress.started);
    raise(known.completed, progress.completed);
  }

  // Takes the last line of a Python traceback, which is the exception itself:
  //
  //   [rank1]: Traceback (most recent call last):
  //   [rank1]:   File "train.py", line 12, in <module>     indented: part of the stack
  //   [rank1]: ValueError: no more batches                 not indented: the exception
  void take_traceback(Rank rank, std::string_view line) {
    const std::string_view text = after_rank_prefix(line);
    if (text.empty()) return;
    if (text.starts_with("Traceback (most recent call last)")) {
      ranks_[rank].in_traceback = true;
      return;
    }
    const auto known = ranks_.find(rank);
    if (known == ranks_.end() || !known->second.in_traceback) return;
    if (text.front() == ' ' || text.front() == '\t') return;
    known->second.in_traceback = false;
    add_error(known->second, text);
  }

  static void add_error(OneRank& one, std::string_view text) {
    // As much as a person reads; a log may go on with errors for as long as the job hangs.
    constexpr std::size_t kMaxErrors = 16;
    constexpr std::size_t kLongestError = 1024;
    std::string error(text.substr(0, kLongestError));
    const bool again = std::find(one.errors.begin(), one.errors.end(), error) != one.errors.end();
    if (!again && one.errors.size() < kMaxErrors) one.errors.push_back(std::move(error));
  }

  // Makes the rank's trace. Its world size stays unknown, unless a desync report lists all ranks or
  // sizes tell it: a rank whose watchdog said nothing may be a higher one than any that is named.
  RankTrace finish(Rank rank, OneRank& one) {
    RankTrace trace;
    trace.rank = rank;
    trace.source = file_.name;
    trace.backend = backend_;
    trace.first_number = 1;
    if (!ranks_.empty() && size_ > ranks_.rbegin()->first.value) trace.world_size = size_;
    // A rank that tells its counters is alive while the others time out.
    trace.end = !one.failed.empty()    ? End::hung
                : !one.errors.empty()  ? End::exception
                : one.progress.empty() ? End::cut
                                       : End::hung;
    std::set<std::string> mixed;  // groups whose counters mix collectives and messages
    std::vector<PlannedCall> planned;
    std::set<std::pair<GroupId, std::int64_t>> numbers;
    for (const Failed& failed : one.failed) {
      if (!failed.counted && failed.group) mixed.insert(*failed.group);
      if (auto call = plan(failed); call && numbers.emplace(call->group, call->seq).second) {
        planned.push_back(*call);
      }
    }
    // "Timeout at NCCL work: 12" alone: the rank waits in a call of which only the number is known.
    for (const auto& [group, progress] : one.progress) {
      const std::int64_t failed = progress.failed;
      if (mixed.contains(group) || failed <= 0 || failed > kLargestSeq) continue;
      const GroupId id = tables_.groups.intern(group);
      if (progress.completed.value_or(0) < failed && numbers.emplace(id, failed - 1).second)
        planned.push_back({id, SignatureId{}, failed - 1, false, false, true});
    }
    rebuild(trace, std::move(planned));
    for (const auto& [group, progress] : one.progress) {
      if (mixed.contains(group)) continue;
      RankTrace::Progress out;
      out.group = tables_.groups.intern(group);
      out.enqueued = counted(progress.enqueued);
      out.completed = counted(progress.completed);
      // Always -1 where timing of the group's events is off, which is the default.
      if (progress.started && *progress.started > 0) out.started = counted(progress.started);
      trace.progress.push_back(out);
    }
    for (const auto& [group, group_rank] : one.group_ranks) {
      trace.groups.push_back({tables_.groups.intern(group),
                              tables_.rank_lists.intern(std::vector{rank}),
                              tables_.strings.intern(std::to_string(group_rank))});
    }
    for (const std::string& error : one.errors) {
      TraceBuilder(trace).add_mark(EventKind::exception, trace.exceptions,
                                   ExceptionMark{error, std::nullopt}, kNoTime);
    }
    return trace;
  }

  static std::optional<std::uint64_t> counted(std::optional<std::int64_t> number) {
    if (!number) return std::nullopt;
    return static_cast<std::uint64_t>(std::max<std::int64_t>(0, *number));
  }

  std::optional<PlannedCall> plan(const Failed& failed) {
    PlannedCall out;
    const std::optional<Op> op = op_from_torch(failed.op);
    out.message = op && is_point_to_point(*op);
    // Old messages have no number. Any number serves: nothing else of the group is known.
    const std::int64_t seq = failed.timeout.seq == kNone ? 1 : failed.timeout.seq;
    if (seq < 0 || seq > kLargestSeq) return std::nullopt;
    out.seq = std::max<std::int64_t>(0, seq - 1);
    std::string group = failed.group.value_or(fmt::format("{}{})", kUnnamedGroup, failed.op));
    // The message does not say whether a batch was of messages or of collectives, which are
    // counted apart. So batches get a group of their own, where their numbers are compared among
    // themselves.
    if (failed.op == "COALESCED") group += ", coalesced";
    out.group = tables_.groups.intern(group);
    out.waits = true;
    Signature s;
    set_op(s, op, failed.op, tables_);
    // An all-to-all's sizes may differ between ranks, and a barrier's say nothing.
    const bool sized = op != Op::barrier && op != Op::all_to_all && op != Op::all_to_all_single;
    if (sized) {
      s.in = flat_tensor(failed.timeout.in, tables_);
      s.out = flat_tensor(failed.timeout.out, tables_);
    }
    out.signature = tables_.make_signature(s);
    return out;
  }

  const TraceFile& file_;
  Tables& tables_;
  std::map<Rank, OneRank> ranks_;
  std::optional<WatchdogLine> held_;       // a timeout whose group the next message names
  std::int32_t largest_communicator_ = 0;  // its ranks, as NCCL says
  std::string backend_ = "nccl";
  std::int32_t highest_ = kNone;  // rank in the prefix of any line
  std::int32_t size_ = 0;         // of the default group, where a desync report or sizes tell it
  std::uint64_t lost_ = 0;
  std::vector<DamagedRecord> damage_;
};

Result<std::vector<RankTrace>> read_watchdog_log(const TraceFile& file, Tables& tables) {
  return WatchdogLogReader(file, tables).read();
}

// Whether the text has the message of a call that timed out, on one line or wrapped after the
// colon.
bool tells_timeout(std::string_view text, std::string_view sign) {
  for (std::size_t at = text.find(sign); at != std::string_view::npos;
       at = text.find(sign, at + 1)) {
    const std::size_t next = text.find_first_not_of(" \r\n", at + sign.size());
    if (next != std::string_view::npos && text.substr(next).starts_with("Work")) return true;
  }
  return false;
}

bool is_watchdog_log(std::string_view bytes) {
  constexpr std::string_view kTimedOut = "Watchdog caught collective operation timeout:";
  constexpr std::string_view kDetected = "detected by watchdog at work";
  constexpr std::string_view kNumberAlone = "Timeout at NCCL work: ";
  static const WordSearch search({kTimedOut, kDetected, kNumberAlone, DesyncReports::kBegin});
  return sample_of(bytes).any([&](std::string_view text) {
    return search.occurs_in(text) &&
           (tells_timeout(text, kTimedOut) || contains_text(text, DesyncReports::kBegin) ||
            contains_text(text, "ProcessGroupNCCL"));
  });
}

}  // namespace

Format watchdog_log_format() {
  return {.name = "watchdog-log",
          .summary = "a job's output with the messages of PyTorch's NCCL watchdog",
          .recognises = is_watchdog_log,
          .read = read_watchdog_log,
          .link = link_watchdog_log,
          .unknown = kUnknownInWatchdogLog,
          .is_log = true};
}

}  // namespace lockstep::trace
