// The nodes of a Chakra execution trace, one at a time: from protobuf messages (messages.cc) and
// from JSON (json.cc). Internal to the reader of that format.
#pragma once

#include <simdjson.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::trace {

enum class ChakraType : std::uint8_t { other, compute, send, recv, collective };

// Attributes that Chakra does not define, by which our own writer says what would be lost else.
// Other tools pass over them.
inline constexpr std::string_view kChakraOp = "op";                 // "reduce_scatter_tensor"
inline constexpr std::string_view kChakraRedop = "redop";           // "sum"
inline constexpr std::string_view kChakraRoot = "root";             // global rank
inline constexpr std::string_view kChakraOutSize = "out_size";      // bytes; besides comm_size
inline constexpr std::string_view kChakraNanos = "duration_nanos";  // besides duration_micros
// In the metadata: "group tp" with the global ranks of its members.
inline constexpr std::string_view kChakraGroup = "group ";

// What is used of a Node. Its lists are reused from node to node.
struct ChakraNode {
  std::uint64_t id = 0;
  ChakraType type = ChakraType::other;
  std::vector<std::uint64_t> deps;  // data_deps: the ones that Chakra's feeder waits for
  std::string name;
  std::string input_types;  // "['Tensor(float)']"
  std::optional<std::int64_t> comm_type, comm_size, src, dst, tag;
  std::string group;                   // pg_name
  std::vector<bool> involved;          // involved_dim
  std::optional<bool> on_host;         // is_cpu_op
  std::optional<std::int64_t> stream;  // of the device
  std::int64_t nanos = 0;              // how long it took; 0: not recorded
  std::string op, redop;               // as kChakraOp, …
  std::optional<std::int64_t> root, out_size;
};

// The member of the node for an attribute that is a number ("comm_size"), or a text ("redop"). Null
// for other attributes.
std::optional<std::int64_t>* number_of(ChakraNode& node, std::string_view attribute);
std::string* text_of(ChakraNode& node, std::string_view attribute);

// Converts a time that a file holds; one below zero, or that does not fit, counts as 0.
constexpr std::int64_t nanos_of_micros(std::int64_t micros) {
  return micros > 0 && micros < INT64_MAX / 1000 ? micros * 1000 : 0;
}

// Cuts a file into its protobuf messages.
class ChakraMessages {
 public:
  explicit ChakraMessages(std::string_view bytes) : bytes_(bytes) {}

  // The bytes of the next message; nothing at the end of the file, or where it is cut off or is no
  // message (see whole()).
  std::optional<std::string_view> next();
  bool whole() const { return whole_; }
  std::size_t position() const { return at_; }  // of what comes next

 private:
  std::string_view bytes_;
  std::size_t at_ = 0;
  bool whole_ = true;
};

// A group that our own writer declared.
struct ChakraGroup {
  std::string name;
  std::vector<std::int64_t> ranks;
};

// Both are false where the bytes are no such message. `groups`, where it is not null, gets the
// groups of the metadata; `work`: also read what is not communication.
bool is_chakra_metadata(std::string_view message, std::vector<ChakraGroup>* groups = nullptr);
bool parse_chakra_node(std::string_view message, ChakraNode& node, bool work);

// The nodes of a trace that is written as JSON, in both of its forms.
//
//   {"workload_graph": [{"Id": 435, "Name": "ncclKernel_Broadcast_…", "NodeType": 7,
//                        "data_deps": [432], "is_cpu_op": false, "comm_size": 4096}, …]}
//   {"version": "0.0.4"}{"id": "435", "name": …, "type": "COMM_COLL_NODE", "dataDeps": ["432"],
//                        "attr": [{"name": "comm_type", "int64Val": "5"}]}…
//
// The first is what Chakra's feeder reads (src/feeder/json_node.cpp), the second what
// chakra_jsonizer prints of a protobuf file. Where a collective's type is missing, its kernel's
// name gives it.

bool looks_like_chakra_json(std::string_view bytes);

class ChakraJsonNodes {
 public:
  // `work`: also read what is not communication.
  ChakraJsonNodes(std::string_view bytes, bool work);

  enum class Next { node, damaged, end };
  // The next node into `node`. At the end whole() says whether the file ends as it should.
  Next next(ChakraNode& node);
  bool whole() const { return whole_; }

 private:
  std::string_view bytes_;
  std::size_t at_ = 0;
  bool graph_ = false;  // the form with "workload_graph"
  bool whole_ = false;
  bool work_;
  simdjson::dom::parser parser_;
};

}  // namespace lockstep::trace
