// Chakra's nodes as JSON, in two forms: as Chakra's feeder reads them, and as `chakra_jsonizer`
// prints them.
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

#include "base/numbers.h"
#include "base/text.h"
#include "trace/formats/chakra/nodes.h"
#include "trace/formats/json_fields.h"
#include "trace/formats/json_scan.h"

namespace lockstep::trace {

namespace {

namespace dom = simdjson::dom;
constexpr std::size_t kLongestChakraNode = std::size_t{16} << 20U;
constexpr std::size_t kLongestAttribute = 256;

void read_deps(const dom::object& object, std::string_view key, ChakraNode& node) {
  dom::array deps;
  if (object.at_key(key).get(deps) != simdjson::SUCCESS) return;
  for (const dom::element element : deps) {
    if (const auto dep = json_integer(element); dep && *dep >= 0) {
      node.deps.push_back(static_cast<std::uint64_t>(*dep));
    }
  }
}

// As the schema numbers them: ALL_REDUCE, REDUCE, ALL_GATHER, GATHER, SCATTER, BROADCAST, ….
std::optional<std::int64_t> type_of_kernel(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, std::int64_t>, 6> kTypes = {
      {{"AllReduce", 0},
       {"AllGather", 2},
       {"ReduceScatter", 7},
       {"Broadcast", 5},
       {"Reduce", 1},
       {"AllToAll", 6}}};
  // NCCL's and RCCL's kernels; Moore Threads' and MetaX' are mcclKernel_AllReduce….
  if (!name.starts_with("nccl") && !name.starts_with("mccl")) return std::nullopt;
  for (const auto& [word, type] : kTypes) {
    if (name.find(word) != kNpos) return type;
  }
  return std::nullopt;
}

ChakraType type_in_json(std::int64_t number) {
  return number == 4   ? ChakraType::compute
         : number == 5 ? ChakraType::send
         : number == 6 ? ChakraType::recv
         : number == 7 ? ChakraType::collective
                       : ChakraType::other;
}

ChakraType type_in_json(std::string_view name) {
  return name == "COMP_NODE"        ? ChakraType::compute
         : name == "COMM_SEND_NODE" ? ChakraType::send
         : name == "COMM_RECV_NODE" ? ChakraType::recv
         : name == "COMM_COLL_NODE" ? ChakraType::collective
                                    : ChakraType::other;
}

// A member of the feeder's form, or an attribute of the jsonizer's.
void set(ChakraNode& node, std::string_view key, const dom::element& value) {
  if (std::optional<std::int64_t>* const number = number_of(node, key)) {
    *number = json_integer(value);
  } else if (std::string* const text = text_of(node, key)) {
    std::string_view given;
    if (value.get(given) == simdjson::SUCCESS) *text = given.substr(0, kLongestAttribute);
  } else if (key == "runtime" || key == "duration_micros") {
    node.nanos = nanos_of_micros(json_integer(value).value_or(0));
  } else if (key == kChakraNanos) {
    node.nanos = std::max<std::int64_t>(0, json_integer(value).value_or(0));
  } else if (key == "is_cpu_op") {
    bool flag = false;
    if (value.get(flag) == simdjson::SUCCESS) node.on_host = flag;
  }
}

void read_attributes(const dom::object& object, ChakraNode& node) {
  dom::array attributes;
  if (object.at_key("attr").get(attributes) != simdjson::SUCCESS) return;
  for (const dom::element element : attributes) {
    dom::object attribute;
    if (element.get(attribute) != simdjson::SUCCESS) continue;
    const std::string_view name = json_text(attribute, "name").value_or("");
    for (const auto& [key, value] : attribute) {
      if (key != "name" && key != "docString") set(node, name, value);
    }
  }
}

bool read_node(const dom::object& object, bool graph, bool work, ChakraNode& node) {
  node = {};
  // Protobuf's JSON leaves out what is 0.
  const auto id = graph ? json_integer(object, "Id") : json_integer(object, "id").value_or(0);
  if (!id || *id < 0) return false;
  node.id = static_cast<std::uint64_t>(*id);
  constexpr std::size_t kLongestName = 256;
  node.name = json_text(object, graph ? "Name" : "name").value_or("").substr(0, kLongestName);
  read_deps(object, graph ? "data_deps" : "dataDeps", node);
  if (graph) {
    node.type = type_in_json(json_integer(object, "NodeType").value_or(0));
    const bool wanted =
        node.type != ChakraType::other && (work || node.type != ChakraType::compute);
    if (!wanted) return true;
    for (const auto& [key, value] : object) set(node, key, value);
  } else {
    node.type = type_in_json(json_text(object, "type").value_or(""));
    node.nanos = nanos_of_micros(json_integer(object, "durationMicros").value_or(0));
    read_attributes(object, node);
  }
  if (node.type == ChakraType::collective && !node.comm_type) {
    node.comm_type = type_of_kernel(node.name);
  }
  return true;
}

}  // namespace

bool looks_like_chakra_json(std::string_view bytes) {
  constexpr std::size_t kLooked = std::size_t{64} << 10U;
  const std::string_view head = bytes.substr(0, kLooked);
  JsonMembers top(head);
  const auto first = top.next();
  if (!first) return false;
  if (first->key == "workload_graph") {
    return head.find("\"NodeType\"") != kNpos || head.find("\"Id\"") != kNpos;
  }
  return first->key == "version" && head.find("\"dataDeps\"") != kNpos &&
         head.find("_NODE\"") != kNpos;
}

ChakraJsonNodes::ChakraJsonNodes(std::string_view bytes, bool work) : bytes_(bytes), work_(work) {
  JsonMembers top(bytes);
  while (const auto member = top.next()) {
    if (member->key == "version") break;
    if (member->key != "workload_graph") continue;
    graph_ = true;
    at_ = member->begin;
    if (at_ < bytes_.size() && bytes_[at_] == '[') ++at_;
    return;
  }
  const std::size_t end = json_value_end(bytes_, json_skip_blanks(bytes_, 0));
  at_ = end == kNpos ? bytes_.size() : end;
}

ChakraJsonNodes::Next ChakraJsonNodes::next(ChakraNode& node) {
  at_ = json_skip_blanks(bytes_, at_);
  if (at_ < bytes_.size() && bytes_[at_] == ',') at_ = json_skip_blanks(bytes_, at_ + 1);
  if (at_ >= bytes_.size()) {
    whole_ = !graph_;
    return Next::end;
  }
  if (bytes_[at_] != '{') {
    whole_ = graph_ && bytes_[at_] == ']';
    return Next::end;
  }
  const std::size_t end = json_value_end(bytes_, at_, kLongestChakraNode);
  if (end == kNpos) return Next::end;
  const std::string_view text = bytes_.substr(at_, end - at_);
  at_ = end;
  dom::element element;
  dom::object object;
  const bool parsed = parser_.parse(text.data(), text.size()).get(element) == simdjson::SUCCESS &&
                      element.get(object) == simdjson::SUCCESS;
  return parsed && read_node(object, graph_, work_, node) ? Next::node : Next::damaged;
}

}  // namespace lockstep::trace
