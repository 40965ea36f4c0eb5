// NCCL's own logs, written with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,COLL: one file per
// process (NCCL_DEBUG_FILE=nccl.%h.%p) or the output of several, with whatever a launcher puts
// before a line.
//
//   host:pid:tid [0] NCCL INFO ncclCommInitRank comm 0x5… rank 0 nranks 4 cudaDev 0 nvmlDev 0 busId
//       1000 commId 0x8b… - Init COMPLETE
//   host:pid:tid [0] NCCL INFO AllReduce: opCount 1a sendbuff 0x7… recvbuff 0x7… count 1024
//       datatype 7 op 0 root 0 comm 0x5… [nranks=4] stream 0x5…
//
// Sources: NVIDIA/nccl src/enqueue.cc, src/init.cc, src/nccl.h.in, src/debug.cc, versions 2.7 to
// 2.28. opCount and pointers are hexadecimal, the rest decimal; `root` of Send and Recv is the
// peer; ranks are those of the communicator; `count` is that of the C call (per rank for AllGather,
// ReduceScatter and AlltoAll).
//
// Processes have a communicator in common if they log the same commId; for one made by
// ncclCommSplit, if parent, count of splits and color are the same. NCCL before 2.14 logs no
// commId: then the largest communicators are taken as those of all ranks, the first of one process
// as the first of another. Smaller ones stay unknown: several sets of ranks may have made them.
// `link` joins the communicators over all files: it names the largest one "world", translates their
// ranks into global ranks, and fills in members where all were found. A process's global rank is
// that of PyTorch's prefix "[rank3]:", otherwise that of the file's name (for a file with one
// process), otherwise its rank in the largest communicator. If these collide, processes are
// numbered by host and pid.
//
// If the log's beginning is missing, opCount aligns the calls as long as it grows with each call of
// a communicator. (Calls of one ncclGroup share a number; then nothing aligns them.)
//
// Memory: at most kNcclLogMemoryFactor times the file's size, if every line is of another process;
// for calls alone, at most 4 times.

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "base/word_search.h"
#include "trace/formats/format.h"
#include "trace/formats/log_lines.h"
#include "trace/formats/nccl_log/lines.h"
#include "trace/gpus.h"
#include "trace/groups.h"
#include "trace/trace_builder.h"

namespace lockstep::trace {

namespace {

constexpr std::string_view kWatchdogTimeout = "Watchdog caught collective operation timeout";

constexpr std::array<std::string_view, 5> kUnknownInNcclLog = {
    "completion of calls, and times: not recorded in NCCL's log",
    "which of a group's operations a program meant (barrier, list or tensor form): NCCL's log "
    "shows what NCCL was asked for",
    "reduce operations that the program made itself, and tags of point-to-point calls: not "
    "recorded in NCCL's log",
    "splits of all-to-all: NCCL's log shows them as point-to-point calls",
    "global ranks: taken from the largest communicator where no prefix or file name says",
};

constexpr std::string_view kOfUnidentified = " ranks";  // ends names of such communicators

bool is_unidentified(std::string_view name) {
  return name.starts_with("comm ") && name.ends_with(kOfUnidentified);
}

std::string prefixed_hex(std::uint64_t value) { return fmt::format("{:#x}", value); }

// A call, before its numbering is decided.
struct Planned {
  Call call;
  std::uint64_t op_count;
  bool message;
};

// One process and device, which becomes a rank.
struct Process {
  std::string host;
  std::int64_t pid = kNone, gpu = kNone;
  std::optional<Rank> by_prefix;
  bool hung = false, closed = false;
  std::int64_t largest = 0, rank_in_largest = 0;
  std::vector<RankTrace::Membership> memberships;
  std::vector<Planned> calls;
  std::uint64_t damaged = 0;
  std::vector<DamagedRecord> damage;
};

class NcclLogReader {
 public:
  NcclLogReader(const TraceFile& file, Tables& tables) : file_(file), tables_(tables) {}

