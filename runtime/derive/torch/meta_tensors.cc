#include "runtime/derive/torch/meta_tensors.h"

#include <algorithm>
#include <array>
#include <limits>
#include <tuple>

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <torch/library.h>

namespace lockstep::runtime {
namespace {

class Meta final : public Device {
 public:
  c10::Device torch_device() const override { return at::kMeta; }
  at::Tensor bring(const at::Tensor& tensor) const override {
    return tensor.defined() ? tensor.to(at::kMeta) : tensor;
  }
};

// Meta kernels that LibTorch has only in Python. Each returns an empty tensor with the shape and
// type of the operator's real kernels (ATen/native/native_functions.yaml names the operators).

using OptionalTensor = std::optional<at::Tensor>;
using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using Mask = std::array<bool, 3>;

at::Tensor on_meta(at::IntArrayRef sizes, const at::Tensor& like) {
  return at::empty(sizes, like.options().device(at::kMeta));
}

at::Tensor like(const at::Tensor& tensor) { return on_meta(tensor.sizes(), tensor); }

at::Tensor like_if(bool wanted, const at::Tensor& tensor) {
  return wanted ? like(tensor) : at::Tensor();
}

// A dispatch key of LibTorch that programs do not use. With it active, tensors for the CPU are
// created on the meta device.
constexpr auto kMode = c10::DispatchKey::TESTING_ONLY_GenericMode;

at::Tensor empty_on_meta(at::IntArrayRef sizes, std::optional<at::ScalarType> type,
                         std::optional<at::Layout> layout, std::optional<at::Device> /*device*/,
                         std::optional<bool> /*pinned*/, std::optional<at::MemoryFormat> format) {
  const c10::impl::ExcludeDispatchKeyGuard off(kMode);
  return at::empty(sizes, type, layout, at::kMeta, std::nullopt, format);
}

at::Tensor empty_strided_on_meta(at::IntArrayRef sizes, at::IntArrayRef strides,
                                 std::optional<at::ScalarType> type,
                                 std::optional<at::Layout> layout,
                                 std::optional<at::Device> /*device*/,
                                 std::optional<bool> /*pinned*/) {
  const c10::impl::ExcludeDispatchKeyGuard off(kMode);
  return at::empty_strided(sizes, strides, type, layout, at::kMeta, std::nullopt);
}

at::Tensor meta_convolution(const at::Tensor& input, const at::Tensor& weight,
                            const OptionalTensor& /*bias*/, at::IntArrayRef stride,
                            at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                            at::IntArrayRef /*output_padding*/, std::int64_t /*groups*/) {
  TORCH_CHECK(!transposed, "no meta kernel for transposed convolutions");
  std::vector<std::int64_t> sizes = {input.size(0), weight.size(0)};
  for (std::int64_t i = 2; i < input.dim(); ++i) {
    const auto at = static_cast<std::size_t>(i - 2);
    // The usual formula: kernel extent with dilation, then the number of positions.
    const std::int64_t reach = dilation[at] * (weight.size(i) - 1) + 1;
    sizes.push_back((input.size(i) + 2 * padding[at] - reach) / stride[at] + 1);
  }
  return on_meta(sizes, input);
}

Three convolution_backward(const at::Tensor& grad, const at::Tensor& input,
                           const at::Tensor& weight, at::OptionalIntArrayRef /*bias_sizes*/,
                           at::IntArrayRef /*stride*/, at::IntArrayRef /*padding*/,
                           at::IntArrayRef /*dilation*/, bool /*transposed*/,
                           at::IntArrayRef /*output_padding*/, std::int64_t /*groups*/,
                           Mask wanted) {
  return {like_if(wanted[0], input), like_if(wanted[1], weight),
          wanted[2] ? on_meta({weight.size(0)}, grad) : at::Tensor()};
}

Three native_batch_norm(const at::Tensor& input, const OptionalTensor& /*weight*/,
                        const OptionalTensor& /*bias*/, const OptionalTensor& /*running_mean*/,
                        const OptionalTensor& /*running_var*/, bool training, double /*momentum*/,
                        double /*eps*/) {
  const std::int64_t kept = training ? input.size(1) : 0;
  return {like(input), on_meta({kept}, input), on_meta({kept}, input)};
}

Three native_batch_norm_backward(const at::Tensor& grad, const at::Tensor& input,
                                 const OptionalTensor& /*weight*/,
                                 const OptionalTensor& /*running_mean*/,
                                 const OptionalTensor& /*running_var*/,
                                 const OptionalTensor& /*save_mean*/,
                                 const OptionalTensor& /*save_invstd*/, bool /*train*/,
                                 double /*eps*/, Mask wanted) {
  const std::int64_t channels = input.size(1);
  return {like_if(wanted[0], input), wanted[1] ? on_meta({channels}, grad) : at::Tensor(),
          wanted[2] ? on_meta({channels}, grad) : at::Tensor()};
}

Three native_layer_norm(const at::Tensor& input, at::IntArrayRef normalized,
                        const OptionalTensor& /*weight*/, const OptionalTensor& /*bias*/,
                        double /*eps*/) {
  std::vector<std::int64_t> rows = input.sizes().vec();
  std::fill(rows.end() - static_cast<std::ptrdiff_t>(normalized.size()), rows.end(), 1);
  return {like(input), on_meta(rows, input), on_meta(rows, input)};
}

Three native_layer_norm_backward(const at::Tensor& grad, const at::Tensor& input,
                                 at::IntArrayRef normalized, const at::Tensor& /*mean*/,
                                 const at::Tensor& /*rstd*/, const OptionalTensor& /*weight*/,
                                 const OptionalTensor& /*bias*/, Mask wanted) {
  return {like_if(wanted[0], input), wanted[1] ? on_meta(normalized, grad) : at::Tensor(),
          wanted[2] ? on_meta(normalized, grad) : at::Tensor()};
}

at::Tensor adaptive_avg_pool2d(const at::Tensor& input, at::IntArrayRef size) {
  std::vector<std::int64_t> sizes = input.sizes().vec();
  std::copy(size.begin(), size.end(), sizes.end() - 2);
  return on_meta(sizes, input);
}
at::Tensor adaptive_avg_pool2d_backward(const at::Tensor& /*grad*/, const at::Tensor& input) {
  return like(input);
}

// The memory layout of the real kernels: [batch, position, head, width], seen as heads first.
at::Tensor heads_last(const at::Tensor& like) {
  return on_meta({like.size(0), like.size(2), like.size(1), like.size(3)}, like).transpose(1, 2);
}

std::tuple<at::Tensor, at::Tensor> fused_attention(const at::Tensor& query, const at::Tensor&,
                                                   const at::Tensor&, double /*dropout*/,
                                                   bool /*causal*/, const OptionalTensor& /*bias*/,
                                                   std::optional<double> /*scale*/) {
  const bool narrow = query.scalar_type() == at::kHalf || query.scalar_type() == at::kBFloat16;
  const auto sums = query.options().dtype(narrow ? at::kFloat : query.scalar_type());
  return {heads_last(query),
          at::empty({query.size(0), query.size(2), query.size(1)}, sums).transpose(1, 2)};
}

Three fused_attention_backward(const at::Tensor& /*grad*/, const at::Tensor& query,
                               const at::Tensor& key, const at::Tensor& value,
                               const at::Tensor& /*out*/, const at::Tensor& /*sums*/,
                               double /*dropout*/, bool /*causal*/, const OptionalTensor& /*bias*/,
                               std::optional<double> /*scale*/) {
  return {heads_last(query), heads_last(key), heads_last(value)};
}

at::Tensor index_select(const at::Tensor& self, std::int64_t dim, const at::Tensor& index) {
  std::vector<std::int64_t> sizes = self.sizes().vec();
  sizes[static_cast<std::size_t>(at::maybe_wrap_dim(dim, self.dim()))] = index.numel();
  return on_meta(sizes, self);
}

at::Tensor embedding_dense_backward(const at::Tensor& grad, const at::Tensor& /*indices*/,
                                    std::int64_t rows, std::int64_t /*padding*/,
                                    bool /*by_frequency*/) {
  return on_meta({rows, grad.size(-1)}, grad);
}

at::Tensor where(const at::Tensor& condition, const at::Tensor& a, const at::Tensor& b) {
  const auto sizes = at::infer_size(condition.sizes(), at::infer_size(a.sizes(), b.sizes()));
  return on_meta(sizes, a).to(at::result_type(a, b));
}

at::Tensor& where_out(const at::Tensor& condition, const at::Tensor& a, const at::Tensor& b,
                      at::Tensor& out) {
  out.resize_(at::infer_size(condition.sizes(), at::infer_size(a.sizes(), b.sizes())));
  return out;
}

// Unknown without values; at most all of them.
at::Tensor nonzero(const at::Tensor& self) {
  return at::empty({self.numel(), self.dim()},
                   at::TensorOptions().device(at::kMeta).dtype(at::kLong));
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  if (at::isFloatingType(self.scalar_type())) return std::numeric_limits<double>::quiet_NaN();
  return std::int64_t{0};
}

at::Tensor& as_it_is(at::Tensor& self) { return self; }

at::Tensor roll(const at::Tensor& self, at::IntArrayRef /*shifts*/, at::IntArrayRef /*dims*/) {
  return like(self);
}

at::Tensor& abs_out(const at::Tensor& self, at::Tensor& out) {
  out.resize_(self.sizes());
  return out;
}

at::Tensor& nan_to_num_out(const at::Tensor& /*self*/, std::optional<double> /*nan*/,
                           std::optional<double> /*posinf*/, std::optional<double> /*neginf*/,
                           at::Tensor& out) {
  return out;
}

// For the whole process; later calls do nothing. Call it before creating meta tensors.
void register_meta_kernels() {
  static const torch::Library every_namespace = [] {
    torch::Library library(torch::Library::IMPL, "_", kMode, __FILE__, __LINE__);
    library.fallback(torch::CppFunction::makeFallthrough());
    return library;
  }();
  static const torch::Library mode = [] {
    torch::Library library(torch::Library::IMPL, "aten", kMode, __FILE__, __LINE__);
    library.impl("empty.memory_format", empty_on_meta);
    library.impl("empty_strided", empty_strided_on_meta);
    return library;
  }();
  static const torch::Library meta = [] {
    torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::Meta, __FILE__,
                           __LINE__);
    library.impl("convolution", meta_convolution);
    library.impl("convolution_backward", convolution_backward);
    library.impl("native_batch_norm", native_batch_norm);
    library.impl("native_batch_norm_backward", native_batch_norm_backward);
    library.impl("native_layer_norm", native_layer_norm);
    library.impl("native_layer_norm_backward", native_layer_norm_backward);
    library.impl("_adaptive_avg_pool2d", adaptive_avg_pool2d);
    library.impl("_adaptive_avg_pool2d_backward", adaptive_avg_pool2d_backward);
    library.impl("_scaled_dot_product_flash_attention_for_cpu", fused_attention);
    library.impl("_scaled_dot_product_flash_attention_for_cpu_backward", fused_attention_backward);
    library.impl("index_select", index_select);
    library.impl("embedding_dense_backward", embedding_dense_backward);
    library.impl("where.self", where);
    library.impl("where.self_out", where_out);
    library.impl("nonzero", nonzero);
    library.impl("_local_scalar_dense", local_scalar_dense);
    library.impl("relu", like);
    library.impl("relu_", as_it_is);
    library.impl("roll", roll);
    library.impl("abs.out", abs_out);
    library.impl("nan_to_num.out", nan_to_num_out);
    return library;
  }();
  (void)every_namespace, (void)mode, (void)meta;
}

}  // namespace

