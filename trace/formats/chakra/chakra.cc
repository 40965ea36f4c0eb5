// Chakra execution traces (MLCommons): `name.<rank>.et`, one file per rank, as chakra_converter
// writes them from PyTorch's traces, workload generators write them, and ASTRA-sim reads them.
//
// The file is a sequence of protobuf messages, each preceded by its length as a varint:
// GlobalMetadata, then a Node per operation (et_def.proto, schema 0.0.4: id 1, name 2, type 3,
// data_deps 5, inputs 8, attr 10). COMM_COLL_NODE, COMM_SEND_NODE and COMM_RECV_NODE are taken,
// with the attributes comm_type, comm_size (bytes), comm_src, comm_dst, comm_tag, pg_name,
// involved_dim.
//
// Protobuf's CodedInputStream reads the wire format by these field numbers; no code is generated.
// So no copy of the schema is shipped that would have to follow its versions, attributes of any
// integer type are taken alike, and the tensors of a million compute nodes are skipped, not parsed.
//
// A trace is a graph, not a program. Calls are put in the order in which Chakra's own feeder hands
// nodes out (smallest id among those whose data_deps are done; it does not follow ctrl_deps, which
// have cycles in converted traces), and none waits: what a dependency on communication forbids is
// not modelled. With TraceFile::work it is: COMP_NODEs become work of the host (is_cpu_op) or of a
// stream, every dependency that these orders do not keep anyway becomes a wait, and a call has its
// node's duration (RankTrace::device_times).
//
// Memory: at most kChakraMemoryFactor times the file's size: of nodes of three bytes, which say
// nothing but that they communicate. Names and attributes make it much less.

#include <algorithm>
#include <array>
#include <optional>
#include <queue>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"
#include "trace/formats/chakra/nodes.h"
#include "trace/formats/format.h"
#include "trace/formats/torch_names.h"
#include "trace/trace_builder.h"

namespace lockstep::trace {

namespace {

constexpr std::array<std::string_view, 5> kUnknownInChakra = {
    "waits: a Chakra trace is a graph, and what its dependencies on communication forbid is not "
    "modelled",
    "order of calls that do not depend on each other: taken as Chakra's feeder hands them out, by "
    "id",
    "reduce operations, roots, splits and output sizes: not recorded in Chakra traces",
    "members of groups: taken from the ranks that use them; of a collective over some dimensions "
    "of the network (involved_dim) they are not known, and it is not compared",
    "completion of calls, and when they began: not recorded in Chakra traces",
};

constexpr std::array<Op, 10> kCollectives = {
    Op::all_reduce, Op::reduce,         Op::all_gather,
    Op::gather,     Op::scatter,        Op::broadcast,
    Op::all_to_all, Op::reduce_scatter, Op::reduce_scatter_tensor,
    Op::barrier};

// Bytes of an element, by the event model's names.
std::int64_t bytes_of(std::string_view dtype) {
  if (dtype.ends_with("64")) return 8;
  if (dtype == "complex128") return 16;
  if (dtype.ends_with("32")) return 4;
  if (dtype.ends_with("16")) return 2;
  const bool one = dtype == "int8" || dtype == "uint8" || dtype == "bool";
  return one ? 1 : 0;
}

// "['Tensor(float)', 'Tensor(float)']" is "float32" where all tensors are of one known type; else
// empty.
std::string only_dtype(std::string_view types) {
  constexpr std::string_view kTensor = "Tensor(";
  std::string out;
  for (std::size_t at = types.find(kTensor); at != std::string_view::npos;
       at = types.find(kTensor, at + 1)) {
    const std::string_view rest = types.substr(at + kTensor.size());
    const std::string dtype = dtype_from_torch(rest.substr(0, rest.find(')')));
    if (!out.empty() && dtype != out) return {};
    out = dtype;
  }
  return bytes_of(out) > 0 ? out : std::string();
}

struct Comm {
  Call call;
  bool message = false;
  bool on_host = false;
  std::int64_t stream = kNone;
};

// Work that is not communication.
struct ChakraWork {
  StringId name;
  std::int64_t stream = kNone;
  Nanos nanos = 0;
  bool on_host = false;
};

class ChakraReader {
 public:
  ChakraReader(const TraceFile& file, Tables& tables) : file_(file), tables_(tables) {}

