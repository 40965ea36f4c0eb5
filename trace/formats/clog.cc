// torchcomms' collective log ("clog", version 1): one text file per rank.
//
//   V|1|base_timestamp=1714234567.890
//   new_comm|comm=world|rank=0|world_size=8
//   C1|sig|all_reduce|in_count=1024|out_count=1024|dtype=f32|red_op=sum|async_op=f|comm=world
//   C1|Q|work_id=1|+0.001            enqueued; then started, ended, waited for
//   C1|S|+0.002
//   C1|E|+0.005
//   split|parent=world|child=tp|ranks=0,1
//
// Source: torchcomms comms/torchcomms/hooks/clog (ClogHook.cpp, AI_TOOL_INSTRUCTIONS_V1.md). S and
// E name a signature (C1), not a call: they belong to the oldest call with that signature that has
// none yet. Roots and peers are ranks in the communicator; "ranks" of a split are global.
//
// A log is a snapshot of a process that may still run. Where lifecycle events are off (only Q
// lines), it shows which calls were issued, but not which completed.

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/numbers.h"
#include "base/text.h"
#include "trace/formats/format.h"
#include "trace/formats/log_lines.h"
#include "trace/formats/torch_names.h"
#include "trace/trace_builder.h"

namespace lockstep::trace {

namespace {

constexpr std::array<std::string_view, 5> kUnknownInClog = {
    "waits: a clog shows that a rank waited, but not when the wait returned",
    "messages issued as one batch: a clog has only their number",
    "calls in replayed CUDA graphs: a clog does not number them",
    "members of communicators that no split lists: taken from the ranks that use them",
    "training steps, parameters and tags: not recorded in a clog",
};

// "+1.234", in seconds, as nanoseconds; nothing where it is not a time.
std::optional<Nanos> time_in(std::string_view field) {
  if (!field.starts_with('+')) return std::nullopt;
  const std::optional<double> seconds = parse_number<double>(field.substr(1));
  constexpr double kLatest = 4e9;  // seconds; a later one would overflow Nanos
  if (!seconds || !(*seconds >= 0) || *seconds > kLatest) return std::nullopt;
  return static_cast<Nanos>(*seconds * 1e9);
}

std::string_view dtype_name(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kNames = {
      {{"f32", "float32"},
       {"f64", "float64"},
       {"f16", "float16"},
       {"bf16", "bfloat16"},
       {"i32", "int32"},
       {"i64", "int64"},
       {"i16", "int16"},
       {"i8", "int8"},
       {"u8", "uint8"}}};
  for (const auto& [own, full] : kNames) {
    if (name == own) return full;
  }
  return name == "other" ? std::string_view() : name;
}

std::optional<Op> op_named(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, Op>, 6> kOwn = {
      {{"all_gather_single", Op::all_gather_into_tensor},
       {"reduce_scatter_single", Op::reduce_scatter_tensor},
       {"all_to_all_v_single", Op::all_to_all_single},
       {"all_gather_v", Op::all_gather},
       {"reduce_scatter_v", Op::reduce_scatter},
       {"gather_single", Op::gather}}};
  for (const auto& [own, op] : kOwn) {
    if (name == own) return op;
  }
  return op_from_torch(name);
}

struct Communicator {
  std::int64_t rank = kNone, size = kNone;
  std::vector<Rank> members;  // global; empty: not listed
  GroupId group;
};

// A queue of call ids. There are two per signature, so an empty one must hold no memory of its own,
// as std::deque does.
class Calls {
 public:
  bool empty() const { return first_ == ids_.size(); }
  void push(std::int64_t id) { ids_.push_back(id); }
  std::int64_t pop() {
    const std::int64_t id = ids_[first_++];
    if (empty()) {
      ids_.clear();
      first_ = 0;
    }
    return id;
  }

 private:
  std::vector<std::int64_t> ids_;
  std::size_t first_ = 0;
};

// What a signature line ("C1|sig|…") defines, and the open calls with that signature.
struct StateKind {
  SignatureId signature;
  std::string comm;
  bool message = false;
  bool batch = false;
  std::int64_t peer = kNone, root = kNone;  // ranks of the communicator
  Calls queued, started;                    // calls without S; calls with S, without E
};

class ClogReader {
 public:
  ClogReader(const TraceFile& file, Tables& tables) : file_(file), tables_(tables) {}

