// Profiles of torch.profiler: the Chrome traces that Kineto writes (`*.pt.trace.json`), one file
// per rank.
//
//   {"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8,
//      "pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "pg_size": 8, "ranks": [0, …]}]},
//    "traceEvents": [
//     {"ph": "X", "cat": "cpu_op", "name": "record_param_comms", "ts": 7125.5, "dur": 21.0,
//      "args": {"External id": 37, "Collective name": "allreduce", "dtype": "Float",
//        "In msg nelems": 1024, "Process Group Name": "0", "Group size": 8, …}}, …]}
//
// The reader takes every `record_param_comms` event of the host (a call, in program order), the
// `ProfilerStep#N` ranges (training steps), the NCCL kernels with the same "External id" (when the
// device began and finished), and "distributedInfo" (the rank, the process groups). If the
// host was not profiled, the kernels are taken as the calls, in their order.
//
// Sources: pytorch/kineto libkineto/src/output_json.cpp, pytorch torch/csrc/profiler/util.cpp
// (saveNcclMeta) and ProcessGroupNCCL.cpp; written by PyTorch 2.3 and later ("Seq" since 2026).
// "Rank" is the root's group rank for rooted operations; "Src Rank" and "Dst Rank" are global. An
// abbreviated list of ranks (more than 30) is not used as a list of members.
//
// A profile is a window of the run: see link_profiles.cc.
//
// Cost: the file is walked once without parsing; only events of interest are parsed, one at a time.
// Memory: at most kKinetoMemoryFactor times the file's size, typically a hundredth of it.

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"
#include "trace/formats/format.h"
#include "trace/formats/kineto/events.h"
#include "trace/formats/kineto/work.h"
#include "trace/formats/torch_names.h"
#include "trace/gpus.h"
#include "trace/trace_builder.h"

namespace lockstep::trace {

namespace {

constexpr std::array<std::string_view, 5> kUnknownInKineto = {
    "torch.profiler records a window of the run: what came before and after it is not known",
    "reduce operation: not recorded by torch.profiler, except where the name of a kernel shows it",
    "tags of point-to-point calls: not recorded by torch.profiler",
    "waits of the host: not distinguished by torch.profiler",
    "sizes of all-to-all calls over lists, and calls of backends other than NCCL: not recorded by "
    "torch.profiler",
};

// record_param_comms events that are not communication.
bool is_no_call(std::string_view op) {
  return op == "wait" || op == "init" || op == "destroy" || op == "abort" ||
         op == "startCoalescing" || op == "endCoalescing";
}

bool is_rooted(Op op) {
  return op == Op::broadcast || op == Op::reduce || op == Op::gather || op == Op::scatter;
}

// When the kernels of one call ran, and their reduce operation.
struct OnDevice {
  Nanos begin = std::numeric_limits<Nanos>::max(), end = 0;
  StringId redop;
  std::int64_t stream = kNone;
};

// When the host issued it; see KinetoWorkWriter.
Nanos host_time(const KinetoComm& call) {
  return call.queued == kNoTime ? call.begin : call.queued;
}

// Makes a rank's trace of the events that scan_kineto found.
class Assembler {
 public:
  Assembler(KinetoEvents events, const TraceFile& file, Tables& tables)
      : events_(std::move(events)), file_(file), tables_(tables) {}

  Result<std::vector<RankTrace>> assemble() {
    if (Status status = identify(); !status) return status.error();
    for (std::string& what : events_.damage) trace_.add_damage(std::move(what));
    trace_.damaged_count = events_.damage_count;
    trace_.end = events_.whole ? End::clean : End::cut;
    trace_.open_ended = !events_.whole;
    // Without training steps the window is cut by time, at a different call on each rank.
    trace_.snapshot = events_.steps.empty();
    use_plain_kernels();
    declare_groups();
    sort_steps();
    work_.emplace(events_, trace_, tables_);
    sort();
    gather_kernels();
    choose_numbering();
    add_calls();
    builder_.finish();
    std::vector<RankTrace> out;
    out.push_back(std::move(trace_));
    return out;
  }

