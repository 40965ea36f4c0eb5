#include "verify/product/call_keys.h"

namespace lockstep {

namespace {

std::string number(std::int64_t n) { return n == kNone ? "?" : std::to_string(n); }

bool cut_unevenly(const Signature& s) {
  return s.op == Op::all_to_all || s.splits_in.value != 0 || s.splits_out.value != 0;
}

// Elements that must be alike on all ranks.
std::string sizes_text(const Signature& s) {
  const std::string in = number(s.in_elements);
  const std::string out = number(s.out_elements);
  switch (s.op) {
    case Op::all_reduce:
    case Op::reduce:
    case Op::broadcast:
      return s.in_elements != kNone ? in : out;
    case Op::all_gather_into_tensor:
    case Op::reduce_scatter:
    case Op::reduce_scatter_tensor:
      return in + ">" + out;
    case Op::all_gather:
      return s.out_elements != kNone ? ">" + out : in + ">";
    case Op::gather:
      return in + ">";
    case Op::scatter:
      return ">" + out;
    case Op::all_to_all_single:
      return cut_unevenly(s) ? "cut" : in + ">" + out;
    case Op::send:
      return s.in_elements != kNone ? in : out;
    case Op::recv:
    case Op::recv_any:
      return s.out_elements != kNone ? out : in;
    default:
      return "";
  }
}

std::vector<std::int64_t> tensor_sizes(const Tables& tables, IntListId shapes) {
  std::vector<std::int64_t> out;
  for (const std::vector<std::int64_t>& shape : unflatten_shapes(tables.int_lists[shapes]))
    out.push_back(total_elements(flatten_shapes({shape})));
  return out;
}

}  // namespace

std::string shared_key(const Tables& tables, const Call& call) {
  const Signature& s = tables.signatures[call.signature];
  const bool message = is_point_to_point(s.op);
  std::string out = message             ? "message"
                    : s.op == Op::other ? "other:" + tables.str(s.other_op)
                                        : std::string(op_name(s.op));
  out += "\n" + sizes_text(s);
  out += "\n";
  if (s.op != Op::barrier) {
    for (const StringId name : tables.name_lists[s.dtypes]) out += tables.str(name) + ",";
  }
  out += "\n";
  if (is_reduction(s.op)) out += tables.str(s.redop);
  out += "\n" + number(s.root) + "\n";
  // What a message carries is known to its sender and its receiver by different names.
  if (!message) {
    for (const StringId name : tables.name_lists[call.what]) out += tables.str(name) + "\n";
  }
  return out;
}

ExchangeSplits exchange_splits(const Tables& tables, const Call& call) {
  const Signature& s = tables.signatures[call.signature];
  if ((s.op != Op::all_to_all && s.op != Op::all_to_all_single) || !cut_unevenly(s)) return {};
  if (s.op == Op::all_to_all) return {tensor_sizes(tables, s.in), tensor_sizes(tables, s.out)};
  return {tables.int_lists[s.splits_in], tables.int_lists[s.splits_out]};
}

}  // namespace lockstep