  Result<std::vector<RankTrace>> read() {
    trace_.source = file_.name;
    trace_.backend = "nccl";
    find_communicators();
    if (Status status = identify(); !status) return status.error();
    LogLines lines(file_.bytes);
    while (const auto line = lines.next()) {
      number_ = lines.number();
      if (!line->empty()) take(*line);
    }
    builder_.finish();
    // Without lifecycle events it is a list of issued calls, like NCCL's own log.
    trace_.snapshot = lifecycle_;
    trace_.end = lifecycle_ ? End::hung : End::cut;
    if (!lifecycle_) {
      for (Event& event : trace_.events.own()) event.time = kNoTime;
    }
    if (replays_) {
      trace_.inconclusive =
          "CUDA graphs were replayed, whose calls a clog does not number: what ran in them is not "
          "compared";
    }
    std::vector<RankTrace> out;
    out.push_back(std::move(trace_));
    return out;
  }

 private:
  using Fields = std::vector<std::string_view>;

  static Fields split(std::string_view line, char separator, std::size_t most) {
    Fields out;
    while (out.size() + 1 < most) {
      const std::size_t at = line.find(separator);
      if (at == kNpos) break;
      out.push_back(line.substr(0, at));
      line.remove_prefix(at + 1);
    }
    out.push_back(line);
    return out;
  }

  static std::string_view value_of(const Fields& fields, std::string_view key) {
    for (const std::string_view field : fields) {
      if (field.size() > key.size() && field.starts_with(key) && field[key.size()] == '=') {
        return field.substr(key.size() + 1);
      }
    }
    return {};
  }

  static constexpr std::size_t kMaxFields = 32;

  // Collects all communicators in a first pass: a call may come before the split that lists its
  // communicator's members.
  void find_communicators() {
    LogLines lines(file_.bytes);
    while (const auto line = lines.next()) {
      if (line->starts_with("new_comm|")) {
        const Fields fields = split(*line, '|', kMaxFields);
        Communicator& comm = comms_[name_of(value_of(fields, "comm"))];
        comm.rank = parse_number<std::int64_t>(value_of(fields, "rank")).value_or(kNone);
        comm.size = parse_number<std::int64_t>(value_of(fields, "world_size")).value_or(kNone);
      } else if (line->starts_with("split|")) {
        const Fields fields = split(*line, '|', kMaxFields);
        const auto numbers = integers_in(value_of(fields, "ranks"));
        const auto ranks = numbers ? ranks_in(*numbers) : std::nullopt;
        if (ranks && !ranks->empty()) comms_[name_of(value_of(fields, "child"))].members = *ranks;
      }
    }
  }

  static std::string name_of(std::string_view text) {
    constexpr std::size_t kLongest = 256;
    return std::string(text.substr(0, kLongest));
  }

  // Finds the rank and the world size. The world is the largest communicator that no split made.
  Status identify() {
    const Communicator* world = nullptr;
    std::string world_name;
    for (const auto& [name, comm] : comms_) {
      if (!comm.members.empty() || !is_possible_rank(comm.rank, comm.size)) continue;
      if (world == nullptr || comm.size > world->size) {
        world = &comm;
        world_name = name;
      }
    }
    std::int64_t rank = world != nullptr ? world->rank : kNone;
    if (rank == kNone && file_.rank) rank = file_.rank->value;
    if (rank == kNone) {
      return Error{"nothing says whose log this is",
                   {file_.name},
                   "it has no new_comm line; put the rank into the file's name: clog_rank_3.log"};
    }
    std::int64_t size = world != nullptr ? world->size : rank + 1;
    for (const auto& [name, comm] : comms_) {
      for (const Rank r : comm.members) size = std::max<std::int64_t>(size, r.value + 1);
    }
    trace_.rank = Rank(static_cast<std::int32_t>(rank));
    trace_.world_size = static_cast<std::int32_t>(size);
    for (auto& [name, comm] : comms_) {
      comm.group = tables_.groups.intern(name == world_name ? "world" : name);
      if (comm.members.empty()) continue;
      const auto refused = builder_.add_group(comm.group, comm.members, {});
      if (!refused.empty()) damage(std::string(refused));
    }
    return Status::ok();
  }

