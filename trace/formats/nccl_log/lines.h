// Parses single lines of NCCL's log. Internal to the reader of that format.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "trace/run.h"

namespace lockstep::trace {

// "host:pid:tid [dev] NCCL INFO message".
inline constexpr std::string_view kNcclInfo = " NCCL INFO ";
struct NcclLine {
  std::string_view host;
  std::int64_t pid = 0;
  std::string_view message;
};
std::optional<NcclLine> parse_nccl_line(std::string_view line);

// "AllReduce: opCount 1a …".
struct NcclLogCall {
  std::string_view name;
  std::uint64_t op_count = 0, comm = 0;
  std::int64_t count = 0, datatype = 0, op = 0, root = 0, nranks = kNone;
};
bool is_nccl_call(std::string_view message);
// Nothing where a field is missing or no number: the line was cut off, or two lines were mixed.
std::optional<NcclLogCall> parse_nccl_call(std::string_view message);

// "ncclCommInitRank comm 0x5… rank 0 nranks 4 cudaDev 0 … - Init COMPLETE".
struct NcclInit {
  std::uint64_t comm = 0, comm_id = 0, parent = 0;
  std::int64_t rank = 0, nranks = 0;
  std::int64_t device = kNone;  // CUDA's index in the process
  std::int64_t gpu = kNone;     // NVML's, which is nvidia-smi's; where it is not logged, CUDA's
  std::int64_t split = kNone, color = kNone;  // of a communicator split off its parent
  bool is_split = false;
};
bool is_nccl_init(std::string_view message);
std::optional<NcclInit> parse_nccl_init(std::string_view message);

// "comm 0x5… rank 0 nranks 4 … - Destroy COMPLETE": the communicator that was destroyed.
std::optional<std::uint64_t> parse_nccl_destroy(std::string_view message);

// The call's signature. `root` stays a rank of the communicator.
SignatureId nccl_signature(const NcclLogCall& call, Tables& tables);
bool is_nccl_message(std::string_view name);  // Send, Recv

}  // namespace lockstep::trace
