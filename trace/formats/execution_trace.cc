// PyTorch's execution traces as JSON: what ExecutionTraceObserver writes, one file per rank, schema
// 1.0.1 to 1.1.1 (PyTorch 1.13 to 2.9).
//
//   {"schema": "1.0.1", "pid": 59811, …, "nodes": [
//     {"name": "record_param_comms", "id": 727, "parent": 726, …,
//      "inputs": [[718, …], 147, 94594108284448, 0, "all_to_allv", [768, …], [768, …]], …}, …]}
//
// From 1.0.2-chakra.0.0.4 on, values are below "inputs" → "values", parents are "ctrl_deps", and
// 1.1.0 adds attributes: collective_name, dtype, in_msg_nelems, pg_name, ….
//
// The reader takes each `record_param_comms` node, in the order of the nodes' ids, which is the
// order of the calls. Its values are, before the operation's name: tensors, the number in the
// group, the group (a pointer, later a pair of name and description), a rank (the root for rooted
// operations); after it: splits, then first rank, stride and size of the group, or the size alone.
//
// Sources: pytorch torch/csrc/profiler/standalone/execution_trace_observer.cpp,
// torch/csrc/distributed/c10d/ParamCommsUtils.hpp and ProcessGroupNCCL.cpp. Before 1.0.3 a group is
// known by a pointer alone, which means nothing to other ranks: if a rank has one group, it is
// taken for the world.
//
// Like a profile, an execution trace is a window of the run. Nodes are found by a scan without
// parsing; only those of communication are parsed.

#include <simdjson.h>

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
#include "trace/formats/format.h"
#include "trace/formats/json_scan.h"
#include "trace/formats/kineto/events.h"
#include "trace/formats/torch_names.h"
#include "trace/trace_builder.h"

namespace lockstep::trace {

namespace {

namespace dom = simdjson::dom;

constexpr std::array<std::string_view, 5> kUnknownInExecutionTrace = {
    "an execution trace is a window of the run: what came before and after it is not known",
    "reduce operations, tags, completion, times and waits: not recorded in execution traces",
    "element types and sizes of calls over lists: only those of schema 1.1.0 and later",
    "groups before schema 1.0.3: known by a pointer; where a rank has one, it is taken as that of "
    "all ranks, and where it has several, their calls are not compared",
    "training steps: not recorded in execution traces",
};

constexpr std::size_t kLongestTraceNode = std::size_t{16} << 20U;
constexpr std::size_t kLookedAt = std::size_t{64} << 10U;
constexpr std::string_view kNode = "\"record_param_comms\"";

std::optional<std::int64_t> trace_integer(const dom::element& element) {
  std::int64_t out = 0;
  if (element.get(out) == simdjson::SUCCESS) return out;
  std::uint64_t large = 0;  // pointers
  // Halved to fit: pointers are even, and only compared with each other.
  if (element.get(large) == simdjson::SUCCESS) return static_cast<std::int64_t>(large >> 1U);
  return std::nullopt;
}

std::optional<std::vector<std::int64_t>> integers(const dom::element& element) {
  dom::array array;
  std::string_view text;
  if (element.get(text) == simdjson::SUCCESS) return integers_in(text);
  if (element.get(array) != simdjson::SUCCESS) return std::nullopt;
  std::vector<std::int64_t> out;
  for (const dom::element item : array) {
    const auto value = trace_integer(item);
    if (!value) return std::nullopt;
    out.push_back(*value);
  }
  return out;
}

class TraceScanner {
 public:
  TraceScanner(const TraceFile& file, Tables& tables)
      : file_(file), bytes_(file.bytes), tables_(tables) {}

  KinetoEvents scan() {
    JsonMembers top(bytes_);
    bool any = false;
    while (const auto member = top.next()) {
      if (member->key == "pid") events_.pid = number_at(member->begin);
      if (member->key != "nodes") continue;
      any = true;
      const std::size_t end = scan_nodes(member->begin);
      if (end == kNpos) break;
      top.leave_at(end);
    }
    events_.whole = any && top.ended();
    if (!events_.whole) lose("the file ends in the middle; what came before was read");
    events_.timed = false;
    name_groups();
    find_peers();
    return std::move(events_);
  }

 private:
  void lose(std::string what) {
    ++events_.damage_count;
    if (events_.damage.size() < RankTrace::kDamagedKept) events_.damage.push_back(std::move(what));
  }