MakeOnMeta::MakeOnMeta() : on_(c10::DispatchKeySet(kMode)) { register_meta_kernels(); }

std::unique_ptr<Device> meta_device() { return std::make_unique<Meta>(); }

// Autocast.

namespace {

// Another key that programs do not use, above those of autograd, as autocast's own are.
constexpr auto kCast = c10::DispatchKey::TESTING_ONLY_GenericWrapper;

thread_local at::ScalarType lower_type = at::kBFloat16;

bool is_cast(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_meta() && at::isFloatingType(tensor.scalar_type()) &&
         tensor.scalar_type() != at::kDouble;
}

at::Tensor cast(const at::Tensor& tensor, at::ScalarType type) {
  return is_cast(tensor) && tensor.scalar_type() != type ? tensor.to(type) : tensor;
}

// Runs the operator with its last arguments on the stack, converted.
void run_in(at::ScalarType type, const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard off(kCast);
  for (auto argument = stack->end() - static_cast<std::ptrdiff_t>(op.schema().arguments().size());
       argument != stack->end(); ++argument) {
    if (argument->isTensor()) {
      *argument = cast(argument->toTensor(), type);
    } else if (argument->isTensorList()) {
      std::vector<at::Tensor> list = argument->toTensorVector();
      for (at::Tensor& tensor : list) tensor = cast(tensor, type);
      *argument = list;
    }
  }
  op.callBoxed(stack);
}

void run_lower(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  run_in(lower_type, op, stack);
}
void run_in_float32(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  run_in(at::kFloat, op, stack);
}
// In the widest type of the tensors.
void run_promoted(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::ScalarType type = lower_type;
  const auto look = [&](const at::Tensor& tensor) {
    if (is_cast(tensor)) type = at::promote_types(type, tensor.scalar_type());
  };
  for (auto argument = stack->end() - static_cast<std::ptrdiff_t>(op.schema().arguments().size());
       argument != stack->end(); ++argument) {
    if (argument->isTensor()) look(argument->toTensor());
    if (argument->isTensorList())
      for (const at::Tensor& tensor : argument->toTensorVector()) look(tensor);
  }
  run_in(type, op, stack);
}

// Those operators of autocast's lists for the CPU that models may use.
void register_autocast() {
  static const torch::Library every_namespace = [] {
    torch::Library library(torch::Library::IMPL, "_", kCast, __FILE__, __LINE__);
    library.fallback(torch::CppFunction::makeFallthrough());
    return library;
  }();
  static const torch::Library cast = [] {
    torch::Library library(torch::Library::IMPL, "aten", kCast, __FILE__, __LINE__);
    for (const char* op : {"conv1d", "conv1d.padding", "conv2d", "conv2d.padding", "conv3d",
                           "conv3d.padding", "bmm", "mm", "baddbmm", "addmm", "addbmm", "linear",
                           "matmul", "prelu", "scaled_dot_product_attention"})
      library.impl(op, torch::CppFunction::makeFromBoxedFunction<&run_lower>());
    for (const char* op :
         {"binary_cross_entropy", "binary_cross_entropy_with_logits", "cross_entropy_loss",
          "nll_loss", "nll_loss_nd", "mse_loss", "l1_loss", "smooth_l1_loss", "kl_div",
          "cosine_embedding_loss", "cdist", "prod", "trace"})
      library.impl(op, torch::CppFunction::makeFromBoxedFunction<&run_in_float32>());
    for (const char* op : {"stack", "cat", "index_copy"})
      library.impl(op, torch::CppFunction::makeFromBoxedFunction<&run_promoted>());
    return library;
  }();
  (void)every_namespace, (void)cast;
}

}  // namespace

