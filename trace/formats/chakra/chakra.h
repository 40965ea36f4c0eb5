// Chakra execution traces (MLCommons): `name.<rank>.et`, one file per rank, as chakra_converter
// writes them from PyTorch's traces, workload generators write them, and ASTRA-sim reads them.
//
// The file is a sequence of protobuf messages, each behind its length as a varint: GlobalMetadata,
// then a Node per operation (et_def.proto, schema 0.0.4: id 1, name 2, type 3, data_deps
// 5, inputs 8, attr 10). COMM_COLL_NODE, COMM_SEND_NODE and COMM_RECV_NODE are taken,
// with the attributes comm_type, comm_size (bytes), comm_src, comm_dst, comm_tag, pg_name,
// involved_dim.
//
// Protobuf's CodedInputStream reads the wire format by these field numbers; no code is generated.
// So no copy of the schema is shipped that would have to follow its versions, attributes of any
// integer type are taken alike, and the tensors of a million compute nodes are skipped, not parsed.
//
// A trace is a graph, not a program. Calls are put in the order in which Chakra's own feeder hands
// nodes out (smallest id among those whose data_deps are done; ctrl_deps, which it does not follow,
// hold circles in converted traces), and none waits: what a
// dependency on communication forbids is not modelled.
//
// Memory: at most kChakraMemoryFactor times the file's size: of nodes of three bytes, which say
// nothing but that they communicate. Names and attributes make it much less.
#pragma once

#include <cstddef>

#include "trace/formats/format.h"

namespace lockstep::trace {

inline constexpr std::size_t kChakraMemoryFactor = 96;

Format chakra_format();

}  // namespace lockstep::trace
