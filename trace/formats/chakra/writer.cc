#include "trace/formats/chakra/writer.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>

#include "trace/device_times.h"
#include "trace/formats/chakra/nodes.h"

namespace lockstep::trace {

namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedOutputStream;
using google::protobuf::io::StringOutputStream;

// One message of et_def.proto, field by field.
class Message {
 public:
  void number(int field, std::uint64_t value) {
    with([&](CodedOutputStream& out) {
      out.WriteTag(WireFormatLite::MakeTag(field, WireFormatLite::WIRETYPE_VARINT));
      out.WriteVarint64(value);
    });
  }
  void text(int field, std::string_view value) {
    with([&](CodedOutputStream& out) {
      out.WriteTag(WireFormatLite::MakeTag(field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED));
      out.WriteVarint64(value.size());
      out.WriteRaw(value.data(), static_cast<int>(value.size()));
    });
  }
  // A repeated integer, packed.
  void numbers(int field, const std::vector<std::uint64_t>& values) {
    if (values.empty()) return;
    Message packed;
    packed.with([&](CodedOutputStream& out) {
      for (const std::uint64_t value : values) out.WriteVarint64(value);
    });
    text(field, packed.bytes_);
  }
  const std::string& bytes() const { return bytes_; }

  // The file's form of a message: its length, then itself.
  void append_to(std::string& file) const {
    Message length;
    length.with([&](CodedOutputStream& out) { out.WriteVarint64(bytes_.size()); });
    file += length.bytes_;
    file += bytes_;
  }

 private:
  template <class Write>
  void with(const Write& write) {
    StringOutputStream stream(&bytes_);  // appends
    CodedOutputStream out(&stream);
    write(out);
  }

  std::string bytes_;
};

// AttributeProto's fields.
enum : int { kAttrName = 1, kAttrInt32 = 7, kAttrInt64 = 9, kAttrInt64List = 10 };
enum : int { kAttrBool = 27, kAttrString = 29 };

Message attribute(std::string_view name, int field, std::int64_t value) {
  Message out;
  out.text(kAttrName, name);
  out.number(field, static_cast<std::uint64_t>(value));
  return out;
}
Message attribute(std::string_view name, std::string_view value) {
  Message out;
  out.text(kAttrName, name);
  out.text(kAttrString, value);
  return out;
}

enum class NodeType : std::uint8_t { compute = 4, send = 5, recv = 6, collective = 7 };

// As the schema numbers them; nothing: Chakra has no such collective.
std::optional<std::int64_t> collective_type(Op op) {
  switch (op) {
    case Op::all_reduce:
      return 0;
    case Op::reduce:
      return 1;
    case Op::all_gather:
    case Op::all_gather_into_tensor:
      return 2;
    case Op::gather:
      return 3;
    case Op::scatter:
      return 4;
    case Op::broadcast:
      return 5;
    case Op::all_to_all:
    case Op::all_to_all_single:
      return 6;
    case Op::reduce_scatter:
      return 7;
    case Op::reduce_scatter_tensor:
      return 8;
    case Op::barrier:
      return 9;
    default:
      return std::nullopt;
  }
}

// By call of the rank: how long its device was in it; 0 where that is not known.
std::vector<Nanos> known_device_times(const RankTrace& trace) {
  std::vector<Nanos> out = device_times(trace);
  std::replace(out.begin(), out.end(), kNoTime, Nanos{0});
  std::replace(out.begin(), out.end(), Nanos{INT64_MAX}, Nanos{0});
  return out;
}

class ChakraWriter {
 public:
  ChakraWriter(const RankTrace& trace, const Tables& tables) : trace_(trace), tables_(tables) {}

  Result<std::string> write() {
    write_metadata();
    node_of_call_.assign(trace_.calls.size(), kNoNode);
    device_times_ = known_device_times(trace_);
    for (const Event& event : trace_.events) {
      Status written = Status::ok();
      if (event.kind == EventKind::issue)
        written = write_call(event.index);
      else if (event.kind == EventKind::wait)
        write_host_wait(node_of_call_[event.index]);
      else if (event.kind == EventKind::span)
        written = write_span(trace_.spans[event.index]);
      if (!written) return written.error();
    }
    return std::move(file_);
  }

 private:
  static constexpr std::uint64_t kNoNode = UINT64_MAX;

  // What a stream's next node depends on.
  struct Stream {
    std::uint64_t last = kNoNode;
    std::vector<std::uint64_t> awaited;
  };

  Error refusal(const std::string& what, std::string fix) const {
    return {fmt::format("rank {} {}", trace_.rank.value, what), {trace_.source}, std::move(fix)};
  }