  void damage(std::string message) { trace_.add_damage(std::move(message), number_); }

  // Dispatches on the first letter: C for a call, G for a CUDA graph ("G1|C1|Q|…" a captured call,
  // "G1|R|…" a replay).
  void take(std::string_view line) {
    if (line.starts_with('C')) return take_call(line);
    if (!line.starts_with('G')) return;  // the header, communicators, warnings
    const std::size_t bar = line.find('|');
    if (bar == kNpos) return damage("a line that is cut off");
    line.remove_prefix(bar + 1);
    if (line.starts_with('R')) {
      replays_ = true;
    } else if (line.starts_with('C')) {
      take_call(line);
    } else {
      damage("a line of a graph without its call");
    }
  }

  void take_call(std::string_view line) {
    const Fields head = split(line, '|', 3);
    const auto correlation = parse_number<std::int64_t>(head[0].substr(1));
    if (!correlation || head.size() < 3) return damage("a line that is cut off");
    if (head[1] == "sig") return define(*correlation, head[2]);
    const auto found = kinds_.find(*correlation);
    if (found == kinds_.end()) return damage("an event of a call without its signature");
    StateKind& kind = found->second;
    if (kind.batch) return;
    const std::size_t last = line.rfind('|');
    const std::optional<Nanos> time = time_in(line.substr(last + 1));
    if (!time) return damage("an event without its time");
    if (head[1] == "Q") return issue(kind, *time);
    if (head[1] == "S") {
      lifecycle_ = true;
      if (kind.queued.empty()) return;
      const std::int64_t id = kind.queued.pop();
      builder_.add_call_event(EventKind::start, id, *time);
      kind.started.push(id);
    } else if (head[1] == "E") {
      lifecycle_ = true;
      // The S line may be missing.
      Calls& open = kind.started.empty() ? kind.queued : kind.started;
      if (!open.empty()) builder_.add_call_event(EventKind::complete, open.pop(), *time);
    }
  }

  void issue(StateKind& kind, Nanos time) {
    Call call;
    call.id = next_id_++;
    call.signature = kind.signature;
    call.group = comms_[kind.comm].group;
    call.flags = kAsync;  // the host goes on after it enqueued the call
    if (kind.message) call.peer = Rank(global(kind.comm, kind.peer));
    const auto refused =
        builder_.add_issue(call, kind.message, time, TraceBuilder::Numbering::count);
    if (!refused.empty()) return damage(std::string(refused));
    kind.queued.push(call.id);
  }

  // A rank in a communicator as a global rank; kNone where its members are unknown.
  std::int32_t global(const std::string& name, std::int64_t rank) const {
    const auto found = comms_.find(name);
    if (found == comms_.end() || rank < 0) return kNone;
    const std::vector<Rank>& members = found->second.members;
    if (members.empty()) {
      const bool world = tables_.str(found->second.group) == "world";
      return world && rank < trace_.world_size ? static_cast<std::int32_t>(rank) : kNone;
    }
    const auto index = static_cast<std::size_t>(rank);
    return index < members.size() ? members[index].value : kNone;
  }