  Result<std::vector<RankTrace>> read() {
    LogLines lines(file_.bytes);
    static const WordSearch search({kNcclInfo, kWatchdogTimeout});  // most lines are other ones
    while (const auto line = lines.next()) {
      number_ = lines.number();
      if (!search.occurs_in(*line)) continue;
      if (line->find(kWatchdogTimeout) != std::string_view::npos) {
        hung_.push_back(rank_in_prefix(*line));
        continue;
      }
      const std::optional<NcclLine> parsed = parse_nccl_line(*line);
      if (parsed) take(*parsed, *line);
    }
    // A job's output in which only the watchdog mentions calls.
    const bool calls = std::any_of(processes_.begin(), processes_.end(),
                                   [](const Process& process) { return !process.calls.empty(); });
    if (!calls && !hung_.empty()) return read_watchdog();
    if (processes_.empty()) return nothing_found();
    mark_hung();
    std::vector<RankTrace> out;
    out.reserve(processes_.size());
    for (Process& process : processes_) out.push_back(finish(process));
    return out;
  }

 private:
  // Reads the watchdog's messages. What NCCL says of its communicators adds the size of the job,
  // and where the ranks ran.
  Result<std::vector<RankTrace>> read_watchdog() {
    Result<std::vector<RankTrace>> traces = watchdog_log_format().read(file_, tables_);
    if (!traces) return traces;
    std::map<std::int64_t, RankList> worlds;  // by size
    for (RankTrace& trace : *traces) {
      const auto own = std::find_if(processes_.begin(), processes_.end(), [&](const Process& p) {
        return p.by_prefix ? *p.by_prefix == trace.rank : p.rank_in_largest == trace.rank.value;
      });
      if (own == processes_.end()) continue;
      trace.host = own->host;
      trace.pid = own->pid;
      trace.gpu = gpu_index(own->gpu);
      if (own->largest <= trace.rank.value || own->largest > kMaxWorldSize) continue;
      const auto [world, is_new] = worlds.try_emplace(own->largest);
      if (is_new) {
        std::vector<Rank> members;
        members.reserve(static_cast<std::size_t>(own->largest));
        for (std::int32_t r = 0; r < own->largest; ++r) members.emplace_back(r);
        world->second = tables_.rank_lists.intern(members);
      }
      trace.groups.push_back({tables_.groups.intern("world"), world->second, StringId{}});
    }
    return traces;
  }

  Error nothing_found() const {
    const bool calls = orphans_ > 0;
    return {calls ? "calls of collectives, but no line that says who is in their communicators"
                  : "no communicator and no collective in this NCCL log",
            {file_.name},
            "run with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,COLL"};
  }

  void take(const NcclLine& line, std::string_view whole) {
    if (is_nccl_call(line.message)) {
      take_call(line);
    } else if (is_nccl_init(line.message)) {
      take_init(line, whole);
    } else if (const auto comm = parse_nccl_destroy(line.message)) {
      const auto found = comms_.find({std::string(line.host), line.pid, *comm});
      if (found == comms_.end()) return;
      processes_[found->second.process].closed = true;
      // The next one at that address is another.
      if (is_unidentified(found->second.name)) comms_.erase(found);
    }
  }

  void damage(std::size_t process, std::string message) {
    Process& p = processes_[process];
    ++p.damaged;
    if (p.damage.size() < RankTrace::kDamagedKept) {
      p.damage.push_back({{file_.name, number_}, std::move(message)});
    }
  }