 private:
  // Finds the rank and the world size: in the profile, else by the file's name and the groups.
  Status identify() {
    trace_.source = file_.name;
    trace_.inconclusive = events_.inconclusive;
    trace_.backend = events_.backend;
    trace_.host = events_.host;
    trace_.pid = events_.pid;
    trace_.gpu = gpu_index(events_.gpu);
    std::int64_t rank = events_.rank;
    if (rank == kNone && file_.rank) rank = file_.rank->value;
    // A profile of a single process has no rank and no communication: accept it, as inconclusive.
    const bool silent = events_.calls.empty() && events_.kernels.empty();
    if (rank == kNone && silent && events_.without_details == 0 && events_.plain_kernels.empty()) {
      rank = 0;
      trace_.inconclusive = fmt::format(
          "nothing says whose recording {} is, and it holds no communication: taken as rank 0",
          printable(file_.name));
    }
    if (rank == kNone) {
      return Error{
          "nothing says whose recording this is",
          {file_.name},
          "the file does not name its rank; put the rank into the file's name: rank_3.json"};
    }
    std::int64_t world = events_.world_size;
    if (world == kNone) {
      world = rank + 1;
      for (const auto& [name, group] : events_.groups) {
        if (group.size <= kMaxWorldSize) world = std::max(world, group.size);
        for (const Rank member : group.ranks.value_or(std::vector<Rank>{})) {
          world = std::max<std::int64_t>(world, member.value + 1);
        }
      }
    }
    if (!is_possible_rank(rank, world)) {
      return Error{fmt::format("rank {} is not below world_size {}", rank, world),
                   {file_.name},
                   "does its name hold the rank? --rank-pattern says where"};
    }
    trace_.rank = Rank(static_cast<std::int32_t>(rank));
    trace_.world_size = static_cast<std::int32_t>(world);
    return Status::ok();
  }

  // Uses the kernels' names where there is nothing else: in profiles from before PyTorch 2.3. The
  // ranks of a stream's communicator are unknown, and SendRecv may be a message or an all-to-all.
  // So each stream becomes a group of this rank alone, which is compared with no other rank's.
  void use_plain_kernels() {
    if (!events_.calls.empty() || !events_.kernels.empty()) return;
    if (events_.plain_kernels.empty() && events_.without_details == 0) return;
    const std::string rank = fmt::format(" of rank {}", trace_.rank.value);
    for (KinetoComm& kernel : events_.plain_kernels) {
      kernel.group = tables_.strings.intern(tables_.str(kernel.group) + rank);
    }
    events_.kernels = std::move(events_.plain_kernels);
    // Declares the groups, as if the profile had named them.
    for (const KinetoComm& kernel : events_.kernels) events_.groups[tables_.str(kernel.group)];
    if (trace_.inconclusive.empty())
      trace_.inconclusive =
          "profiles from before PyTorch 2.3 hold the names of NCCL's kernels alone: neither groups "
          "nor sizes, so that the ranks' calls cannot be compared";
  }

  // Declares the groups. The default group becomes "world"; PyTorch names it "0", or not at all.
  void declare_groups() {
    bool world_seen = false;
    for (const auto& [name, group] : events_.groups) {
      const bool is_default =
          group.desc == "default_pg" || (group.desc.empty() && (name.empty() || name == "0") &&
                                         (group.size == kNone || group.size == trace_.world_size));
      const bool is_world = is_default && !world_seen;
      world_seen |= is_world;
      const GroupId id = tables_.groups.intern(is_world ? "world" : name);
      group_ids_[tables_.strings.intern(name)] = id;
      if (!group.ranks) continue;
      const bool described =
          !group.desc.empty() && group.desc != "default_pg" && group.desc != "undefined";
      const StringId desc = tables_.strings.intern(described ? group.desc : "");
      const auto refused = builder_.add_group(id, *group.ranks, desc);
      if (!refused.empty()) trace_.add_damage(fmt::format("group {}: {}", name, refused));
    }
  }

  // Program order: by time, then as the profiler numbered them.
  void sort() {
    const auto earlier = [](const KinetoComm& a, const KinetoComm& b) {
      return std::pair(host_time(a), a.external_id) < std::pair(host_time(b), b.external_id);
    };
    std::stable_sort(events_.calls.begin(), events_.calls.end(), earlier);
    std::stable_sort(events_.kernels.begin(), events_.kernels.end(), earlier);
  }
  void sort_steps() {
    std::stable_sort(events_.steps.begin(), events_.steps.end(),
                     [](const KinetoStep& a, const KinetoStep& b) { return a.begin < b.begin; });
  }

  // Connects kernels with calls by "External id". A call may run several kernels: it lasts from the
  // first one's begin to the last one's end.
  void gather_kernels() {
    if (events_.calls.empty()) {  // the host was not profiled
      events_.calls = events_.kernels;
      from_kernels_ = true;
      return;
    }
    for (const KinetoComm& kernel : events_.kernels) {
      if (kernel.external_id == kNone) continue;
      OnDevice& device = on_device_[kernel.external_id];
      device.begin = std::min(device.begin, kernel.begin);
      device.end = std::max(device.end, kernel.end);
      if (kernel.redop.value != 0) device.redop = kernel.redop;
      device.stream = kernel.stream;
    }
  }

