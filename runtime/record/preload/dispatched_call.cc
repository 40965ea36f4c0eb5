#include "runtime/record/preload/dispatched_call.h"

#include <algorithm>
#include <array>

#include <torch/custom_class.h>

namespace lockstep::runtime {
namespace {

// What an operator is, and which of its arguments hold what is given and what is filled.
struct Operator {
  const char* name;
  trace::Op op;
  std::string_view in, out;
};
constexpr std::array kOperators = {
    Operator{"allreduce_", trace::Op::all_reduce, "tensors", "tensors"},
    Operator{"allreduce_coalesced_", trace::Op::all_reduce, "tensors", "tensors"},
    Operator{"broadcast_", trace::Op::broadcast, "tensors", "tensors"},
    Operator{"reduce_", trace::Op::reduce, "tensors", "tensors"},
    Operator{"allgather_", trace::Op::all_gather, "input_tensors", "output_tensors"},
    Operator{"allgather_coalesced_", trace::Op::all_gather, "input_list", "output_lists"},
    Operator{"_allgather_base_", trace::Op::all_gather_into_tensor, "input_tensor",
             "output_tensor"},
    Operator{"allgather_into_tensor_coalesced_", trace::Op::all_gather_into_tensor, "inputs",
             "outputs"},
    Operator{"reduce_scatter_", trace::Op::reduce_scatter, "input_tensors", "output_tensors"},
    Operator{"_reduce_scatter_base_", trace::Op::reduce_scatter_tensor, "input_tensor",
             "output_tensor"},
    Operator{"reduce_scatter_tensor_coalesced_", trace::Op::reduce_scatter_tensor, "inputs",
             "outputs"},
    Operator{"gather_", trace::Op::gather, "input_tensors", "output_tensors"},
    Operator{"scatter_", trace::Op::scatter, "input_tensors", "output_tensors"},
    Operator{"alltoall_", trace::Op::all_to_all, "input_tensors", "output_tensors"},
    Operator{"alltoall_base_", trace::Op::all_to_all_single, "input", "output"},
    Operator{"barrier", trace::Op::barrier, "", ""},
    Operator{"monitored_barrier_", trace::Op::barrier, "", ""},
    Operator{"send", trace::Op::send, "tensors", ""},
    Operator{"recv_", trace::Op::recv, "", "tensors"},
    Operator{"recv_any_source_", trace::Op::recv_any, "", "tensors"},
};

// A tensor, a list of them, or a list of lists.
void append_tensors(const c10::IValue& value, std::vector<at::Tensor>& out) {
  if (value.isTensor()) {
    out.push_back(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) out.push_back(tensor);
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) append_tensors(item, out);
  }
}

void read_argument(const Operator& what, std::string_view name, const c10::IValue& value,
                   DispatchedCall& out) {
  if (name == what.in) append_tensors(value, out.in);
  if (name == what.out) append_tensors(value, out.out);
  if (name == "process_group") {
    out.group = value.toCustomClass<c10d::ProcessGroup>();
  } else if (name == "reduce_op") {
    out.reduce = value.toCustomClass<c10d::ReduceOp>();
  } else if (name == "root_rank") {
    out.fields.root = value.toInt();
  } else if (name == "async_op" || name == "asyncOp") {
    out.fields.is_async = value.toBool();
  } else if (name == "dst" || name == "src") {
    out.fields.peer = static_cast<std::int32_t>(value.toInt());
  } else if (name == "tag") {
    out.fields.peer_tag = static_cast<std::int32_t>(value.toInt());
  } else if (name == "input_split_sizes") {
    out.splits_in = value.toIntVector();
    out.has_splits = true;
  } else if (name == "output_split_sizes") {
    out.splits_out = value.toIntVector();
  }
}

}  // namespace

BackendCall DispatchedCall::recorded() const {
  BackendCall call = fields;
  call.in = in;
  call.out = out;
  call.reduce = reduce.get();
  if (has_splits) {
    call.splits_in = &splits_in;
    call.splits_out = &splits_out;
  }
  return call;
}

std::optional<c10::Device> DispatchedCall::cuda_device() const {
  for (const std::vector<at::Tensor>* const tensors : {&in, &out}) {
    for (const at::Tensor& tensor : *tensors)
      if (tensor.is_cuda()) return tensor.device();
  }
  return std::nullopt;
}

bool DispatchedCall::is_meta() const {
  const auto without_value = [](const at::Tensor& tensor) { return tensor.is_meta(); };
  return std::any_of(in.begin(), in.end(), without_value) ||
         std::any_of(out.begin(), out.end(), without_value);
}

const std::vector<const char*>& recorded_operators() {
  static const std::vector<const char*> names = [] {
    std::vector<const char*> all;
    for (const Operator& each : kOperators) all.push_back(each.name);
    return all;
  }();
  return names;
}

std::optional<DispatchedCall> read_call(const c10::FunctionSchema& schema,
                                        c10::ArrayRef<c10::IValue> arguments) {
  constexpr std::string_view kLibrary = "c10d::";
  std::string_view name = schema.name();
  if (!name.starts_with(kLibrary)) return std::nullopt;
  name.remove_prefix(kLibrary.size());
  const auto* const known = std::find_if(kOperators.begin(), kOperators.end(),
                                         [&](const Operator& each) { return name == each.name; });
  if (known == kOperators.end()) return std::nullopt;
  DispatchedCall out;
  out.fields.op = known->op;
  for (std::size_t i = 0; i < arguments.size(); ++i)
    read_argument(*known, schema.arguments()[i].name(), arguments[i], out);
  if (schema.returns().empty()) out.fields.is_async = false;
  if (!out.group) return std::nullopt;
  return out;
}

}  // namespace lockstep::runtime
