#include "runtime/device/kernel_cost.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <ATen/ATen.h>

#include "runtime/device/flop_count.h"

namespace lockstep {
namespace {

// Calls `use` for every tensor of `values`, those in lists as well.
template <class Values, class Use>
void for_each_tensor(const Values& values, const Use& use) {
  for (const c10::IValue& value : values) {
    if (value.isTensor()) {
      if (value.toTensor().defined()) use(value.toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) {
        if (tensor.defined()) use(tensor);
      }
    }
  }
}

double tensor_bytes(const at::Tensor& tensor) {
  return static_cast<double>(tensor.numel()) * static_cast<double>(tensor.element_size());
}

const void* storage_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

std::string name_of(at::ScalarType type) {
  switch (type) {
    case at::kHalf:
      return "float16";
    case at::kBFloat16:
      return "bfloat16";
    case at::kDouble:
      return "float64";
    default:
      return "float32";
  }
}

bool allocates(std::string_view name) {
  static constexpr std::array<std::string_view, 9> kNames = {
      "aten::empty",     "aten::empty_like",        "aten::empty_strided",
      "aten::new_empty", "aten::empty_permuted",    "aten::resize_",
      "aten::set_",      "aten::new_empty_strided", "aten::requires_grad_"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

bool looks_up(std::string_view name) {
  return name == "aten::embedding" || name == "aten::index_select" || name == "aten::gather" ||
         name == "aten::index";
}

}  // namespace

OperationCost cost_at_start(const at::RecordFunction& function) {
  OperationCost out;
  const std::string_view name = function.name();
  const FlopsOf flops = flops_of(name, function.inputs());
  out.matmul = flops.matmul;
  out.convolution = flops.convolution;
  out.allocates = !name.starts_with("aten::") || allocates(name);
  out.looks_up = looks_up(name);
  out.writes_inputs = name.ends_with("_") || name.ends_with("out");
  for_each_tensor(function.inputs(), [&](const at::Tensor& tensor) {
    if (out.dtype.empty()) out.dtype = name_of(tensor.scalar_type());
    out.read += tensor_bytes(tensor);
    out.storages.push_back(storage_of(tensor));
  });
  return out;
}

double bytes_at_end(const at::RecordFunction& function, const OperationCost& cost) {
  if (cost.allocates) return -1;
  double written = 0;
  bool moved = false;
  for_each_tensor(function.outputs(), [&](const at::Tensor& tensor) {
    const bool is_view = std::find(cost.storages.begin(), cost.storages.end(),
                                   storage_of(tensor)) != cost.storages.end();
    if (is_view && !cost.writes_inputs) return;
    written += tensor_bytes(tensor);
    moved = true;
  });
  if (!moved) return -1;
  return written + (cost.looks_up ? written : cost.read);
}

}  // namespace lockstep