  void write_metadata() {
    enum : int { kVersion = 1, kAttribute = 2 };
    Message metadata;
    metadata.text(kVersion, "0.0.4");
    for (const RankTrace::Membership& group : trace_.groups) {
      std::vector<std::uint64_t> ranks;
      for (const Rank rank : group.ranks) ranks.push_back(static_cast<std::uint64_t>(rank.value));
      Message list;
      list.numbers(1, ranks);
      Message declared;
      declared.text(kAttrName, fmt::format("{}{}", kChakraGroup, tables_.str(group.group)));
      declared.text(kAttrInt64List, list.bytes());
      metadata.text(kAttribute, declared.bytes());
    }
    metadata.append_to(file_);
  }

  // Writes a node and returns its id. `deps` may hold kNoNode, and ids twice.
  std::uint64_t write_node(std::string_view name, NodeType type, std::vector<std::uint64_t> deps,
                           Nanos nanos, std::string_view input_types,
                           const std::vector<Message>& attributes) {
    enum : int { kId = 1, kName = 2, kType = 3, kDataDeps = 5, kMicros = 7, kInputs = 8 };
    enum : int { kAttr = 10, kTypes = 3 };
    std::sort(deps.begin(), deps.end());
    deps.erase(std::unique(deps.begin(), deps.end()), deps.end());
    if (!deps.empty() && deps.back() == kNoNode) deps.pop_back();
    Message node;
    node.number(kId, next_);
    node.text(kName, name);
    node.number(kType, static_cast<std::uint64_t>(type));
    node.numbers(kDataDeps, deps);
    if (nanos > 0)
      node.number(kMicros, static_cast<std::uint64_t>(nanos / 1000 + nanos % 1000 / 500));
    if (!input_types.empty()) {
      Message inputs;
      inputs.text(kTypes, input_types);
      node.text(kInputs, inputs.bytes());
    }
    for (const Message& one : attributes) node.text(kAttr, one.bytes());
    if (nanos > 0) node.text(kAttr, attribute(kChakraNanos, kAttrInt64, nanos).bytes());
    node.append_to(file_);
    return next_++;
  }

  // The host's nodes follow each other.
  void write_host_node(std::string_view name, Nanos nanos) {
    const std::uint64_t id = write_node(name, NodeType::compute, host_, nanos, {},
                                        {attribute("is_cpu_op", kAttrBool, 1)});
    host_ = {id};
  }
  void write_host_wait(std::uint64_t awaited) {
    host_.push_back(awaited);
    write_host_node("wait", 0);
  }

  // A node of a stream: after what the stream did and waited for, and where the host is.
  std::uint64_t write_in_stream(Stream& stream, std::string_view name, NodeType type, Nanos nanos,
                                std::string_view input_types,
                                const std::vector<Message>& attributes) {
    std::vector<std::uint64_t> deps = std::exchange(stream.awaited, {});
    deps.insert(deps.end(), host_.begin(), host_.end());
    deps.push_back(stream.last);
    stream.last = write_node(name, type, std::move(deps), nanos, input_types, attributes);
    return stream.last;
  }

  // Streams of the trace get numbers; calls that name none have one per group, or peer.
  Stream& stream(const std::string& name) { return streams_[name]; }
  std::int64_t number_of(StringId name) {
    return numbers_.try_emplace(name, static_cast<std::int64_t>(numbers_.size())).first->second;
  }

  Status write_span(const SpanMark& span) {
    const bool on_host = span.stream.value == 0;
    if (span.after != kNone) {
      const std::uint64_t awaited = node_with_id(span.after);
      if (awaited == kNoNode)
        return refusal(
            fmt::format("waits for {}, which no earlier call or span has as its id", span.after),
            "a span's \"after\" names the id of an earlier line");
      if (on_host)
        write_host_wait(awaited);
      else
        stream(own(span.stream)).awaited.push_back(awaited);
      return Status::ok();
    }
    const Nanos nanos = std::max<Nanos>(0, span.duration);
    if (on_host) {
      write_host_node(tables_.str(span.name), nanos);
    } else {
      const std::uint64_t node = write_in_stream(
          stream(own(span.stream)), tables_.str(span.name), NodeType::compute, nanos, {},
          {attribute("is_cpu_op", kAttrBool, 0),
           attribute("stream", kAttrInt64, number_of(span.stream))});
      if (span.id != kNone) node_of_span_[span.id] = node;
    }
    return Status::ok();
  }

  std::string own(StringId stream) const { return fmt::format("s{}", tables_.str(stream)); }

