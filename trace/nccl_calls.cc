#include "trace/nccl_calls.h"

#include <algorithm>
#include <utility>

namespace lockstep::trace {
namespace {

constexpr std::array<std::pair<std::string_view, Op>, 12> kNcclOps = {{
    {"AllReduce", Op::all_reduce},
    {"Broadcast", Op::broadcast},
    {"Bcast", Op::broadcast},
    {"Reduce", Op::reduce},
    {"AllGather", Op::all_gather_into_tensor},
    {"ReduceScatter", Op::reduce_scatter_tensor},
    {"AlltoAll", Op::all_to_all_single},
    {"AllToAll", Op::all_to_all_single},
    {"Gather", Op::gather},
    {"Scatter", Op::scatter},
    {"Send", Op::send},
    {"Recv", Op::recv},
}};

std::int64_t times(std::int64_t count, std::int64_t nranks) {
  if (nranks <= 0) return kNone;
  return count > INT64_MAX / nranks ? INT64_MAX : count * nranks;
}

}  // namespace

std::optional<Op> nccl_op(std::string_view name) {
  const auto* const found = std::find_if(kNcclOps.begin(), kNcclOps.end(),
                                         [&](const auto& row) { return row.first == name; });
  return found == kNcclOps.end() ? std::nullopt : std::optional(found->second);
}

NcclElements nccl_elements(Op op, std::int64_t count, std::int64_t nranks) {
  const std::int64_t all = times(count, nranks);
  switch (op) {
    case Op::all_gather_into_tensor:
      return {count, all};
    case Op::reduce_scatter_tensor:
      return {all, count};
    case Op::all_to_all_single:
      return {all, all};
    case Op::gather:
    case Op::send:
      return {count, kNone};
    case Op::scatter:
    case Op::recv:
      return {kNone, count};
    default:
      return {count, count};
  }
}

bool nccl_has_root(Op op) {
  return op == Op::reduce || op == Op::broadcast || op == Op::gather || op == Op::scatter;
}

}  // namespace lockstep::trace