  Result<std::vector<RankTrace>> read() {
    trace_.source = file_.name;
    bool whole = false;
    if (looks_like_chakra_json(file_.bytes)) {
      ChakraJsonNodes nodes(file_.bytes, file_.work);
      read_nodes(nodes);
      whole = nodes.whole();
    } else {
      ChakraMessages messages(file_.bytes);
      const std::optional<std::string_view> metadata = messages.next();
      if (!metadata || !is_chakra_metadata(*metadata, &groups_)) {
        return Error{"not a Chakra execution trace: no metadata first",
                     {file_.name},
                     "docs/formats.md says how to write one"};
      }
      read_nodes(messages);
      whole = messages.whole();
    }
    if (Status status = identify(); !status) return status.error();
    // A graph that is whole is a program that ends.
    trace_.end = whole ? End::clean : End::cut;
    trace_.open_ended = !whole;
    if (!whole) {
      trace_.add_damage("the file ends in the middle of a node; what came before was read");
      trace_.damaged_at_end = true;
    }
    declare_groups();
    add_calls();
    std::vector<RankTrace> out;
    out.push_back(std::move(trace_));
    return out;
  }

 private:
  struct Node {
    std::uint64_t id = 0;
    std::uint32_t first_dep = 0;   // into deps_
    std::uint32_t item = kNone32;  // into comms_; with kIsWork into work_
  };
  static constexpr std::uint32_t kNone32 = UINT32_MAX, kIsWork = 1U << 31U;

  void read_nodes(ChakraMessages& messages) {
    ChakraNode node;
    while (const auto message = messages.next()) {
      if (!parse_chakra_node(*message, node, file_.work)) {
        trace_.add_damage(fmt::format("node {} is damaged", nodes_.size()));
        continue;
      }
      if (!add(node)) return;
    }
  }

  void read_nodes(ChakraJsonNodes& nodes) {
    ChakraNode node;
    for (auto next = nodes.next(node); next != ChakraJsonNodes::Next::end;
         next = nodes.next(node)) {
      if (next == ChakraJsonNodes::Next::damaged) {
        trace_.add_damage(fmt::format("node {} is damaged", nodes_.size()));
      } else if (!add(node)) {
        return;
      }
    }
  }

  bool add(const ChakraNode& node) {
    if (deps_.size() + node.deps.size() > UINT32_MAX - 1) {
      trace_.add_damage("more dependencies than can be read");
      return false;
    }
    Node own{node.id, static_cast<std::uint32_t>(deps_.size()), kNone32};
    deps_.insert(deps_.end(), node.deps.begin(), node.deps.end());
    if (node.type == ChakraType::compute) {
      if (file_.work) take_work(node, own);
    } else if (node.type != ChakraType::other) {
      take(node, own);
    }
    nodes_.push_back(own);
    return true;
  }

  void take_work(const ChakraNode& node, Node& own) {
    if (work_.size() >= kIsWork - 1) return;
    own.item = static_cast<std::uint32_t>(work_.size()) | kIsWork;
    work_.push_back({tables_.strings.intern(node.name), node.stream.value_or(kNone), node.nanos,
                     node.on_host.value_or(false)});
  }

  void take(const ChakraNode& node, Node& own) {
    Comm comm;
    comm.message = node.type != ChakraType::collective;
    comm.on_host = node.on_host.value_or(false);
    comm.stream = node.stream.value_or(kNone);
    // The host's side of a kernel, which is a node of its own.
    if (!comm.message && comm.on_host && !node.comm_type) return;
    std::optional<Op> op;
    if (comm.message) {
      op = node.type == ChakraType::send ? Op::send : Op::recv;
      const auto peer = node.type == ChakraType::send ? node.dst : node.src;
      const auto self = node.type == ChakraType::send ? node.src : node.dst;
      if (peer && is_possible_rank(*peer, kMaxWorldSize)) {
        comm.call.peer = Rank(static_cast<std::int32_t>(*peer));
      }
      if (self && is_possible_rank(*self, kMaxWorldSize)) note_self(*self);
      if (node.tag && *node.tag >= 0 && *node.tag <= INT32_MAX) {
        comm.call.ptag = static_cast<std::int32_t>(*node.tag);
      }
    } else if (node.comm_type && *node.comm_type >= 0 &&
               *node.comm_type < static_cast<std::int64_t>(kCollectives.size())) {
      op = kCollectives[static_cast<std::size_t>(*node.comm_type)];
    }
    comm.call.signature = signature(node, op);
    comm.call.group = group(node);
    comm.call.tag = tables_.strings.intern(node.name);
    comm.call.flags = kAsync;
    own.item = static_cast<std::uint32_t>(comms_.size());
    comms_.push_back(comm);
    if (file_.work) comm_nanos_.push_back(node.nanos);
  }

