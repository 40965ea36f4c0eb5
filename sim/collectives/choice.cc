#include "sim/collectives/choice.h"

#include <string>

#include "sim/collectives/closed_form.h"

namespace lockstep::sim {

std::optional<Algorithm> default_algorithm(Op op) {
  switch (plain_op(op)) {
    case Op::all_reduce:
    case Op::all_gather:
    case Op::reduce_scatter:
      return Algorithm::ring;
    case Op::broadcast:
    case Op::reduce:
      return Algorithm::binomial;
    case Op::all_to_all:
    case Op::gather:
    case Op::scatter:
    case Op::send:
      return Algorithm::direct;
    case Op::barrier:
    case Op::finalize:
      return Algorithm::recursive_doubling;
    default:
      return std::nullopt;
  }
}

Result<Picos> default_time(Op op, std::int64_t ranks, Bytes bytes, const LinkCost& link) {
  const std::optional<Algorithm> algorithm = default_algorithm(op);
  if (!algorithm) {
    return Error{"the operation " + std::string(op_name(op)) + " is not simulated",
                 {},
                 "simulate a program without it"};
  }
  if (ranks == 1) return Picos{};
  const Op priced = op == Op::finalize ? Op::barrier : op;  // it synchronises, and no more
  return closed_form({priced, *algorithm, ranks, bytes, 1, 1}, {link});
}

}  // namespace lockstep::sim