  // Reads a signature line: "all_reduce|in_count=1024|out_count=1024|dtype=f32|red_op=sum|…".
  void define(std::int64_t correlation, std::string_view text) {
    const Fields fields = split(text, '|', kMaxFields);
    StateKind kind;
    kind.comm = name_of(value_of(fields, "comm"));
    auto [comm, is_new] = comms_.try_emplace(kind.comm);
    if (is_new) comm->second.group = tables_.groups.intern(kind.comm);
    const std::string own(fields[0].substr(0, 64));
    kind.batch = own == "batch_op_issue";
    const std::optional<Op> op = op_named(own);
    kind.message = op && is_point_to_point(*op);
    kind.peer = parse_number<std::int64_t>(value_of(fields, "peer")).value_or(kNone);
    Signature s;
    set_op(s, op, own, tables_);
    if (op != Op::barrier) {
      s.in = sizes(fields, "in_count", "in_counts");
      s.out = sizes(fields, "out_count", "out_counts");
      if (op == Op::send) s.out = {};
      if (op == Op::recv) s.in = {};
      if (const auto dtype = dtype_name(value_of(fields, "dtype")); !dtype.empty()) {
        s.dtypes = tables_.make_names({std::string(dtype.substr(0, 64))});
      }
      s.splits_in = list(value_of(fields, "in_splits"));
      s.splits_out = list(value_of(fields, "out_splits"));
    }
    const std::string_view redop = value_of(fields, "red_op");
    if (op && is_reduction(*op) && !redop.empty() && redop != "unknown") {
      s.redop =
          tables_.strings.intern(redop == "prod" ? "product" : std::string(redop.substr(0, 64)));
    }
    if (const auto root = parse_number<std::int64_t>(value_of(fields, "root")))
      s.root = global(kind.comm, *root);
    kind.signature = tables_.make_signature(s);
    kinds_.insert_or_assign(correlation, std::move(kind));
  }

  IntListId list(std::string_view text) {
    const auto numbers = integers_in(text);
    const bool usable =
        numbers && !numbers->empty() &&
        std::all_of(numbers->begin(), numbers->end(), [](auto n) { return n >= 0; });
    return usable ? tables_.int_lists.intern(*numbers) : IntListId{};
  }

  // Sizes as flat tensors: one count ("in_count=1024") or a list of counts ("in_counts=4,8").
  IntListId sizes(const Fields& fields, std::string_view one, std::string_view many) {
    if (const auto count = parse_number<std::int64_t>(value_of(fields, one)))
      return flat_tensor(*count, tables_);
    const auto counts = integers_in(value_of(fields, many));
    if (!counts || counts->empty()) return {};
    std::vector<std::vector<std::int64_t>> shapes;
    for (const std::int64_t count : *counts) {
      if (count < 0) return {};
      shapes.push_back({count});
    }
    return tables_.int_lists.intern(flatten_shapes(shapes));
  }

  const TraceFile& file_;
  Tables& tables_;
  RankTrace trace_;
  TraceBuilder builder_{trace_};
  std::map<std::string, Communicator> comms_;
  std::unordered_map<std::int64_t, StateKind> kinds_;
  std::int64_t next_id_ = 0;
  int number_ = 0;
  bool lifecycle_ = false, replays_ = false;
};

Result<std::vector<RankTrace>> read_clog(const TraceFile& file, Tables& tables) {
  return ClogReader(file, tables).read();
}

// Completes the traces: groups that no split lists get the ranks that use them as members.
void link_clog(std::span<RankTrace> traces, Tables& tables) {
  std::int32_t world = 0;
  std::map<GroupId, std::vector<Rank>> users;
  std::map<GroupId, bool> listed;
  for (const RankTrace& trace : traces) {
    world = std::max(world, trace.world_size);
    for (const auto& membership : trace.groups) listed[membership.group] = true;
    GroupId last;
    bool first = true;
    for (const Call& call : trace.calls) {
      if (!first && call.group == last) continue;
      first = false;
      last = call.group;
      std::vector<Rank>& ranks = users[call.group];
      if (std::find(ranks.begin(), ranks.end(), trace.rank) == ranks.end()) {
        ranks.push_back(trace.rank);
      }
    }
  }
  const GroupId world_group = tables.groups.intern("world");
  for (RankTrace& trace : traces) {
    trace.world_size = world;
    for (auto& [group, ranks] : users) {
      if (group == world_group || listed.contains(group)) continue;
      std::sort(ranks.begin(), ranks.end());
      if (std::find(ranks.begin(), ranks.end(), trace.rank) == ranks.end()) continue;
      trace.groups.push_back({group, RankList(ranks), {}});
    }
  }
}

bool is_clog(std::string_view bytes) { return bytes.starts_with("V|1|base_timestamp="); }

}  // namespace

Format clog_format() {
  return {.name = "clog",
          .summary = "torchcomms' collective log (ClogHook, version 1)",
          .recognises = is_clog,
          .read = read_clog,
          .link = link_clog,
          .unknown = kUnknownInClog};
}

}  // namespace lockstep::trace
