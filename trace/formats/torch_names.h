// How PyTorch spells operations and element types, in the event model's words. Shared by the
// readers of what PyTorch writes.
//
// Sources: torch/csrc/distributed/c10d/Types and Work.cpp (opTypeToString), ProcessGroupNCCL.cpp
// (profiling titles, RECORD_PARAM_COMMS), c10/core/ScalarType.h (toString), PyTorch 1.8 to 2.11.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trace/run.h"

namespace lockstep::trace {

// "ALLREDUCE", "_ALLGATHER_BASE", "allreduce", "nccl:all_reduce",
// "reduce_scatter_tensor_coalesced": case, a "backend:" in front and "_coalesced" behind do not
// matter. Nothing: not known.
std::optional<Op> op_from_torch(std::string_view name);

// "Float" or "float" is "float32", "BFloat16" is "bfloat16"; what is not known stays as it is, in
// lower case. Empty for an empty name.
std::string dtype_from_torch(std::string_view name);

// The signature's operation and, where that is Op::other, its own name.
void set_op(Signature& signature, std::optional<Op> op, std::string_view own_name, Tables& tables);

// A list with one flat tensor of that many elements, as Signature::in takes it; nothing recorded
// for a negative count.
IntListId flat_tensor(std::int64_t elements, Tables& tables);

// "[0, 1, 2]" (brackets and blanks optional), as PyTorch writes lists into strings. Nothing where
// it is abbreviated ("[0, 1, ..., 7]") or anything in it is not a number.
std::optional<std::vector<std::int64_t>> integers_in(std::string_view list);

// Ranks of a list; nothing where one is not possible in a world of kMaxWorldSize.
std::optional<std::vector<Rank>> ranks_in(const std::vector<std::int64_t>& numbers);

}  // namespace lockstep::trace
