// Translates PyTorch's names of operations and element types into those of the event model. Shared
// by the readers of PyTorch's formats.
//
// Sources: torch/csrc/distributed/c10d/Types and Work.cpp (opTypeToString), ProcessGroupNCCL.cpp
// (profiling titles, RECORD_PARAM_COMMS), c10/core/ScalarType.h (toString), PyTorch 1.8 to 2.11.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trace/run.h"

namespace lockstep::trace {

// The operation of a name: "ALLREDUCE", "_ALLGATHER_BASE", "allreduce", "nccl:all_reduce",
// "reduce_scatter_tensor_coalesced". Ignores case, a prefix "backend:" and a suffix "_coalesced".
// Nothing where it is unknown.
std::optional<Op> op_from_torch(std::string_view name);

// All names that op_from_torch knows, in lower case and without a prefix.
std::span<const std::string_view> torch_operations();

// All names of types that dtype_from_torch knows, in lower case.
std::span<const std::string_view> torch_types();

// PyTorch's Python name of a type: "Float" and "float" are "float32", "BFloat16" is "bfloat16".
// Unknown names only become lower case; an empty one stays empty.
std::string dtype_from_torch(std::string_view name);

// Sets the signature's operation; `own_name` is kept where the operation is unknown.
void set_op(Signature& signature, std::optional<Op> op, std::string_view own_name, Tables& tables);

// A list of one flat tensor with this many elements, for Signature::in. Not set for a negative
// count.
IntListId flat_tensor(std::int64_t elements, Tables& tables);

// Parses a list that PyTorch wrote as a string: "[0, 1, 2]", brackets and blanks optional. Nothing
// where it is abbreviated ("[0, 1, ..., 7]") or an item is not a number.
std::optional<std::vector<std::int64_t>> integers_in(std::string_view list);

// The numbers as ranks; nothing where one is negative or not below kMaxWorldSize.
std::optional<std::vector<Rank>> ranks_in(const std::vector<std::int64_t>& numbers);

}  // namespace lockstep::trace