  std::uint64_t node_with_id(std::int64_t id) const {
    if (const auto span = node_of_span_.find(id); span != node_of_span_.end()) return span->second;
    const auto call = std::lower_bound(trace_.calls.begin(), trace_.calls.end(), id,
                                       [](const Call& c, std::int64_t i) { return c.id < i; });
    if (call == trace_.calls.end() || call->id != id) return kNoNode;
    return node_of_call_[static_cast<std::size_t>(call - trace_.calls.begin())];
  }

  Status write_call(std::uint32_t index) {
    const Call& call = trace_.calls[index];
    const Signature& signature = tables_.signatures[call.signature];
    const std::string name = describe(tables_, call);
    const bool message = is_point_to_point(signature.op);
    std::vector<Message> attributes = {attribute("is_cpu_op", kAttrBool, 0)};
    NodeType type = NodeType::collective;
    if (message) {
      if (call.peer.value < 0)
        return refusal("receives from any source, which a Chakra trace cannot say",
                       "name the peer");
      const bool sends = signature.op == Op::send;
      type = sends ? NodeType::send : NodeType::recv;
      const std::int32_t from = sends ? trace_.rank.value : call.peer.value;
      const std::int32_t to = sends ? call.peer.value : trace_.rank.value;
      attributes.push_back(attribute("comm_src", kAttrInt32, from));
      attributes.push_back(attribute("comm_dst", kAttrInt32, to));
      attributes.push_back(
          attribute("comm_tag", kAttrInt32, call.ptag == kNoPeerTag ? 0 : call.ptag));
    } else {
      const auto number = collective_type(signature.op);
      if (!number)
        return refusal(fmt::format("calls {}, which Chakra does not have", name),
                       "a Chakra trace holds c10d's collectives, sends and receives");
      attributes.push_back(attribute("comm_type", kAttrInt64, *number));
      attributes.push_back(attribute(kChakraOp, op_name(signature.op)));
    }
    const std::string types = add_sizes(signature, attributes);
    if (signature.redop.value != 0)
      attributes.push_back(attribute(kChakraRedop, tables_.str(signature.redop)));
    if (signature.root != kNone)
      attributes.push_back(attribute(kChakraRoot, kAttrInt64, signature.root));
    const std::string& group = tables_.str(call.group);
    if (group != "world") attributes.push_back(attribute("pg_name", group));
    std::string queue = fmt::format("g{}", group);
    if (message) queue = fmt::format("g{} {} {}", group, op_name(signature.op), call.peer.value);
    if (call.stream.value != 0) {
      attributes.push_back(attribute("stream", kAttrInt64, number_of(call.stream)));
      queue = own(call.stream);
    }
    node_of_call_[index] =
        write_in_stream(stream(queue), name, type, device_times_[index], types, attributes);
    // A call that blocks its host is one that the host waits for at once.
    if (!call.has(kAsync)) write_host_wait(node_of_call_[index]);
    return Status::ok();
  }

  // Adds the call's sizes in bytes; returns the types of its tensors as PyTorch's converter has
  // them.
  std::string add_sizes(const Signature& signature, std::vector<Message>& attributes) const {
    const std::vector<std::string> dtypes = tables_.names(signature.dtypes);
    if (signature.op == Op::barrier || dtypes.empty()) return {};
    const std::int64_t element = element_bytes(dtypes.front()).value_or(0);
    const std::int64_t in =
        signature.in_elements != kNone ? signature.in_elements : signature.count;
    // A rank that only receives, as of a broadcast, still says how much.
    const std::int64_t elements = in != kNone ? in : signature.out_elements;
    const auto bytes = [&](std::int64_t count) {
      return count > INT64_MAX / std::max<std::int64_t>(element, 1) ? INT64_MAX : count * element;
    };
    if (element == 0 || elements == kNone) return {};
    attributes.push_back(attribute("comm_size", kAttrInt64, bytes(elements)));
    if (signature.out_elements != kNone)
      attributes.push_back(attribute(kChakraOutSize, kAttrInt64, bytes(signature.out_elements)));
    return fmt::format("['Tensor({})']", dtypes.front());
  }

  const RankTrace& trace_;
  const Tables& tables_;
  std::string file_;
  std::uint64_t next_ = 0;           // id of the next node
  std::vector<std::uint64_t> host_;  // what the host's next node depends on
  std::map<std::string, Stream> streams_;
  std::map<StringId, std::int64_t> numbers_;                      // of the trace's streams
  std::vector<std::uint64_t> node_of_call_;                       // by index in RankTrace::calls
  std::vector<Nanos> device_times_;                               // … likewise
  std::unordered_map<std::int64_t, std::uint64_t> node_of_span_;  // by SpanMark::id
};

}  // namespace

Result<std::string> chakra_trace(const RankTrace& trace, const Tables& tables) {
  return ChakraWriter(trace, tables).write();
}

}  // namespace lockstep::trace