  // Registers a communicator. NCCL logs each one twice, at "Init START" and "Init COMPLETE".
  void take_init(const NcclLine& line, std::string_view whole) {
    const std::optional<NcclInit> init = parse_nccl_init(line.message);
    if (!init) return;  // cut off; the other of the two lines may be whole
    const std::string host(line.host);
    std::string name = identity(*init, host, line.pid);
    const bool numbered = name.empty() && !init->is_split;
    if (name.empty() && !numbered) return;
    const Key key{host, line.pid, init->comm};
    const auto known = comms_.find(key);
    if (known != comms_.end() &&
        (numbered ? is_unidentified(known->second.name) && known->second.nranks == init->nranks
                  : known->second.name == name)) {
      return;  // the second of START and COMPLETE
    }
    const std::size_t p = process_of(host, line.pid, *init);
    if (numbered) name = number_of(p, init->nranks);
    Process& process = processes_[p];
    if (!process.by_prefix) process.by_prefix = rank_in_prefix(whole);
    process.closed = false;
    if (init->nranks > process.largest) {
      process.largest = init->nranks;
      process.rank_in_largest = init->rank;
    }
    const GroupId group = tables_.groups.intern(name);
    comms_[key] = {p, group, name, init->nranks};
    process.memberships.push_back(unlinked_membership(group, static_cast<std::int32_t>(init->rank),
                                                      static_cast<std::int32_t>(init->nranks), {},
                                                      tables_));
  }

  // A name for the communicator that is the same in all its processes: "comm 0x8b…", or "comm
  // 0x8b…/split 1.0". Empty where nothing identifies it. (The pointer differs between processes.)
  std::string identity(const NcclInit& init, const std::string& host, std::int64_t pid) {
    if (!init.is_split)
      return init.comm_id == 0 ? "" : fmt::format("comm {}", prefixed_hex(init.comm_id));
    const auto parent = comms_.find({host, pid, init.parent});
    if (parent == comms_.end())
      return init.comm_id == 0 ? "" : fmt::format("comm {}", prefixed_hex(init.comm_id));
    std::int64_t split = init.split;
    if (split == kNone) split = splits_seen(host, pid, init);
    return fmt::format("{}/split {}.{}", parent->second.name, split, init.color);
  }

  // A name for a communicator that the log does not identify: "comm 1 of 8 ranks".
  std::string number_of(std::size_t process, std::int64_t nranks) {
    return fmt::format("comm {} of {}{}", ++made_[{process, nranks}], nranks, kOfUnidentified);
  }

  // The number of the split among its parent's, for versions that do not log it. A split is a
  // collective call, so counting gives the same number in all members.
  std::int64_t splits_seen(const std::string& host, std::int64_t pid, const NcclInit& init) {
    auto& seen = splits_[{host, pid, init.parent}];
    const auto [known, is_new] =
        seen.emplace(init.comm, static_cast<std::int64_t>(seen.size()) + 1);
    return known->second;
  }

  std::size_t process_of(const std::string& host, std::int64_t pid, const NcclInit& init) {
    const auto [known, is_new] =
        process_index_.try_emplace({host, pid, init.device}, processes_.size());
    if (is_new) {
      Process& process = processes_.emplace_back();
      process.host = host;
      process.pid = pid;
      process.gpu = init.gpu;
    }
    return known->second;
  }

  // Reads a call. Calls on communicators whose creation is not in the log belong to no known rank.
  void take_call(const NcclLine& line) {
    const std::optional<NcclLogCall> call = parse_nccl_call(line.message);
    if (!call) {
      if (const auto only = only_process(line)) {
        damage(*only, "a call's line is cut off or run into another");
      } else {
        ++orphans_;
      }
      return;
    }
    const auto comm = comms_.find({std::string(line.host), line.pid, call->comm});
    if (comm == comms_.end()) {
      ++orphans_;
      if (const auto only = only_process(line)) {
        damage(*only, "a call on a communicator whose making is not in the log");
      }
      return;
    }
    NcclLogCall complete = *call;
    if (complete.nranks == kNone) complete.nranks = comm->second.nranks;
    Planned planned;
    planned.op_count = call->op_count;
    planned.message = is_nccl_message(call->name);
    planned.call.group = comm->second.group;
    planned.call.signature = nccl_signature(complete, tables_);
    planned.call.flags = kAsync;
    if (planned.message && is_possible_rank(call->root, comm->second.nranks)) {
      planned.call.peer = Rank(static_cast<std::int32_t>(call->root));
    }
    processes_[comm->second.process].calls.push_back(planned);
  }