  std::int64_t number_at(std::size_t at) const {
    const std::size_t end = json_value_end(bytes_, at, 32);
    if (end == kNpos) return kNone;
    const auto numbers = integers_in(bytes_.substr(at, end - at));
    return numbers && numbers->size() == 1 ? numbers->front() : kNone;
  }

  // One past the list of nodes; npos where the file ends within it.
  std::size_t scan_nodes(std::size_t at) {
    if (at >= bytes_.size() || bytes_[at] != '[') return json_value_end(bytes_, at);
    JsonElements nodes(bytes_, at, kLongestTraceNode);
    while (const auto node = nodes.next())
      if (node->find(kNode) != kNpos) read_node(*node);
    return nodes.ended() ? nodes.at() : kNpos;
  }

  void read_node(std::string_view text) {
    dom::element element;
    dom::object node;
    if (parser_.parse(text.data(), text.size()).get(element) != simdjson::SUCCESS ||
        element.get(node) != simdjson::SUCCESS) {
      return lose("a node that is not JSON");
    }
    std::string_view name;
    if (node.at_key("name").get(name) != simdjson::SUCCESS || name != "record_param_comms") return;
    std::int64_t id = 0;
    if (node.at_key("id").get(id) != simdjson::SUCCESS || id < 0) {
      return lose("a call without an id");
    }
    dom::array values;
    dom::object inputs;
    if (node.at_key("inputs").get(inputs) == simdjson::SUCCESS) {
      if (inputs.at_key("values").get(values) != simdjson::SUCCESS)
        return lose("a call without values");
    } else if (node.at_key("inputs").get(values) != simdjson::SUCCESS) {
      return lose("a call without values");
    }
    // There are no times: ids take their place, as an order (KinetoEvents::timed is false).
    KinetoComm comm;
    comm.begin = id;
    comm.end = id;
    comm.external_id = id;
    read_values(values, comm);
    if (comm.op.value == 0) return lose("a call without its operation");
    read_size(values, comm);
    dom::array attributes;
    if (node.at_key("attrs").get(attributes) == simdjson::SUCCESS)
      read_attributes(attributes, comm);
    if (comm.group.value == 0) return;  // waits, which name no group
    events_.calls.push_back(comm);
  }

  StringId name(std::string_view text) { return tables_.strings.intern(std::string(text)); }

  // [tensors…, number, group, rank, "allreduce", splits_in, splits_out, start, stride, size]: the
  // name is the only string outside of lists, and everything is found by its position.
  void read_values(const dom::array& array, KinetoComm& comm) {
    constexpr std::size_t kMaxValues = 32;
    std::vector<dom::element> values;
    for (const dom::element value : array) {
      if (values.size() < kMaxValues) values.push_back(value);
    }
    std::size_t at = 0;
    while (at < values.size() && !values[at].is_string()) ++at;
    // Number, group and rank come directly before the operation.
    if (at == values.size() || at < 3) return;
    std::string_view op;
    if (values[at].get(op) != simdjson::SUCCESS || op.size() > 64) return;
    comm.op = name(op);
    if (op == "wait" || op == "init") return;
    read_number(values[at - 3], comm);
    const auto own = trace_integer(values[at - 1]);
    const bool own_is_rank = own && is_possible_rank(*own, kMaxWorldSize);
    if (own_is_rank) comm.rank = static_cast<std::int32_t>(*own);
    std::vector<std::int64_t> rest;
    std::vector<std::vector<std::int64_t>> splits;
    for (std::size_t v = at + 1; v < values.size(); ++v) {
      if (const auto number = trace_integer(values[v])) {
        rest.push_back(*number);
      } else if (auto list = integers(values[v])) {
        splits.push_back(std::move(*list));
      }
    }
    const std::optional<Op> known = op_from_torch(op);
    if (splits.size() >= 2) {
      comm.splits_in = splits_of(splits[0]);
      comm.splits_out = splits_of(splits[1]);
      // An all-to-all has a split for each member; before 1.0.3 nothing else tells a group's size.
      if (rest.empty() && known == Op::all_to_all_single && !splits[0].empty())
        rest.push_back(static_cast<std::int64_t>(splits[0].size()));
    }
    read_group(values[at - 2], rest, comm);
    const bool rooted = known == Op::broadcast || known == Op::reduce || known == Op::gather ||
                        known == Op::scatter;
    if (known && is_point_to_point(*known)) {
      comm.peer = comm.rank;  // send: the destination, recv: the source (ranks of the group)
      comm.rank = kNone;
    } else if (!rooted) {
      // Neither rooted nor a message: the rank is the caller's own group rank.
      if (own_is_rank) own_rank_[comm.group].insert(comm.rank);
      comm.rank = kNone;
    }
  }