  // Decides for each group whether its recorded sequence numbers are used: they are if they grow
  // with each call. Calls of one batch share a number; such groups' calls are counted instead.
  void choose_numbering() {
    std::map<StringId, std::int64_t> first, last;
    for (const KinetoComm& call : events_.calls) {
      const std::string& op = tables_.str(call.op);
      if (is_no_call(op)) continue;
      if (is_point_to_point(op_from_torch(op).value_or(Op::other))) continue;
      const auto [known, is_new] = last.emplace(call.group, call.seq);
      const bool usable = call.seq > 0 && call.seq <= INT32_MAX &&
                          (is_new || (known->second > 0 && call.seq > known->second));
      known->second = usable ? call.seq : 0;  // 0: the group stays unusable
      first.emplace(call.group, call.seq);
      numbered_[call.group] = usable && (is_new || numbered_[call.group]);
    }
    bool all = true;
    for (const auto& [group, usable] : numbered_) {
      if (usable) trace_.dropped += static_cast<std::uint64_t>(first[group] - 1);
      all &= usable;
    }
    // PyTorch's numbers begin with 1; where a group's calls are counted here, with 0.
    trace_.first_number = all && !numbered_.empty() ? 1 : 0;
  }

  // The training step at that time; kNone between steps.
  std::int32_t step_at(Nanos time) const {
    auto after = std::upper_bound(events_.steps.begin(), events_.steps.end(), time,
                                  [](Nanos t, const KinetoStep& s) { return t < s.begin; });
    if (after == events_.steps.begin()) return kNone;
    const KinetoStep& step = *--after;
    return time <= step.end ? static_cast<std::int32_t>(step.n) : kNone;
  }

  SignatureId signature(const KinetoComm& call, Op op, bool known) {
    Signature s;
    set_op(s, known ? std::optional(op) : std::nullopt, tables_.str(call.op), tables_);
    if (op == Op::all_to_all_single) {
      // The forms over lists and over one tensor have the same name in a profile. Sizes are
      // comparable only where splits were recorded.
      s.splits_in = call.splits_in;
      s.splits_out = call.splits_out;
    }
    const bool sized = op != Op::barrier && (op != Op::all_to_all_single ||
                                             (s.splits_in.value != 0 && s.splits_out.value != 0));
    if (sized) {
      s.in = flat_tensor(call.in, tables_);
      s.out = flat_tensor(call.out, tables_);
    }
    if (op != Op::barrier && call.dtype.value != 0) {
      s.dtypes = tables_.name_lists.intern({call.dtype});
    }
    if (is_reduction(op)) s.redop = redop(call);
    if (is_rooted(op)) s.root = root(call);
    return tables_.make_signature(s);
  }

  StringId redop(const KinetoComm& call) const {
    if (from_kernels_) return call.redop;
    const auto found = on_device_.find(call.external_id);
    return found == on_device_.end() ? StringId{} : found->second.redop;
  }

  std::int32_t root(const KinetoComm& call) const {
    const auto group = events_.groups.find(tables_.str(call.group));
    if (call.rank == kNone || group == events_.groups.end() || !group->second.ranks) return kNone;
    const std::vector<Rank>& ranks = *group->second.ranks;
    const auto position = static_cast<std::size_t>(call.rank);
    return position < ranks.size() && ranks[position].value < trace_.world_size
               ? ranks[position].value
               : kNone;
  }

  // Whether the call is part of a barrier: older versions implement a barrier by an all-reduce,
  // which they record as well, within the barrier's time on the same thread.
  bool within_barrier(const KinetoComm& call) {
    const bool barrier = op_from_torch(tables_.str(call.op)) == Op::barrier;
    const auto [last, is_new] = last_barrier_.emplace(call.thread, -1);
    const bool within = !is_new && call.begin <= last->second;
    if (barrier) last->second = call.end;
    return within && !barrier;
  }

  // A device event or the end of a step, to be merged with the calls by time.
  struct Later {
    Nanos time;
    std::int64_t id;
    EventKind kind;
  };