  // The process of a line by host and pid alone; nothing where it drives several devices.
  std::optional<std::size_t> only_process(const NcclLine& line) const {
    const std::string host(line.host);
    const auto first = process_index_.lower_bound({host, line.pid, INT64_MIN});
    const auto is_of = [&](auto it) {
      return it != process_index_.end() && std::get<0>(it->first) == host &&
             std::get<1>(it->first) == line.pid;
    };
    if (!is_of(first) || is_of(std::next(first))) return std::nullopt;
    return first->second;
  }

  void mark_hung() {
    for (const std::optional<Rank>& rank : hung_) {
      for (Process& process : processes_) {
        const bool same = rank && process.by_prefix == rank;
        if (same || processes_.size() == 1) process.hung = true;
      }
    }
  }

  RankTrace finish(Process& process) {
    RankTrace trace;
    trace.source = file_.name;
    trace.backend = "nccl";
    trace.host = process.host;
    trace.pid = process.pid;
    trace.gpu = gpu_index(process.gpu);
    std::int64_t rank = process.rank_in_largest;
    const std::optional<Rank> by_name = rank_of_file(file_);
    if (processes_.size() == 1 && by_name) rank = by_name->value;
    if (process.by_prefix) rank = process.by_prefix->value;
    trace.rank = Rank(static_cast<std::int32_t>(rank));
    trace.world_size = static_cast<std::int32_t>(std::max<std::int64_t>(process.largest, rank + 1));
    trace.end = process.hung ? End::hung : process.closed ? End::clean : End::cut;
    trace.damaged_count = process.damaged;
    trace.damaged = std::move(process.damage);
    set_apart_smaller(process);
    const std::map<GroupId, bool> numbered = numbering(process, trace);
    TraceBuilder builder(trace);
    std::int64_t id = 0;
    for (Planned& planned : process.calls) {
      planned.call.id = id++;
      const bool recorded = !planned.message && numbered.at(planned.call.group);
      if (recorded) planned.call.seq = static_cast<std::uint32_t>(planned.op_count);
      const auto refused = builder.add_issue(
          planned.call, planned.message, kNoTime,
          recorded ? TraceBuilder::Numbering::recorded : TraceBuilder::Numbering::count);
      if (!refused.empty()) trace.add_damage(std::string(refused));
    }
    if (process.hung) wait_for_the_last(trace, builder);
    trace.groups = std::move(process.memberships);
    process.calls.clear();
    return trace;
  }

  // Which ranks a communicator holds that is smaller than the largest and that the log does not
  // identify is unknown: its calls get a group of their own, compared with nobody's.
  void set_apart_smaller(Process& process) {
    std::map<GroupId, GroupId> own;
    for (const RankTrace::Membership& m : process.memberships) {
      const std::string& name = tables_.str(m.group);
      if (!is_unidentified(name) || m.ranks[1].value >= process.largest) continue;
      own.emplace(m.group, tables_.groups.intern(fmt::format("{} of process {} on {}", name,
                                                             process.pid, process.host)));
    }
    if (own.empty()) return;
    std::erase_if(process.memberships, [&](const auto& m) { return own.contains(m.group); });
    for (Planned& planned : process.calls) {
      const auto found = own.find(planned.call.group);
      if (found != own.end()) planned.call.group = found->second;
    }
  }

  // Decides by group whether opCount is used as the sequence number: if the log begins mid-run
  // (first opCount > 0) and the number grows with each call. Counts the lost calls in
  // RankTrace::dropped.
  static std::map<GroupId, bool> numbering(const Process& process, RankTrace& trace) {
    struct Seen {
      std::uint64_t first = 0, last = 0;
      bool grows = true;
    };
    std::map<GroupId, Seen> seen;
    for (const Planned& planned : process.calls) {
      const auto [known, is_new] =
          seen.try_emplace(planned.call.group, Seen{planned.op_count, planned.op_count, true});
      if (is_new) continue;
      known->second.grows &= planned.op_count > known->second.last;
      known->second.last = planned.op_count;
    }
    std::map<GroupId, bool> out;
    for (const auto& [group, s] : seen) {
      trace.dropped += std::min<std::uint64_t>(s.first, UINT32_MAX);
      out[group] = s.first > 0 && s.grows && s.last < UINT32_MAX;
    }
    // If any group lost calls, the whole ones need recorded numbers, too.
    for (const auto& [group, s] : seen) {
      if (trace.dropped > 0 && s.first == 0 && s.grows && s.last < UINT32_MAX) out[group] = true;
    }
    return out;
  }