  // Reads the input's size. A tensor is [id, storage, offset, elements, bytes of an element,
  // device]; before 1.1.0 this is the only record of the size. The first value is a tensor or a
  // list of tensors. Only for operations whose first value is their input.
  void read_size(const dom::array& values, KinetoComm& comm) {
    const std::optional<Op> op = op_from_torch(tables_.str(comm.op));
    const bool simple = op == Op::all_reduce || op == Op::broadcast || op == Op::reduce ||
                        op == Op::all_gather || op == Op::all_gather_into_tensor ||
                        op == Op::reduce_scatter_tensor;
    dom::array first;
    if (!simple || values.size() == 0 || values.at(0).get(first) != simdjson::SUCCESS) return;
    const auto elements = [](const dom::array& tensor) {
      constexpr std::size_t kParts = 6;
      return tensor.size() == kParts ? trace_integer(tensor.at(3)) : std::nullopt;
    };
    if (const auto own = elements(first); own && *own >= 0) {
      comm.in = *own;
      return;
    }
    std::int64_t sum = 0;
    for (const dom::element element : first) {
      dom::array tensor;
      if (element.get(tensor) != simdjson::SUCCESS) return;
      const auto part = elements(tensor);
      if (!part || *part < 0 || *part > INT64_MAX - sum) return;
      sum += *part;
    }
    if (first.size() > 0) comm.in = sum;
  }

  // The sequence number: an integer, or since 2025 the pair (number, is point-to-point).
  static void read_number(const dom::element& value, KinetoComm& comm) {
    if (const auto number = trace_integer(value)) {
      comm.seq = *number;
    } else if (const auto pair = integers(value); pair && !pair->empty()) {
      comm.seq = pair->front();
    } else {
      dom::array items;
      if (value.get(items) == simdjson::SUCCESS && items.size() > 0) {
        comm.seq = trace_integer(items.at(0)).value_or(kNone);
      }
    }
    if (comm.seq <= 0 || comm.seq > INT32_MAX) comm.seq = kNone;
  }

  IntListId splits_of(const std::vector<std::int64_t>& list) {
    const bool usable =
        !list.empty() && std::all_of(list.begin(), list.end(), [](auto n) { return n >= 0; });
    return usable ? tables_.int_lists.intern(list) : IntListId{};
  }

  // Reads the group: ["0", "default_pg"], or a pointer. `rest`: the numbers after the operation.
  void read_group(const dom::element& value, const std::vector<std::int64_t>& rest,
                  KinetoComm& comm) {
    std::string group;
    std::string desc;
    dom::array pair;
    if (value.get(pair) == simdjson::SUCCESS) {
      std::string_view first;
      std::string_view second;
      if (pair.size() < 1 || pair.at(0).get(first) != simdjson::SUCCESS) return;
      if (pair.size() > 1 && pair.at(1).get(second) == simdjson::SUCCESS)
        desc = second.substr(0, 256);
      group = first.substr(0, 256);
    } else if (const auto pointer = trace_integer(value); pointer && *pointer != 0) {
      constexpr std::size_t kMaxGroups = 256;  // each costs a pass over the calls
      group = fmt::format("pointer {}", *pointer);
      if (!pointers_.contains(group) && pointers_.size() == kMaxGroups) return;
      pointers_.insert(group);
    } else {
      return;
    }
    KinetoGroup& known = events_.groups[group];
    if (known.desc.empty()) known.desc = desc;
    const std::int64_t size = rest.empty() ? kNone : rest.back();
    if (known.size == kNone && size > 0 && size <= kMaxWorldSize) known.size = size;
    if (!known.ranks && rest.size() >= 3)
      take_stride(known, rest[rest.size() - 3], rest[rest.size() - 2]);
    comm.group = name(group);
  }

  static void take_stride(KinetoGroup& group, std::int64_t start, std::int64_t stride) {
    // A few digits of the file become a list of that length, for each of its groups.
    constexpr std::int64_t kMaxMembers = 1 << 16;
    if (group.size < 1 || group.size > kMaxMembers || start < 0 || start > kMaxWorldSize) return;
    if (stride < 1 || stride > kMaxWorldSize) return;
    std::vector<std::int64_t> numbers;
    for (std::int64_t i = 0; i < group.size; ++i) numbers.push_back(start + i * stride);
    group.ranks = ranks_in(numbers);
  }