  // Makes calls of the records, in order, and collects their device events. merge() then adds
  // everything by time.
  void add_calls() {
    std::vector<Later> later;
    std::int64_t id = 0;
    std::vector<std::pair<std::int64_t, Nanos>> issued;
    for (const KinetoComm& record : events_.calls) {
      const std::string& name = tables_.str(record.op);
      if (is_no_call(name) || (!from_kernels_ && within_barrier(record))) continue;
      if (work_->is_outside(host_time(record))) continue;
      const std::optional<Op> known = call_op(name);
      Call call;
      call.id = id;
      call.group = group_ids_[record.group];
      call.signature = signature(record, known.value_or(Op::other), known.has_value());
      call.step = step_at(record.begin);
      call.flags = kAsync;  // NCCL queues the work and returns
      const bool message = is_point_to_point(known.value_or(Op::other));
      if (message && record.peer < trace_.world_size) call.peer = Rank(record.peer);
      const bool recorded = !message && numbered_[record.group];
      if (recorded) call.seq = static_cast<std::uint32_t>(record.seq - 1);
      const auto found = on_device_.find(record.external_id);
      const bool runs = from_kernels_ || found != on_device_.end();
      const OnDevice device = from_kernels_ ? OnDevice{record.begin, record.end, {}, record.stream}
                              : runs        ? found->second
                                            : OnDevice{};
      calls_.push_back(
          {call, message, events_.timed ? host_time(record) : kNoTime, recorded, device});
      if (runs) {
        later.push_back({device.begin, id, EventKind::start});
        later.push_back({device.end, id, EventKind::complete});
      }
      ++id;
    }
    for (std::size_t i = 0; i < events_.steps.size(); ++i) {
      later.push_back({events_.steps[i].end, static_cast<std::int64_t>(i), EventKind::step});
    }
    work_->number_from(id);
    std::stable_sort(later.begin(), later.end(), [](const Later& a, const Later& b) {
      return std::tie(a.time, a.kind) < std::tie(b.time, b.kind);
    });
    merge(later);
  }

  static std::optional<Op> call_op(std::string_view name) {
    const std::optional<Op> op = op_from_torch(name);
    return op == Op::all_to_all ? Op::all_to_all_single : op;
  }

  // Adds calls and later events in the order of their times.
  void merge(const std::vector<Later>& later) {
    std::size_t next = 0;
    const auto add_until = [&](Nanos time, std::int64_t issued) {
      for (; next < later.size() && later[next].time < time; ++next) add(later[next], issued);
    };
    for (Planned& planned : calls_) {
      add_until(planned.time, planned.call.id);
      work_->write_until(planned.time);
      const OnDevice& device = planned.device;
      planned.call.stream = work_->before_call(device.begin, device.stream);
      const auto refused = builder_.add_issue(
          planned.call, planned.message, planned.time,
          planned.recorded ? TraceBuilder::Numbering::recorded : TraceBuilder::Numbering::count);
      if (!refused.empty())
        trace_.add_damage(std::string(refused));
      else
        work_->after_call(planned.call.id, device.end, device.stream);
    }
    add_until(std::numeric_limits<Nanos>::max(), std::numeric_limits<std::int64_t>::max());
    work_->write_until(std::numeric_limits<Nanos>::max());
  }

  // `issued`: the number of calls added so far. A kernel must not run before its call.
  void add(const Later& event, std::int64_t issued) {
    if (event.kind == EventKind::step) {
      work_->write_until(event.time);
      const KinetoStep& step = events_.steps[static_cast<std::size_t>(event.id)];
      builder_.add_mark(EventKind::step, trace_.steps, {step.n, {}, {}}, event.time);
    } else if (event.id < issued) {
      builder_.add_call_event(event.kind, event.id, event.time);
    } else {
      trace_.add_damage("a kernel ran before its call");
    }
  }

  struct Planned {
    Call call;
    bool message;
    Nanos time;
    bool recorded;
    OnDevice device;
  };

  KinetoEvents events_;
  const TraceFile& file_;
  Tables& tables_;
  RankTrace trace_;
  TraceBuilder builder_{trace_};
  std::map<StringId, GroupId> group_ids_;
  std::map<StringId, bool> numbered_;
  std::unordered_map<std::int64_t, OnDevice> on_device_;
  std::map<std::int64_t, Nanos> last_barrier_;
  std::vector<Planned> calls_;
  std::optional<KinetoWorkWriter> work_;
  bool from_kernels_ = false;
};

Result<std::vector<RankTrace>> read_kineto(const TraceFile& file, Tables& tables) {
  Result<KinetoEvents> events = scan_kineto(file.bytes, file.name, tables, file.work);
  if (!events) return events.error();
  return assemble_kineto(std::move(*events), file, tables);
}

}  // namespace

Result<std::vector<RankTrace>> assemble_kineto(KinetoEvents events, const TraceFile& file,
                                               Tables& tables) {
  return Assembler(std::move(events), file, tables).assemble();
}

Format kineto_format() {
  return {.name = "kineto",
          .summary = "profiles of torch.profiler (*.pt.trace.json)",
          .recognises = looks_like_kineto,
          .read = read_kineto,
          .link = link_kineto,
          .unknown = kUnknownInKineto};
}

}  // namespace lockstep::trace