MetaAutocast::MetaAutocast(at::ScalarType lower) : on_(c10::DispatchKeySet(kCast)) {
  register_autocast();
  lower_type = lower;
}

}  // namespace lockstep::runtime

// Torch 2.15 renames the two whole-tensor operations; 2.11 has only these names.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace lockstep::runtime {

DirectGroup::WorkPtr DirectGroup::broadcast(std::vector<at::Tensor>& tensors,
                                            const c10d::BroadcastOptions& opts) {
  if (!tensors.front().is_meta()) return ProcessGroup::broadcast(tensors, opts);
  return backend()->broadcast(tensors, opts);
}

DirectGroup::WorkPtr DirectGroup::allreduce(std::vector<at::Tensor>& tensors,
                                            const c10d::AllreduceOptions& opts) {
  if (!tensors.front().is_meta()) return ProcessGroup::allreduce(tensors, opts);
  return backend()->allreduce(tensors, opts);
}

DirectGroup::WorkPtr DirectGroup::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                  const c10d::AllgatherOptions& opts) {
  if (!input.is_meta()) return ProcessGroup::_allgather_base(output, input, opts);
  return backend()->_allgather_base(output, input, opts);
}

DirectGroup::WorkPtr DirectGroup::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                       const c10d::ReduceScatterOptions& opts) {
  if (!input.is_meta()) return ProcessGroup::_reduce_scatter_base(output, input, opts);
  return backend()->_reduce_scatter_base(output, input, opts);
}

}  // namespace lockstep::runtime