  void note_self(std::int64_t rank) {
    if (self_ && *self_ != rank) self_contradicted_ = true;
    self_ = rank;
  }

  SignatureId signature(const ChakraNode& node, std::optional<Op> op) {
    Signature s;
    const std::string own =
        node.comm_type ? fmt::format("collective {}", *node.comm_type) : std::string("collective");
    set_op(s, op, own, tables_);
    if (!node.op.empty()) set_op(s, op_from_name(node.op), node.op, tables_);
    if (!node.redop.empty()) s.redop = tables_.strings.intern(node.redop);
    if (node.root && is_possible_rank(*node.root, kMaxWorldSize))
      s.root = static_cast<std::int32_t>(*node.root);
    if (s.op != Op::barrier && node.comm_size && *node.comm_size >= 0) {
      const std::string dtype = only_dtype(node.input_types);
      const std::int64_t element = bytes_of(dtype);
      const bool typed = element > 0 && *node.comm_size % element == 0;
      // Without a type the size is given in bytes.
      s.in = flat_tensor(typed ? *node.comm_size / element : *node.comm_size, tables_);
      if (node.out_size && *node.out_size >= 0)
        s.out = flat_tensor(typed ? *node.out_size / element : *node.out_size, tables_);
      s.dtypes = tables_.make_names({typed ? dtype : std::string("uint8")});
    }
    return tables_.make_signature(s);
  }

  GroupId group(const ChakraNode& node) {
    if (!node.group.empty()) return tables_.groups.intern(node.group);
    const bool partly =
        std::find(node.involved.begin(), node.involved.end(), false) != node.involved.end();
    if (!partly) return tables_.groups.intern("world");
    // The trace does not say which ranks share these dimensions: a group of its own.
    std::string name = "dimensions ";
    for (const bool flag : node.involved) name += flag ? '1' : '0';
    partly_.push_back(static_cast<std::uint32_t>(comms_.size()));
    return tables_.groups.intern(name.substr(0, 64));
  }

  Status identify() {
    std::optional<std::int64_t> rank;
    if (file_.rank) rank = file_.rank->value;
    if (!rank && self_ && !self_contradicted_) rank = self_;
    if (!rank) {
      return Error{"nothing says whose trace this is",
                   {file_.name},
                   "a Chakra trace has its rank in its name: name.3.et"};
    }
    trace_.rank = Rank(static_cast<std::int32_t>(*rank));
    trace_.world_size = trace_.rank.value + 1;
    for (const std::uint32_t c : partly_) {
      const std::string& name = tables_.str(comms_[c].call.group);
      comms_[c].call.group =
          tables_.groups.intern(fmt::format("{} of rank {}", name, trace_.rank.value));
    }
    return Status::ok();
  }

  void declare_groups() {
    TraceBuilder builder(trace_);
    for (const ChakraGroup& group : groups_) {
      const auto ranks = ranks_in(group.ranks);
      for (const Rank rank : ranks.value_or(std::vector<Rank>{}))
        trace_.world_size = std::max(trace_.world_size, rank.value + 1);
      const auto refused = !ranks
                               ? TraceBuilder::Problem("ranks that cannot be")
                               : builder.add_group(tables_.groups.intern(group.name), *ranks, {});
      if (!refused.empty())
        trace_.add_damage(fmt::format("group {}: {}", printable(group.name), refused));
    }
  }

