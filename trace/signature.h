// Signature: all that must agree over the ranks of one collective, interned once per run, so that
// "do these two calls agree" is an integer compare in the common case.
//
// A field that the source did not record is "unknown" and never counts as a mismatch.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "trace/ids.h"

namespace lockstep::trace {

enum class Op : std::uint8_t {
  other,  // an operation that the format does not list; its name is Signature::other_op
  all_reduce,
  reduce,
  broadcast,
  all_gather,
  all_gather_into_tensor,
  gather,
  scatter,
  reduce_scatter,
  reduce_scatter_tensor,
  all_to_all,
  all_to_all_single,
  barrier,
  send,
  recv,
  recv_any,
  scan,  // this and the following: MPI traces only
  exscan,
  probe,
  finalize,
};

// The contract's name of an operation ("all_reduce"); "other" for Op::other.
std::string_view op_name(Op op);
// The operation of that name; nothing where the contract has none.
std::optional<Op> op_from_name(std::string_view name);
// send, recv, recv_any and probe: matched by (source, destination, tag), not by sequence.
constexpr bool is_point_to_point(Op op) {
  return op == Op::send || op == Op::recv || op == Op::recv_any || op == Op::probe;
}

// Whether the operation completes on no rank before all members have issued it. The root of a
// reduce, or the receiver of a message, may be the only one that waits.
constexpr bool completes_together(Op op) {
  switch (op) {
    case Op::all_reduce:
    case Op::all_gather:
    case Op::all_gather_into_tensor:
    case Op::reduce_scatter:
    case Op::reduce_scatter_tensor:
    case Op::barrier:
      return true;
    default:
      return false;
  }
}

// all_reduce, reduce, the reduce-scatters and the scans: what takes a reduce operation.
constexpr bool is_reduction(Op op) {
  switch (op) {
    case Op::all_reduce:
    case Op::reduce:
    case Op::reduce_scatter:
    case Op::reduce_scatter_tensor:
    case Op::scan:
    case Op::exscan:
      return true;
    default:
      return false;
  }
}

// Shapes of a list of tensors, flattened for interning: [dims of tensor 0, -1, dims of tensor 1,
// -1, …]. Dimensions are never negative, so -1 ends a tensor and a scalar is just [-1].
using IntList = std::vector<std::int64_t>;
IntList flatten_shapes(const std::vector<std::vector<std::int64_t>>& shapes);
std::vector<std::vector<std::int64_t>> unflatten_shapes(const IntList& flat);
// Elements over all tensors of flattened shapes; saturates at INT64_MAX.
std::int64_t total_elements(const IntList& flat);

struct Signature {
  Op op = Op::other;
  StringId other_op;  // the operation's own name when op is Op::other
  IntListId in, out;  // flattened shapes; 0: not recorded
  NameListId dtypes;  // one name, or one per tensor
  StringId redop;
  std::int32_t root = kNone;  // global rank
  IntListId splits_in, splits_out;
  std::int64_t count = kNone;  // MPI traces: elements of the contribution
  StringId mode;               // MPI traces: send mode
  // Derived from `in` and `out` by make_signature; kNone where not recorded.
  std::int64_t in_elements = kNone;
  std::int64_t out_elements = kNone;

  friend bool operator==(const Signature&, const Signature&) = default;
};

struct SignatureHash {
  std::size_t operator()(const Signature& s) const noexcept;
};
struct IntListHash {
  std::size_t operator()(const IntList& list) const noexcept;
};
struct NameListHash {
  std::size_t operator()(const std::vector<StringId>& list) const noexcept;
};

}  // namespace lockstep::trace
