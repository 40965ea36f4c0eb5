// The nodes of a Chakra execution trace that is written as JSON, in both of its forms. Internal to
// the reader of that format.
//
//   {"workload_graph": [{"Id": 435, "Name": "ncclKernel_Broadcast_…", "NodeType": 7,
//                        "data_deps": [432], "is_cpu_op": false, "comm_size": 4096}, …]}
//   {"version": "0.0.4"}{"id": "435", "name": …, "type": "COMM_COLL_NODE", "dataDeps": ["432"],
//                        "attr": [{"name": "comm_type", "int64Val": "5"}]}…
//
// The first is what Chakra's feeder reads (src/feeder/json_node.cpp), the second what
// chakra_jsonizer prints of a protobuf file. Where a collective's type is missing, its kernel's
// name gives it.
#pragma once

#include <simdjson.h>

#include <cstddef>
#include <string_view>

#include "trace/formats/chakra/messages.h"

namespace lockstep::trace {

bool looks_like_chakra_json(std::string_view bytes);

class ChakraJsonNodes {
 public:
  explicit ChakraJsonNodes(std::string_view bytes);

  enum class Next { node, damaged, end };
  // The next node into `node`. At the end whole() tells whether the file ends as it should.
  Next next(ChakraNode& node);
  bool whole() const { return whole_; }

 private:
  std::string_view bytes_;
  std::size_t at_ = 0;
  bool graph_ = false;  // the form with "workload_graph"
  bool whole_ = false;
  simdjson::dom::parser parser_;
};

}  // namespace lockstep::trace