  void read_attributes(const dom::array& attributes, KinetoComm& comm) {
    for (const dom::element element : attributes) {
      dom::object attribute;
      std::string_view key;
      dom::element value;
      if (element.get(attribute) != simdjson::SUCCESS ||
          attribute.at_key("name").get(key) != simdjson::SUCCESS ||
          attribute.at_key("value").get(value) != simdjson::SUCCESS) {
        continue;
      }
      std::string_view text;
      if (key == "dtype" && value.get(text) == simdjson::SUCCESS) {
        comm.dtype = name(dtype_from_torch(text.substr(0, 64)));
      } else if (key == "in_msg_nelems") {
        comm.in = std::max<std::int64_t>(kNone, trace_integer(value).value_or(kNone));
      } else if (key == "out_msg_nelems") {
        comm.out = std::max<std::int64_t>(kNone, trace_integer(value).value_or(kNone));
      }
    }
  }

  // Finds the world group and the trace's rank: a member's group rank in the world is its rank. A
  // group that is known by a pointer alone is taken for the world if it is the only one and the
  // group rank is the rank in the file's name. Otherwise such a group becomes one of this rank
  // alone, which is compared with no other rank's.
  void name_groups() {
    const bool only = pointers_.size() == 1 && events_.groups.size() == 1;
    bool is_world = only;
    for (const auto& [group, own] : own_rank_) {
      const KinetoGroup& known = events_.groups[tables_.str(group)];
      if (own.size() != 1 || (known.desc != "default_pg" && !only)) continue;
      if (only && file_.rank && file_.rank->value != *own.begin()) {
        is_world = false;
        continue;
      }
      events_.rank = *own.begin();
      if (known.size != kNone && events_.rank < known.size) events_.world_size = known.size;
    }
    if (pointers_.empty()) return;
    if (is_world) {
      events_.groups.begin()->second.desc = "default_pg";
      return;
    }
    keep_pointers_apart();
  }

  // Pointers of two ranks may be equal by chance: their groups get the rank's name.
  void keep_pointers_apart() {
    events_.inconclusive =
        "execution traces before schema 1.0.3 know groups by a pointer: which ranks' calls belong "
        "together is unknown where a rank has several groups";
    const std::string rank = file_.rank ? std::to_string(file_.rank->value) : file_.name;
    for (const std::string& pointer : pointers_) {
      auto node = events_.groups.extract(pointer);
      node.key() = fmt::format("{} of rank {}", pointer, rank);
      const StringId from = tables_.strings.intern(pointer);
      const StringId to = tables_.strings.intern(node.key());
      for (KinetoComm& comm : events_.calls) {
        if (comm.group == from) comm.group = to;
      }
      events_.groups.insert(std::move(node));
    }
  }

  // Turns peers from group ranks into global ranks; unknown where the members are unknown.
  void find_peers() {
    for (KinetoComm& comm : events_.calls) {
      if (comm.peer == kNone) continue;
      const KinetoGroup& group = events_.groups[tables_.str(comm.group)];
      const auto index = static_cast<std::size_t>(comm.peer);
      const bool known = group.ranks && index < group.ranks->size();
      if (known) {
        comm.peer = (*group.ranks)[index].value;
      } else if (group.desc != "default_pg") {
        comm.peer = kNone;
      }
    }
  }

  const TraceFile& file_;
  std::string_view bytes_;
  Tables& tables_;
  KinetoEvents events_;
  dom::parser parser_;
  std::set<std::string> pointers_;
  std::map<StringId, std::set<std::int32_t>> own_rank_;
};

bool is_execution_trace(std::string_view bytes) {
  JsonMembers top(bytes.substr(0, kLookedAt));
  bool schema = false;
  while (const auto member = top.next()) {
    schema |= member->key == "schema";
    // Kineto's files have schemaVersion, and traceEvents where these have nodes.
    if (member->key == "nodes") return schema;
    if (member->key == "traceEvents") return false;
  }
  return false;
}

Result<std::vector<RankTrace>> read_execution_trace(const TraceFile& file, Tables& tables) {
  if (!is_execution_trace(file.bytes)) {
    return Error{"not an execution trace of PyTorch",
                 {file.name},
                 "it begins with {\"schema\": …, and has \"nodes\""};
  }
  return assemble_kineto(TraceScanner(file, tables).scan(), file, tables);
}

}  // namespace

Format execution_trace_format() {
  return {.name = "execution-trace",
          .summary = "PyTorch's execution traces (ExecutionTraceObserver's JSON)",
          .recognises = is_execution_trace,
          .read = read_execution_trace,
          .link = link_kineto,
          .unknown = kUnknownInExecutionTrace};
}

}  // namespace lockstep::trace