  // For a process that the watchdog saw hang: it waits for its last call in each group.
  static void wait_for_the_last(RankTrace& trace, TraceBuilder& builder) {
    std::set<GroupId> done;
    std::vector<std::int64_t> ids;
    for (std::size_t c = trace.calls.size(); c-- > 0;) {
      if (done.insert(trace.calls[c].group).second) ids.push_back(trace.calls[c].id);
    }
    std::reverse(ids.begin(), ids.end());
    for (const std::int64_t id : ids) builder.add_call_event(EventKind::wait, id, kNoTime);
  }

  using Key = std::tuple<std::string, std::int64_t, std::uint64_t>;  // host, pid, pointer
  struct Known {
    std::size_t process = 0;
    GroupId group;
    std::string name;
    std::int64_t nranks = 0;
  };

  const TraceFile& file_;
  Tables& tables_;
  int number_ = 0;
  std::map<Key, Known> comms_;
  std::map<Key, std::map<std::uint64_t, std::int64_t>> splits_;
  // How many communicators of a size that the log does not identify a process made.
  std::map<std::pair<std::size_t, std::int64_t>, std::int64_t> made_;
  std::map<std::tuple<std::string, std::int64_t, std::int64_t>, std::size_t> process_index_;
  std::deque<Process> processes_;
  std::vector<std::optional<Rank>> hung_;
  std::uint64_t orphans_ = 0;
};

Result<std::vector<RankTrace>> read_nccl_log(const TraceFile& file, Tables& tables) {
  return NcclLogReader(file, tables).read();
}

// Where two processes have one rank in a communicator that their logs do not identify, there were
// several: the calls of each process get a group of their own, compared with nobody's.
void set_apart_contradicted(std::span<RankTrace> traces, Tables& tables) {
  std::set<std::pair<GroupId, Rank>> taken;
  std::set<GroupId> contradicted;
  for (const RankTrace& trace : traces) {
    for (const auto& m : trace.groups) {
      if (!is_unlinked(m, tables) || m.ranks.size() != 2 || !is_unidentified(tables.str(m.group)))
        continue;
      if (!taken.emplace(m.group, m.ranks[0]).second) contradicted.insert(m.group);
    }
  }
  if (contradicted.empty()) return;
  for (RankTrace& trace : traces) {
    std::erase_if(trace.groups, [&](const auto& m) { return contradicted.contains(m.group); });
    for (Call& call : trace.calls.own()) {
      if (contradicted.contains(call.group))
        call.group = tables.groups.intern(
            fmt::format("{} of process {} on {}", tables.str(call.group), trace.pid, trace.host));
    }
  }
}

void link_nccl_log(std::span<RankTrace> traces, Tables& tables) {
  set_apart_contradicted(traces, tables);
  const auto others =
      std::stable_partition(traces.begin(), traces.end(),
                            [&](const RankTrace& trace) { return has_unlinked(trace, tables); });
  // Output in which only the watchdog speaks of calls.
  if (others != traces.end()) watchdog_log_format().link({others, traces.end()}, tables);
  link_communicators(traces, tables, {.ranks_are_guesses = true});
}

bool is_nccl_log(std::string_view bytes) {
  LogLines lines(sample_of(bytes).head);
  while (const auto line = lines.next()) {
    if (parse_nccl_line(*line)) return true;
  }
  return false;
}

}  // namespace

Format nccl_log_format() {
  return {.name = "nccl-log",
          .summary = "NCCL's logs (NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS=INIT,COLL)",
          .recognises = is_nccl_log,
          .read = read_nccl_log,
          .link = link_nccl_log,
          .unknown = kUnknownInNcclLog,
          .is_log = true};
}

}  // namespace lockstep::trace
