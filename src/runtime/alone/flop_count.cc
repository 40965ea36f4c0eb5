#include "runtime/alone/flop_count.h"

#include <string_view>

#include <ATen/ATen.h>

namespace lockstep {
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

// Of one kernel over `outputs` elements of its result: each is a dot product.
double convolution(const at::Tensor& outputs, const at::Tensor& weight) {
  const double kernel = product(weight.sizes()) / static_cast<double>(weight.size(0));
  return 2 * product(outputs.sizes()) * kernel;
}

double forward_convolution(const at::Tensor& input, const at::Tensor& weight, Inputs inputs) {
  const auto stride = inputs[3].toIntVector();
  const auto padding = inputs[4].toIntVector();
  const auto dilation = inputs[5].toIntVector();
  double places = static_cast<double>(input.size(0)) * static_cast<double>(weight.size(0));
  for (std::int64_t i = 2; i < input.dim(); ++i) {
    const auto at = static_cast<std::size_t>(i - 2);
    const std::int64_t reach = dilation[at] * (weight.size(i) - 1) + 1;
    places *= static_cast<double>((input.size(i) + 2 * padding[at] - reach) / stride[at] + 1);
  }
  return 2 * places * product(weight.sizes()) / static_cast<double>(weight.size(0));
}

// The gradient of the input and that of the weight cost as much as the forward, each.
double backward_convolution(const at::Tensor& gradient, const at::Tensor& weight, Inputs inputs) {
  const auto wanted = inputs[10].toBoolList();
  return ((wanted[0] ? 1 : 0) + (wanted[1] ? 1 : 0)) * convolution(gradient, weight);
}

double cost(std::string_view name, Inputs inputs) {
  if (name == "aten::mm" || name == "aten::bmm") {
    return tensors(inputs, 0, 1) ? matrix_product(inputs[0].toTensor(), inputs[1].toTensor()) : 0;
  }
  if (name == "aten::addmm" || name == "aten::baddbmm") {
    return tensors(inputs, 1, 2) ? matrix_product(inputs[1].toTensor(), inputs[2].toTensor()) : 0;
  }
  if (name == "aten::convolution" && tensors(inputs, 0, 1) && inputs.size() > 5) {
    return forward_convolution(inputs[0].toTensor(), inputs[1].toTensor(), inputs);
  }
  if (name == "aten::convolution_backward" && tensors(inputs, 0, 2) && inputs.size() > 10) {
    return backward_convolution(inputs[0].toTensor(), inputs[2].toTensor(), inputs);
  }
  return 0;
}

std::unique_ptr<at::ObserverContext> count(const at::RecordFunction& function) {
  counted += cost(function.name(), function.inputs());
  return nullptr;
}

}  // namespace

FlopCount::FlopCount()
    : handle_(at::addThreadLocalCallback(at::RecordFunctionCallback(count).needsInputs(true).scopes(
          {at::RecordScope::FUNCTION}))) {
  counted = 0;
}

FlopCount::~FlopCount() { at::removeCallback(handle_); }

double FlopCount::so_far() const { return counted; }

}  // namespace lockstep
