// The words of Flight Recorder's dumps: keys of entries, names of operations, places in code.
#pragma once

#include <cstdint>
#include <string_view>

#include "trace/ids.h"
#include "trace/signature.h"

namespace lockstep::trace {

// The keys of an entry that are read.
enum class DumpKey : std::uint8_t {
  unresolved,
  other,
  frames,
  pg_id,
  process_group,
  collective_seq_id,
  p2p_seq_id,
  profiling_name,
  time_created_ns,
  input_sizes,
  input_dtypes,
  output_sizes,
  output_dtypes,
  state,
  started,
  completed,
  retired,
  is_p2p,
};

DumpKey dump_key(std::string_view name);

// "nccl:send 0->3" and what it means.
struct DumpOperation {
  Op op = Op::other;
  std::string_view name;  // without the backend
  bool closes_batch = false;
  std::int32_t peer = kNone;  // group rank
};

// `name`: an entry's profiling_name. The result's name is a view into it.
DumpOperation parse_dump_operation(std::string_view name);

// Whether a frame belongs to PyTorch or Python and not to the user's program. `file`: its path.
bool is_library_frame(std::string_view file);

}  // namespace lockstep::trace
