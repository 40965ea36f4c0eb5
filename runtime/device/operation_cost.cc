#include "runtime/device/operation_cost.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include <ATen/ATen.h>

namespace lockstep::runtime {
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

namespace {

thread_local double counted = 0;

using Inputs = c10::ArrayRef<const c10::IValue>;

double product(at::IntArrayRef sizes) {
  double out = 1;
  for (const std::int64_t size : sizes) out *= static_cast<double>(size);
  return out;
}

bool tensors(Inputs inputs, std::size_t a, std::size_t b) {
  return inputs.size() > b && inputs[a].isTensor() && inputs[b].isTensor();
}

// [n, k] and [k, m], or a batch of such.
double matrix_product(const at::Tensor& a, const at::Tensor& b) {
  return 2 * product(a.sizes()) * static_cast<double>(b.size(-1));
}

// The operations of one kernel: each element of `outputs` is a dot product.
double convolution_flops(const at::Tensor& outputs, const at::Tensor& weight) {
  const double kernel = product(weight.sizes()) / static_cast<double>(weight.size(0));
  return 2 * product(outputs.sizes()) * kernel;
}

double forward_convolution(const at::Tensor& input, const at::Tensor& weight, Inputs inputs) {
  const auto stride = inputs[3].toIntVector();
  const auto padding = inputs[4].toIntVector();
  const auto dilation = inputs[5].toIntVector();
  double positions = static_cast<double>(input.size(0)) * static_cast<double>(weight.size(0));
  for (std::int64_t i = 2; i < input.dim(); ++i) {
    const auto at = static_cast<std::size_t>(i - 2);
    const std::int64_t reach = dilation[at] * (weight.size(i) - 1) + 1;
    positions *= static_cast<double>((input.size(i) + 2 * padding[at] - reach) / stride[at] + 1);
  }
  return 2 * positions * product(weight.sizes()) / static_cast<double>(weight.size(0));
}

// The gradient of the input and that of the weight cost as much as the forward, each.
double backward_convolution(const at::Tensor& gradient, const at::Tensor& weight, Inputs inputs) {
  const auto wanted = inputs[10].toBoolList();
  return ((wanted[0] ? 1 : 0) + (wanted[1] ? 1 : 0)) * convolution_flops(gradient, weight);
}

// Queries of [batch, heads, length, width] with keys of another length: two products forward, and
// backward five, since the scores are computed again.
double attention(const at::Tensor& queries, const at::Tensor& keys, int products) {
  if (queries.dim() != 4 || keys.dim() != 4) return 0;
  return 2.0 * products * product(queries.sizes()) * static_cast<double>(keys.size(2));
}

std::unique_ptr<at::ObserverContext> count(const at::RecordFunction& function) {
  const FlopsOf flops = flops_of(function.name(), function.inputs());
  counted += flops.matmul + flops.convolution;
  return nullptr;
}

}  // namespace

FlopsOf flops_of(std::string_view name, Inputs inputs) {
  const auto tensor = [&](std::size_t at) -> const at::Tensor& { return inputs[at].toTensor(); };
  if (name == "aten::mm" || name == "aten::bmm") {
    return {tensors(inputs, 0, 1) ? matrix_product(tensor(0), tensor(1)) : 0, 0};
  }
  if (name == "aten::addmm" || name == "aten::baddbmm") {
    return {tensors(inputs, 1, 2) ? matrix_product(tensor(1), tensor(2)) : 0, 0};
  }
  if (name == "aten::_scaled_dot_product_flash_attention_for_cpu") {
    return {tensors(inputs, 0, 1) ? attention(tensor(0), tensor(1), 2) : 0, 0};
  }
  if (name == "aten::_scaled_dot_product_flash_attention_for_cpu_backward") {
    return {tensors(inputs, 1, 2) ? attention(tensor(1), tensor(2), 5) : 0, 0};
  }
  if (name == "aten::convolution" && tensors(inputs, 0, 1) && inputs.size() > 5) {
    return {0, forward_convolution(tensor(0), tensor(1), inputs)};
  }
  if (name == "aten::convolution_backward" && tensors(inputs, 0, 2) && inputs.size() > 10) {
    return {0, backward_convolution(tensor(0), tensor(2), inputs)};
  }
  return {};
}

FlopCount::FlopCount()
    : handle_(at::addThreadLocalCallback(at::RecordFunctionCallback(count).needsInputs(true).scopes(
          {at::RecordScope::FUNCTION}))) {
  counted = 0;
}

FlopCount::~FlopCount() { at::removeCallback(handle_); }

double FlopCount::so_far() const { return counted; }

}  // namespace lockstep::runtime