  // Kernels, where there are any; else the calls of the host.
  void add_calls() {
    const bool host_too =
        std::all_of(comms_.begin(), comms_.end(), [](const Comm& c) { return c.on_host; });
    trace_.calls.reserve(comms_.size());
    trace_.events.reserve(comms_.size());
    if (file_.work) trace_.device_times.reserve(comms_.size());
    TraceBuilder builder(trace_);
    std::int64_t id = 0;
    const std::vector<std::uint32_t> ordered = order();
    if (file_.work) placed_.resize(nodes_.size());
    for (const std::uint32_t n : ordered) {
      const std::uint32_t item = nodes_[n].item;
      if (item == kNone32) continue;
      if ((item & kIsWork) != 0) {
        add_work(n, work_[item & ~kIsWork], builder, id);
        continue;
      }
      Comm& comm = comms_[item];
      if (comm.on_host && !host_too) continue;
      comm.call.id = id;
      if (file_.work) {
        comm.call.stream = stream_of(comm);
        follow(n, comm.call.stream, builder);
      }
      const auto refused =
          builder.add_issue(comm.call, comm.message, kNoTime, TraceBuilder::Numbering::count);
      if (refused.empty()) {
        if (file_.work) {
          placed_[n] = {id, comm.call.stream, Placed::Kind::call};
          trace_.device_times.push_back(comm_nanos_[item]);
        }
        ++id;
      } else {
        trace_.add_damage(std::string(refused));
      }
    }
  }

  // A node that is in the trace: what others can wait for.
  struct Placed {
    enum class Kind : std::uint8_t { none, host, work, call };
    std::int64_t id = kNone;
    StringId stream;
    Kind kind = Kind::none;
  };

  // The host does its nodes one after the other; a stream does its own likewise. The rest of what a
  // node depends on is waited for.
  void add_work(std::uint32_t n, const ChakraWork& work, TraceBuilder& builder, std::int64_t& id) {
    if (work.on_host) {
      follow(n, {}, builder);
      if (work.nanos > 0) add_span({work.name, {}, work.nanos}, builder);
      placed_[n].kind = Placed::Kind::host;
      return;
    }
    const StringId stream = tables_.strings.intern(
        work.stream == kNone ? std::string("compute") : std::to_string(work.stream));
    follow(n, stream, builder);
    add_span({work.name, stream, work.nanos, id}, builder);
    placed_[n] = {id, stream, Placed::Kind::work};
    ++id;
  }

  // `stream`, or the host where it is 0, waits for what node `n` depends on.
  void follow(std::uint32_t n, StringId stream, TraceBuilder& builder) {
    const std::size_t end = n + 1 < nodes_.size() ? nodes_[n + 1].first_dep : deps_.size();
    for (std::size_t d = nodes_[n].first_dep; d < end; ++d) {
      const auto found = by_id_.find(deps_[d]);
      if (found == by_id_.end()) continue;
      const Placed& on = placed_[found->second];
      if (on.id == kNone || (stream.value != 0 && on.stream == stream)) continue;
      if (stream.value == 0 && on.kind == Placed::Kind::call)
        builder.add_call_event(EventKind::wait, on.id, kNoTime);
      else
        add_span({tables_.strings.intern("wait"), stream, 0, kNone, on.id}, builder);
    }
  }

  void add_span(const SpanMark& span, TraceBuilder& builder) {
    builder.add_mark(EventKind::span, trace_.spans, span, kNoTime);
  }

  // Calls that name no stream overlap work; those of a group run one after the other.
  StringId stream_of(const Comm& comm) {
    if (comm.stream != kNone) return tables_.strings.intern(std::to_string(comm.stream));
    const std::string& group = tables_.str(comm.call.group);
    if (!comm.message) return tables_.strings.intern(fmt::format("calls of {}", group));
    const bool sends = tables_.op(comm.call) == Op::send;
    return tables_.strings.intern(
        fmt::format("{} {} of {}", sends ? "to" : "from", comm.call.peer.value, group));
  }

