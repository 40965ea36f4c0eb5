// NCCL's operations in the event model's words, for all who read or record them: names and numbers
// of nccl.h (NVIDIA/nccl src/nccl.h.in and src/collectives.cc, versions 2.7 to 2.30).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "trace/signature.h"

namespace lockstep::trace {

// "AllReduce", as NCCL's log and its profiler interface call it; nothing for one that is not known.
std::optional<Op> nccl_op(std::string_view name);

// ncclDataType_t and ncclRedOp_t by their numbers. Reduce operations from 5 on are the program's.
inline constexpr std::array<std::string_view, 12> kNcclDtypes = {
    "int8",    "uint8",   "int32",   "uint32",   "int64",         "uint64",
    "float16", "float32", "float64", "bfloat16", "float8_e4m3fn", "float8_e5m2"};
inline constexpr std::array<std::string_view, 5> kNcclRedops = {"sum", "product", "max", "min",
                                                                "avg"};

// How many elements a call with NCCL's argument `count` gives and fills on each rank (kNone: it
// does not, or not on each). `count` is that of one rank for AllGather, ReduceScatter, AlltoAll,
// Gather and Scatter. Saturates at INT64_MAX; nranks <= 0: not known.
struct NcclElements {
  std::int64_t in = kNone, out = kNone;
};
NcclElements nccl_elements(Op op, std::int64_t count, std::int64_t nranks);

// Whether the call's root means something: reduce, broadcast, gather, scatter.
bool nccl_has_root(Op op);

}  // namespace lockstep::trace