  // The nodes as Chakra's feeder hands them out: of those whose dependencies are done, the smallest
  // id first. O(n log n + dependencies). Dependencies on nodes that are not there are done.
  std::vector<std::uint32_t> order() {
    const std::size_t n = nodes_.size();
    std::unordered_map<std::uint64_t, std::uint32_t>& by_id = by_id_;
    for (std::uint32_t i = 0; i < n; ++i) {
      if (!by_id.emplace(nodes_[i].id, i).second) {
        trace_.add_damage(fmt::format("two nodes with the id {}", nodes_[i].id));
      }
    }
    // Who depends on node i: dependents[dependents_begin[i]] up to dependents_begin[i + 1]. Two
    // passes over the edges, one to count and one to fill, so that no node has a list of its own.
    std::vector<std::uint32_t> open(n), dependents_begin(n + 1);  // open: dependencies not done yet
    const auto each_edge = [&](const auto& use) {
      for (std::uint32_t i = 0; i < n; ++i) {
        const std::size_t end = i + 1 < n ? nodes_[i + 1].first_dep : deps_.size();
        for (std::size_t d = nodes_[i].first_dep; d < end; ++d) {
          const auto found = by_id.find(deps_[d]);
          if (found != by_id.end() && found->second != i) use(found->second, i);
        }
      }
    };
    each_edge([&](std::uint32_t from, std::uint32_t to) {
      ++open[to];
      ++dependents_begin[from + 1];
    });
    for (std::size_t i = 0; i < n; ++i) dependents_begin[i + 1] += dependents_begin[i];
    std::vector<std::uint32_t> dependents(dependents_begin[n]);
    std::vector<std::uint32_t> fill(dependents_begin.begin(), dependents_begin.end());
    each_edge([&](std::uint32_t from, std::uint32_t to) { dependents[fill[from]++] = to; });
    const auto later = [&](std::uint32_t a, std::uint32_t b) {
      return std::pair(nodes_[a].id, a) > std::pair(nodes_[b].id, b);
    };
    std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, decltype(later)> ready(later);
    for (std::uint32_t i = 0; i < n; ++i) {
      if (open[i] == 0) ready.push(i);
    }
    std::vector<std::uint32_t> out;
    out.reserve(n);
    while (!ready.empty()) {
      const std::uint32_t i = ready.top();
      ready.pop();
      out.push_back(i);
      for (std::uint32_t d = dependents_begin[i]; d < dependents_begin[i + 1]; ++d) {
        if (--open[dependents[d]] == 0) ready.push(dependents[d]);
      }
    }
    if (out.size() < n) trace_.add_damage("nodes depend on each other in a cycle");
    return out;
  }

  const TraceFile& file_;
  Tables& tables_;
  RankTrace trace_;
  std::vector<Node> nodes_;
  std::vector<std::uint64_t> deps_;
  std::vector<Comm> comms_;
  std::vector<Nanos> comm_nanos_;  // of each of them; empty without TraceFile::work
  std::vector<ChakraWork> work_;
  std::vector<ChakraGroup> groups_;
  std::vector<Placed> placed_;  // by node, with TraceFile::work
  std::unordered_map<std::uint64_t, std::uint32_t> by_id_;
  std::vector<std::uint32_t> partly_;  // of comms_: those over some dimensions of the network
  std::optional<std::int64_t> self_;
  bool self_contradicted_ = false;
};

Result<std::vector<RankTrace>> read_chakra(const TraceFile& file, Tables& tables) {
  return ChakraReader(file, tables).read();
}

// Every rank has its file: their number is that of the ranks, or what a peer shows.
void link_chakra(std::span<RankTrace> traces, Tables& /*tables*/) {
  std::int32_t world = 0;
  for (const RankTrace& trace : traces) {
    world = std::max(world, trace.world_size);
    for (const Call& call : trace.calls) world = std::max(world, call.peer.value + 1);
  }
  for (RankTrace& trace : traces) trace.world_size = world;
}

// Metadata, and then a node, where the file goes on.
bool is_chakra(std::string_view bytes) {
  constexpr std::size_t kSample = std::size_t{1} << 20U;
  if (looks_like_chakra_json(bytes)) return true;
  ChakraMessages messages(bytes.substr(0, kSample));
  const auto metadata = messages.next();
  if (!metadata || !is_chakra_metadata(*metadata)) return false;
  const bool ends = messages.position() >= bytes.size();
  const auto first = messages.next();
  if (!first) return !metadata->empty() && (ends || bytes.size() > kSample || !messages.whole());
  ChakraNode node;
  return !first->empty() && parse_chakra_node(*first, node, false) && !node.name.empty();
}

}  // namespace

Format chakra_format() {
  return {.name = "chakra",
          .summary = "Chakra execution traces (name.<rank>.et, or as JSON)",
          .recognises = is_chakra,
          .read = read_chakra,
          .link = link_chakra,
          .unknown = kUnknownInChakra};
}

}  // namespace lockstep::trace
